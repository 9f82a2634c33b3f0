//! The rules of a notification's life once more, as a plain map and in plain words: what the ledger must say after every
//! command. It shares no code with what it judges, but for the names of things.

mod questions;

use std::collections::BTreeMap;
use std::time::Duration;

use sendonce::domain::ids::NotificationId;
use sendonce::domain::time::Timestamp;

/// What sms-a can tell; the other providers can tell nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    Nothing,
    Lookups,
    Dedupes,
}

pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const TRANSIT: Duration = secs(10);
const SEND_TIMEOUT: Duration = secs(10);
const MAX_ATTEMPTS: u8 = 4;

/// What is remembered for questions about the present attempt.
#[derive(Clone, Debug)]
struct Asked {
    first_there: Timestamp,
    ended: Option<Timestamp>,
    no_answer: bool,
    restored: bool,
    misses: u8,
    asks: u32,
}

/// One notification.
#[derive(Clone, Debug)]
pub struct Note {
    user: u8,
    order: (Timestamp, NotificationId),
    admitted: Timestamp,
    expires: Timestamp,
    channels: Vec<&'static str>,
    leg: usize,
    /// There is still something to do or to ask.
    pub live: bool,
    provider: &'static str,
    state: &'static str,
    sent: &'static str,
    attempt: u8,
    used: u8,
    tries: u8,
    pub open: Option<u8>,
    proven: Option<u8>,
    probing: bool,
    cancel: bool,
    newer: bool,
    queue: Option<(&'static str, &'static str)>,
    due: Timestamp,
    asked: Option<Asked>,
    delivered: bool,
    undelivered: bool,
}

/// What can be seen of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub state: &'static str,
    pub sent: &'static str,
    pub open: Option<u8>,
    pub proven: Option<u8>,
    pub delivered: (bool, bool),
    pub work: Option<WorkView>,
}

/// What can be seen of its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkView {
    pub attempt: u8,
    pub used: u8,
    pub tries: u8,
    pub leg: usize,
    pub provider: String,
    pub probing: bool,
    pub marks: (bool, bool),
    /// Whose turn it waits for, and from when on.
    pub next: Option<(String, Timestamp)>,
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Accepted,
    Refused,
    Account,
    NotSent,
    TooLate,
    PastDeadline,
    Lost,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Reference {
    pub telling: Telling,
    pub now: Timestamp,
    pub notes: BTreeMap<NotificationId, Note>,
}

fn doubling(first: Duration, n: u32) -> Duration {
    (first * 2_u32.pow(n.clamp(1, 16) - 1)).min(secs(60))
}

fn is_final(state: &str) -> bool {
    !["accepted", "retry_wait", "dispatching", "dispatch_unknown"].contains(&state)
}

fn is_waiting(state: &str) -> bool {
    ["accepted", "retry_wait"].contains(&state)
}

impl Note {
    pub fn view(&self) -> View {
        let next = self.queue.map(|(what, provider)| (format!("{what}:{provider}"), self.due));
        let work = self.live.then(|| WorkView {
            attempt: self.attempt,
            used: self.used,
            tries: self.tries,
            leg: self.leg,
            provider: self.provider.to_owned(),
            probing: self.probing,
            marks: (self.cancel, self.newer),
            next,
        });
        let (state, sent, open, proven) = (self.state, self.sent, self.open, self.proven);
        View { state, sent, open, proven, delivered: (self.delivered, self.undelivered), work }
    }

    fn in_time(&self, at: Timestamp) -> bool {
        at <= self.expires.minus(TRANSIT)
    }

    fn end(&mut self, state: &'static str) {
        self.state = state;
        self.close();
    }

    /// What is over has no work any more.
    fn close(&mut self) {
        let nothing_left = self.open.is_none() || self.queue.is_none();
        if is_final(self.state) && !self.probing && nothing_left {
            self.live = false;
        }
    }

    /// It was certainly not sent: another attempt follows, unless something ends it here.
    fn again(&mut self, leg: usize, provider: &'static str, at: Timestamp, tries: u8) {
        self.sent = "no";
        let in_time = self.in_time(at);
        let end = match () {
            () if self.cancel => Some("cancelled"),
            () if self.newer => Some("superseded"),
            () if self.used >= MAX_ATTEMPTS => Some("failed"),
            () if !in_time => Some("expired"),
            () => None,
        };
        if let Some(end) = end {
            return self.end(end);
        }
        if (leg, provider) != (self.leg, self.provider) {
            self.asked = None;
        }
        (self.leg, self.provider, self.tries) = (leg, provider, tries);
        (self.state, self.queue, self.due) = ("retry_wait", Some(("send", provider)), at);
    }

    fn is_sent(&mut self, attempt: u8) {
        let attempt = if attempt > 0 { attempt } else { self.proven.or(self.open).unwrap_or(self.attempt) };
        self.sent = "yes";
        self.open = None;
        self.proven = self.proven.or(Some(attempt));
        self.attempt = self.attempt.max(attempt);
        self.queue = None;
        self.end(if is_final(self.state) { self.state } else { "dispatched" });
    }

