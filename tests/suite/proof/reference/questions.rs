//! When an unknown is asked about, and what an answer proves.

use sendonce::domain::ids::NotificationId;
use sendonce::domain::time::Timestamp;

use super::{Asked, MAX_ATTEMPTS, Note, Reference, SEND_TIMEOUT, TRANSIT, Telling, doubling, is_final, secs};

impl Reference {
    /// From when on a probe is safe, if it ever is.
    fn probe_at(&self, note: &Note, asked: &Asked) -> Option<Timestamp> {
        let dedupes = self.telling == Telling::Dedupes && note.provider == "sms-a";
        let wanted = !is_final(note.state) && !note.cancel && !note.newer;
        if !(dedupes && wanted && asked.no_answer && !note.probing && note.used < MAX_ATTEMPTS) {
            return None;
        }
        let closes = asked.first_there.plus(secs(3600)).minus(SEND_TIMEOUT).minus(secs(5));
        let latest = closes.min(note.expires.minus(TRANSIT));
        let earliest = asked.ended.unwrap_or(self.now).plus(secs(5)).max(note.due.min(self.now));
        (earliest.max(self.now) <= latest).then_some(earliest)
    }

    fn can_look_up(&self, note: &Note, asked: &Asked) -> bool {
        let offered = self.telling == Telling::Lookups && note.provider == "sms-a";
        offered && self.now < asked.first_there.plus(secs(48 * 3600))
    }

    /// Where an unknown waits for its next question.
    pub(super) fn ask_next(&mut self, id: NotificationId) {
        let now = self.now;
        let Some(note) = self.notes.get(&id) else { return };
        let (queue, due) = match &note.asked {
            _ if note.probing => (None, now),
            Some(asked) => {
                let soon = now.plus(doubling(secs(1), asked.asks + 1));
                match self.probe_at(note, asked) {
                    _ if self.can_look_up(note, asked) => (Some(("ask", note.provider)), soon),
                    Some(at) if at <= now => (Some(("ask", note.provider)), soon),
                    Some(at) => (Some(("ask", note.provider)), at),
                    None => (None, note.expires),
                }
            }
            None => (None, note.expires),
        };
        let Some(note) = self.note(id) else { return };
        (note.queue, note.due) = (queue, due);
        note.close();
    }

    /// Which look-ups and which probes are handed out: (id, open attempt) and (id, attempt).
    #[expect(clippy::type_complexity, reason = "two lists")]
    pub fn ask(&mut self, provider: &'static str) -> (Vec<(NotificationId, u8)>, Vec<(NotificationId, u8)>) {
        let (mut lookups, mut probes) = (vec![], vec![]);
        for id in self.due(("ask", provider)) {
            self.expire(id);
            let now = self.now;
            let note = &self.notes[&id];
            let Some(asked) = note.asked.clone().filter(|_| note.live) else { continue };
            let lookup = self.can_look_up(note, &asked);
            let probe = self.probe_at(note, &asked).is_some_and(|at| at <= now);
            if !lookup && !probe {
                self.ask_next(id);
                continue;
            }
            let Some(note) = self.note(id) else { continue };
            if let Some(asked) = &mut note.asked {
                asked.asks += 1;
            }
            if lookup {
                note.due = now.plus(SEND_TIMEOUT).plus(secs(30));
                lookups.extend(note.open.map(|open| (id, open)));
            } else {
                note.attempt += 1;
                note.used += 1;
                (note.probing, note.queue, note.due) = (true, None, now);
                probes.push((id, note.attempt));
            }
        }
        (lookups, probes)
    }

    /// A look-up is answered: found, missed, or not readable.
    pub fn answer(&mut self, id: NotificationId, attempt: u8, found: Option<bool>) {
        let now = self.now;
        let Some(note) = self.note(id).filter(|note| note.live && note.open == Some(attempt)) else { return };
        if found == Some(true) {
            return note.is_sent(attempt);
        }
        let mut proven = false;
        if let (Some(false), Some(asked)) = (found, &mut note.asked) {
            let counts = asked.ended.is_some_and(|ended| now >= ended.plus(secs(60)));
            asked.misses += u8::from(counts);
            proven = counts && asked.misses >= 2 && !asked.restored;
        }
        if proven {
            note.is_not_sent(attempt, now);
        } else {
            self.ask_next(id);
        }
    }
}
