//! What every step of the ledger needs, and the derivations that are the same in all of them.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::domain::content::Channel;
use crate::domain::ids::{AttemptNumber, Kind, NotificationId, ProviderMessageId, ProviderName, Reference};
use crate::domain::lifecycle::{Life, Outlook};
use crate::domain::outcome::Reason;
use crate::domain::time::Timestamp;
use crate::provider::{Abilities, DedupeCovers};
use crate::store::rows::{Asked, Leg, Owner, Queue, WorkRow};

use super::Parts;
use super::book::Entry;
use super::command::{Claimed, RoutingKey};

/// A probe must reach the provider while its window is certainly open; so much is allowed for clocks that differ.
const WINDOW_SKEW: Duration = Duration::from_secs(5);

/// How long a question is left alone after it was handed out, beyond the provider's own time-outs.
const ASKING_SLACK: Duration = Duration::from_secs(30);

/// Everything that a ledger is made of, and its bells.
pub(super) struct Core {
    pub parts: Parts,
    pub wakes: Mutex<HashMap<Queue, Arc<Notify>>>,
    claims: AtomicI64,
}

impl Deref for Core {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

/// What to do next about an unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextQuestion {
    Lookup,
    Probe,
    /// A probe becomes possible at this time.
    ProbeAt(Timestamp),
    /// Nothing is left to ask: a receipt or an operator will tell.
    Nothing,
}

impl Core {
    pub fn new(parts: Parts) -> Self {
        Self { parts, wakes: Mutex::default(), claims: AtomicI64::new(0) }
    }

    /// A name to claim under, which no other commit has.
    pub fn next_owner(&self) -> Owner {
        Owner { boot: self.identity.boot().to_string(), claim: self.claims.fetch_add(1, Ordering::Relaxed) }
    }

    /// The octet that commits must leave before this time.
    pub fn commit_by(&self, expires_at: Timestamp, channel: Channel) -> Timestamp {
        expires_at.minus(self.policy.transit.of(channel))
    }

    /// The waiters' bell of one queue.
    pub fn wake(&self, queue: &Queue) -> Arc<Notify> {
        let mut wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        wakes.entry(queue.clone()).or_default().clone()
    }

    /// What may follow for work whose next attempt would go to leg `leg` at `at`.
    pub(super) fn outlook(&self, work: &WorkRow, leg: u8, at: Timestamp, another_address: bool) -> Outlook {
        let channel = work.legs.get(usize::from(leg)).map(|leg| leg.channel);
        let in_time = channel.is_some_and(|channel| at <= self.commit_by(work.expires_at, channel));
        Outlook { in_time, another_address, max_attempts: self.policy.max_attempts }
    }

    pub(super) fn retry_delay(&self, failed: u8, retry_after: Option<Duration>) -> Duration {
        self.policy.retry.delay(failed, retry_after, (self.draw)())
    }

    pub(super) fn ask_delay(&self, asks: u16) -> Duration {
        self.policy.ask.delay(u8::try_from(asks).unwrap_or(u8::MAX), None, (self.draw)())
    }

    /// The first leg from `start` on that a route leads to.
    pub(super) fn routable_leg(
        &self,
        id: NotificationId,
        kind: &Kind,
        legs: &[Leg],
        start: usize,
    ) -> Option<(u8, ProviderName)> {
        let mut rest = legs.iter().enumerate().skip(start);
        rest.find_map(|(i, leg)| Some((u8::try_from(i).ok()?, self.routes.first(&RoutingKey { id, kind, leg })?)))
    }