    fn is_not_sent(&mut self, attempt: u8, now: Timestamp) {
        if self.open != Some(attempt) {
            return;
        }
        if self.probing {
            self.open = Some(self.attempt);
        } else if self.state == "dispatch_unknown" {
            self.open = None;
            self.again(self.leg, self.provider, now, 0);
        } else {
            self.open = None;
            self.sent = if self.sent == "yes" { "yes" } else { "no" };
            self.queue = None;
            self.close();
        }
    }
}

impl Reference {
    pub fn new(telling: Telling, now: Timestamp) -> Self {
        Self { telling, now, notes: BTreeMap::new() }
    }

    /// The note, where there is one and it is of `id`.
    fn note(&mut self, id: NotificationId) -> Option<&mut Note> {
        self.notes.get_mut(&id)
    }

    pub fn admit(&mut self, id: NotificationId, user: u8, channels: &[&'static str], order: Timestamp, life: Duration) {
        let now = self.now;
        let provider = if channels[0] == "sms" { "sms-a" } else { "mail" };
        let mut note = Note {
            user,
            order: (order, id),
            admitted: now,
            expires: now.plus(life),
            channels: channels.to_vec(),
            leg: 0,
            live: true,
            provider,
            state: "accepted",
            sent: "no",
            attempt: 0,
            used: 0,
            tries: 0,
            open: None,
            proven: None,
            probing: false,
            cancel: false,
            newer: false,
            queue: Some(("send", provider)),
            due: now,
            asked: None,
            delivered: false,
            undelivered: false,
        };
        if self.has_newer(user, note.order) {
            note.end("superseded");
        } else {
            for older in self.notes.values_mut().filter(|n| n.live && n.user == user && !is_final(n.state)) {
                if is_waiting(older.state) {
                    older.end("superseded");
                } else {
                    older.newer = true;
                }
            }
        }
        self.notes.insert(id, note);
    }

    fn has_newer(&self, user: u8, order: (Timestamp, NotificationId)) -> bool {
        self.notes.values().any(|n| n.live && n.user == user && n.order > order)
    }

    fn due(&self, queue: (&str, &str)) -> Vec<NotificationId> {
        let is_due = |note: &Note| note.live && note.queue == Some(queue) && note.due <= self.now;
        self.notes.iter().filter(|(_, note)| is_due(note)).map(|(id, _)| *id).collect()
    }

    /// Which are handed to workers, and as which attempts.
    pub fn claim(&mut self, provider: &'static str) -> Vec<(NotificationId, u8)> {
        let now = self.now;
        let due = self.due(("send", provider));
        let overtaken: Vec<bool> =
            due.iter().map(|id| self.has_newer(self.notes[id].user, self.notes[id].order)).collect();
        let mut claims = vec![];
        for (id, overtaken) in due.into_iter().zip(overtaken) {
            let Some(note) = self.note(id) else { continue };
            if overtaken {
                note.end("superseded");
            } else if !note.in_time(now) {
                note.end("expired");
            } else {
                note.attempt += 1;
                note.used += 1;
                (note.state, note.sent, note.queue) = ("dispatching", "unknown", None);
                note.asked = Some(Asked {
                    first_there: note.asked.as_ref().map_or(now, |asked| asked.first_there),
                    ended: None,
                    no_answer: false,
                    restored: false,
                    misses: 0,
                    asks: 0,
                });
                claims.push((id, note.attempt));
            }
        }
        claims
    }

    /// A worker says how its attempt or its probe ended, in time or not.
    pub fn settle(&mut self, id: NotificationId, attempt: u8, end: End) {
        let now = self.now;
        let Some(note) = self.note(id) else { return };
        let mine = note.live && note.attempt == attempt;
        if mine && note.probing {
            self.end_probe(id, end);
        } else if mine && note.state == "dispatching" {
            self.end_attempt(id, end);
        } else {
            match end {
                End::Lost => {}
                End::Accepted => note.is_sent(attempt),
                // It was repeated since, and of that this says nothing.
                _ if note.live && note.open == Some(attempt) && note.attempt > attempt => {}
                _ => note.is_not_sent(attempt, now),
            }
        }
    }

    fn end_attempt(&mut self, id: NotificationId, end: End) {
        let now = self.now;
        let Some(note) = self.note(id) else { return };
        let (leg, here, tries) = (note.leg, note.provider, note.tries);
        let elsewhere = (here == "sms-a").then_some("sms-b");
        let wait = now.plus(doubling(secs(2), u32::from(tries) + 1));
        match end {
            End::Accepted => note.is_sent(note.attempt),
            End::Lost => self.lost(id, true, false),
            End::Refused if leg + 1 < note.channels.len() => note.again(leg + 1, "mail", now, 0),
            End::Refused => {
                note.sent = "no";
                note.end("failed");
            }
            End::Account => {
                note.used -= 1;
                match elsewhere {
                    Some(other) => note.again(leg, other, now, 0),
                    None => note.again(leg, here, wait, tries + 1),
                }
            }
            End::NotSent => match elsewhere {
                Some(other) if tries + 1 >= 2 || !note.in_time(wait) => note.again(leg, other, now, 0),
                _ => note.again(leg, here, wait, tries + 1),
            },
            End::TooLate => {
                note.used -= 1;
                note.again(leg, here, now.plus(secs(1)), tries);
            }
            End::PastDeadline => {
                note.used -= 1;
                note.again(leg, here, note.expires, tries);
            }
        }
    }

    /// Nobody knows how the attempt ended.
    fn lost(&mut self, id: NotificationId, no_answer: bool, restored: bool) {
        let now = self.now;
        let Some(note) = self.note(id) else { return };
        note.due = now;
        if note.state == "dispatching" {
            (note.state, note.sent, note.open) = ("dispatch_unknown", "unknown", Some(note.attempt));
        }
        if let Some(asked) = &mut note.asked {
            (asked.ended, asked.no_answer, asked.restored) = (Some(now), no_answer, restored);
        }
        self.ask_next(id);
    }

    fn end_probe(&mut self, id: NotificationId, end: End) {
        let now = self.now;
        let Some(note) = self.note(id) else { return };
        let began = !matches!(end, End::TooLate | End::PastDeadline);
        let (open, attempt) = (note.open, note.attempt);
        note.probing = false;
        note.used -= u8::from(!began);
        if let Some(asked) = note.asked.as_mut().filter(|_| began) {
            (asked.ended, asked.misses) = (Some(now), 0);
        }
        match (end, open) {
            (End::Accepted, Some(open)) => note.is_sent(open),
            (End::Accepted, None) if note.proven.is_none() => note.is_sent(attempt),
            (End::Accepted | End::Lost, _) => self.ask_next(id),
            (_, Some(open)) if open == attempt => note.is_not_sent(open, now),
            _ => self.ask_next(id),
        }
    }

    pub fn receipt(&mut self, id: NotificationId, attempt: u8, delivered: bool) {
        let Some(note) = self.note(id) else { return };
        if note.proven.is_none_or(|proven| attempt != 0 && attempt != proven) {
            note.is_sent(attempt);
        }
        note.delivered |= delivered;
        note.undelivered |= !delivered;
    }

    pub fn cancel(&mut self, id: NotificationId) {
        match self.note(id) {
            Some(note) if is_waiting(note.state) => note.end("cancelled"),
            Some(note) if !is_final(note.state) => note.cancel = true,
            _ => {}
        }
    }

    /// An operator's word: sent, not sent, or nobody will know.
    pub fn resolve(&mut self, id: NotificationId, sent: Option<bool>) {
        let now = self.now;
        let Some(note) = self.note(id) else { return };
        let Some(open) = note.open else { return };
        match sent {
            Some(true) => note.is_sent(open),
            Some(false) => note.is_not_sent(open, now),
            None if note.state == "dispatch_unknown" => {
                note.open = None;
                note.end("failed");
            }
            None => {}
        }
    }

    fn expire(&mut self, id: NotificationId) {
        let now = self.now;
        let Some(note) = self.note(id).filter(|note| note.live && now >= note.expires) else { return };
        if is_waiting(note.state) {
            note.end("expired");
        } else if note.state == "dispatch_unknown" {
            note.state = "expired";
            if !note.probing {
                self.ask_next(id);
            }
        }
    }

    pub fn sweep(&mut self) {
        for id in self.notes.keys().copied().collect::<Vec<_>>() {
            self.expire(id);
        }
    }

    /// Another boot takes over what the last one had under way.
    pub fn take_over(&mut self) {
        let now = self.now;
        for id in self.notes.keys().copied().collect::<Vec<_>>() {
            let Some(note) = self.note(id).filter(|note| note.live) else { continue };
            if note.probing {
                note.probing = false;
                if let Some(asked) = &mut note.asked {
                    (asked.ended, asked.misses) = (Some(now), 0);
                }
                self.ask_next(id);
            } else if note.state == "dispatching" {
                self.lost(id, true, false);
            }
        }
    }

    /// Everything that is live may have been sent by the history that a restored copy does not have.
    pub fn restored(&mut self) {
        for id in self.notes.keys().copied().collect::<Vec<_>>() {
            let Some(note) = self.note(id).filter(|note| note.live && !is_final(note.state)) else { continue };
            if note.state != "dispatch_unknown" {
                if is_waiting(note.state) {
                    note.attempt += 1;
                    note.used += 1;
                }
                note.state = "dispatching";
                let first_there = note.admitted;
                let (ended, no_answer, restored) = (None, false, true);
                note.asked = Some(Asked { first_there, ended, no_answer, restored, misses: 0, asks: 0 });
            }
            note.probing = false;
            self.lost(id, false, true);
        }
    }
}