    /// What the route of the leg that work is at is chosen by.
    pub(super) fn routing_key<'w>(&self, work: &'w WorkRow) -> Option<RoutingKey<'w>> {
        let leg = work.legs.get(usize::from(work.state.leg))?;
        Some(RoutingKey { id: work.id, kind: &work.kind, leg })
    }

    /// Fills the narrow row when a state has become final.
    pub(super) fn finish(&self, entry: &mut Entry, now: Timestamp) {
        let life = entry.life();
        let channel = entry.leg().map(|leg| leg.channel);
        let outcome = &mut entry.outcome;
        outcome.tell(&life);
        outcome.finished_at = outcome.finished_at.or(Some(now));
        if life.attempt > 0 {
            outcome.channel = channel.or(outcome.channel);
            if let Some(work) = &entry.work {
                outcome.provider = Some(work.state.provider.clone());
            }
        }
    }

    /// Keeps the provider's id; indexed only where receipts name a message by nothing else.
    pub(super) fn remember_message(&self, entry: &mut Entry, message_id: &ProviderMessageId) {
        let by_id = entry.provider().and_then(|p| self.routes.abilities(p)).is_some_and(|a| a.receipts_by_id);
        entry.outcome.message_id = Some(message_id.clone());
        entry.outcome.receipt_key = by_id.then(|| message_id.clone());
    }

    /// Nothing can be done or asked about it any more: the sealed values go.
    pub(super) fn is_over(&self, work: &WorkRow) -> bool {
        let life = &work.state.life;
        life.is_over() || (life.state.is_final() && !life.probing && work.state.queue.is_none())
    }

    /// Which question is next for an unknown, in order of strength: a look-up, then a repeat under the provider's dedupe.
    pub(super) fn next_question(&self, work: &WorkRow, now: Timestamp) -> NextQuestion {
        let (Some(asked), Some(abilities)) = (&work.state.asked, self.routes.abilities(&work.state.provider)) else {
            return NextQuestion::Nothing;
        };
        let probe = self.probe_at(work, asked, &abilities, now);
        let misses_prove_nothing = |rules: &crate::provider::LookupRules| {
            !rules.trust_miss && asked.misses >= rules.misses_needed && probe.is_some()
        };
        match &abilities.lookup {
            Some(rules)
                if asked.account == abilities.account
                    && now < asked.first_there_at.plus(rules.window)
                    && !misses_prove_nothing(rules) =>
            {
                NextQuestion::Lookup
            }
            _ => match probe {
                Some(at) if at <= now => NextQuestion::Probe,
                Some(at) => NextQuestion::ProbeAt(at),
                None => NextQuestion::Nothing,
            },
        }
    }

    /// From when on a repeat under the same key is safe; `None` when it is not, or never will be.
    fn probe_at(&self, work: &WorkRow, asked: &Asked, abilities: &Abilities, now: Timestamp) -> Option<Timestamp> {
        let rules = abilities.dedupe?;
        let life = &work.state.life;
        let covered = match rules.covers {
            DedupeCovers::Any => asked.cause != Some(Reason::Restored),
            DedupeCovers::NoAnswer => matches!(
                asked.cause,
                Some(Reason::LostAnswer | Reason::AnswerTimeout | Reason::ProcessDied | Reason::Panicked)
            ),
        };
        let same = asked.account == abilities.account && asked.rev == abilities.rev;
        let wanted = !life.state.is_final() && !life.marks.cancel && !life.marks.supersede;
        let possible = !life.probing && life.used < self.policy.max_attempts && work.sealed_message.is_some();
        if !(covered && same && wanted && possible) {
            return None;
        }
        let channel = work.legs.get(usize::from(work.state.leg))?.channel;
        let closes = asked.first_there_at.plus(rules.window).minus(abilities.send_timeout).minus(WINDOW_SKEW);
        let latest = closes.min(self.commit_by(work.expires_at, channel));
        let earliest = asked.ended_at.unwrap_or(now).plus(rules.settle_after).max(work.state.due_at.min(now));
        (earliest.max(now) <= latest).then_some(earliest)
    }

    /// Where an unknown waits: for its next question, or for nobody.
    pub(super) fn question_place(&self, work: &WorkRow, now: Timestamp, asks: u16) -> (Option<Queue>, Timestamp) {
        let queue = Some(Queue::Ask(work.state.provider.clone()));
        match self.next_question(work, now) {
            NextQuestion::Lookup | NextQuestion::Probe => (queue, now.plus(self.ask_delay(asks))),
            NextQuestion::ProbeAt(at) => (queue, at),
            // The provider may be configured again before the expiry.
            NextQuestion::Nothing
                if !work.state.life.state.is_final() && self.routes.abilities(&work.state.provider).is_none() =>
            {
                (queue, now.plus(self.ask_delay(asks)))
            }
            NextQuestion::Nothing => (None, work.expires_at),
        }
    }

    /// When a question that was handed out may be asked again, should its answer never be stored.
    pub(super) fn asking_until(&self, provider: &ProviderName, now: Timestamp) -> Timestamp {
        let timeout = self.routes.abilities(provider).map_or(Duration::ZERO, |a| a.send_timeout);
        now.plus(timeout).plus(ASKING_SLACK)
    }

    pub(super) fn reference(&self, id: NotificationId, attempt: AttemptNumber) -> Reference {
        self.index.reference(id, attempt)
    }

    /// The attempt that a row of work is at, as a worker needs it.
    pub(super) fn claimed(&self, work: &WorkRow, probe: bool) -> Option<Claimed> {
        let leg = *work.legs.get(usize::from(work.state.leg))?;
        let asked = work.state.asked.as_ref()?;
        Some(Claimed {
            id: work.id,
            tenant: work.tenant.clone(),
            event_id: work.event_id.clone(),
            attempt: work.state.life.attempt,
            provider: work.state.provider.clone(),
            leg_index: work.state.leg,
            leg,
            reference: self.reference(work.id, asked.attempt),
            dedupe_key: self.index.dedupe_key(&work.tenant, &work.event_id, &work.state.provider, leg.address),
            admitted_at: work.created_at,
            expires_at: work.expires_at,
            commit_by: self.commit_by(work.expires_at, leg.channel),
            probe,
            sealed_to: work.sealed_to.clone(),
            sealed_message: work.sealed_message.clone()?,
        })
    }

    /// What a new attempt at the present provider has to be remembered by.
    pub(super) fn asked_for_attempt(&self, work: &WorkRow, life: &Life, now: Timestamp) -> Option<Asked> {
        let abilities = self.routes.abilities(&work.state.provider)?;
        let before = work.state.asked.as_ref();
        Some(Asked {
            attempt: if abilities.identical_body { 0 } else { life.attempt },
            account: abilities.account,
            rev: abilities.rev,
            first_there_at: before.map_or(now, |asked| asked.first_there_at),
            ended_at: None,
            cause: None,
            misses: 0,
            asks: 0,
        })
    }
}
