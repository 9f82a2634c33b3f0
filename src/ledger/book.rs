//! The rows that one transaction works on, and the only way to change them: a fact goes through the lifecycle, and what
//! follows (queue, wiping, log) is derived from the step. Everything is written at once at the end.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::domain::audit::{Actor, Record, Source, What};
use crate::domain::delivery::Delivery;
use crate::domain::ids::{AttemptNumber, EventId, NotificationId, ProviderMessageId, ProviderName, Tenant, Ticket};
use crate::domain::lifecycle::{Fact, Illegal, Life, Marks, Outlook, Sent, State, step};
use crate::domain::outcome::{OutcomeClass, Reason};
use crate::domain::time::Timestamp;
use crate::store::rows::{
    Changes, Leg, NotificationOutcome, NotificationRow, NotificationUpdate, Owner, Queue, WorkRow, WorkState,
    WorkUpdate,
};
use crate::store::{StoreError, Transaction};

use super::core::Core;

/// How the store has the work of an entry.
enum Stored {
    /// Not yet, or there is none.
    Not,
    /// With this state and attempt, which it must still have when it is written.
    As(State, AttemptNumber),
}

/// One notification in this transaction.
pub(super) struct Entry {
    pub id: NotificationId,
    pub tenant: Tenant,
    pub event_id: EventId,
    /// Its work, while there is any.
    pub work: Option<WorkRow>,
    /// What its narrow row says.
    pub outcome: NotificationOutcome,
    stored: Stored,
    work_changed: bool,
    outcome_changed: bool,
}

/// What the log should tell of a fact besides the states.
#[derive(Clone, Debug)]
pub(super) struct Telling {
    pub what: What,
    pub actor: Actor,
    pub attempt: Option<AttemptNumber>,
    pub outcome: Option<OutcomeClass>,
    pub reason: Option<Reason>,
    pub source: Option<Source>,
    pub message_id: Option<ProviderMessageId>,
    pub ticket: Option<Ticket>,
}

impl Telling {
    pub fn new(what: What, actor: Actor) -> Self {
        Self { what, actor, attempt: None, outcome: None, reason: None, source: None, message_id: None, ticket: None }
    }

    pub fn because(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    pub fn of_attempt(self, attempt: AttemptNumber) -> Self {
        Self { attempt: Some(attempt), ..self }
    }

    pub fn by_source(self, source: Source) -> Self {
        Self { source: Some(source), ..self }
    }
}

impl Entry {
    /// Work that was read for this transaction. Its narrow row says nothing yet unless the state is final, and is then
    /// read by [`Book::load`].
    fn of_work(work: WorkRow) -> Self {
        Self {
            id: work.id,
            tenant: work.tenant.clone(),
            event_id: work.event_id.clone(),
            stored: Stored::As(work.state.life.state, work.state.life.attempt),
            work: Some(work),
            outcome: NotificationOutcome::NEW,
            work_changed: false,
            outcome_changed: false,
        }
    }

    /// What is known of its life.
    pub fn life(&self) -> Life {
        match &self.work {
            Some(work) => work.state.life,
            None => Life {
                state: self.outcome.state,
                sent: self.outcome.sent,
                attempt: self.outcome.attempt,
                used: 0,
                open: self.outcome.open_attempt,
                sent_attempt: self.outcome.sent_attempt,
                probing: false,
                marks: Marks::default(),
            },
        }
    }

    /// The address that is tried or was tried last.
    pub fn leg(&self) -> Option<&Leg> {
        self.work.as_ref().and_then(|w| w.legs.get(usize::from(w.state.leg)))
    }

    /// The provider that is tried or was tried last.
    pub fn provider(&self) -> Option<&ProviderName> {
        self.work.as_ref().map(|w| &w.state.provider).or(self.outcome.provider.as_ref())
    }

    fn change_work(&mut self) -> Option<&mut WorkState> {
        self.work_changed = true;
        self.work.as_mut().map(|w| &mut w.state)
    }

    /// What receipts add up to.
    pub fn delivery(&self) -> Delivery {
        self.channel().map_or(Delivery::None, |channel| self.outcome.delivery.verdict(channel))
    }

    fn channel(&self) -> Option<crate::domain::content::Channel> {
        self.leg().map(|leg| leg.channel).or(self.outcome.channel)
    }
}

/// All entries of one transaction, in the order of their ids, and the records to append.
pub(super) struct Book<'a> {
    core: &'a Core,
    pub now: Timestamp,
    /// Who claims in it.
    pub owner: Owner,
    entries: BTreeMap<NotificationId, Entry>,
    records: Vec<Record>,
    /// Queues that got work, to be woken after the commit.
    pub woken: HashSet<Queue>,
    /// Messages that a provider took in this transaction, for receipts that came before.
    pub taken: BTreeSet<(ProviderName, ProviderMessageId, NotificationId)>,
    pub contradictions: u64,
    /// Something was written; a commit of nothing says nothing about the store.
    pub written: bool,
}

impl<'a> Book<'a> {
    pub fn new(core: &'a Core, now: Timestamp, owner: Owner) -> Self {
        Self {
            core,
            now,
            owner,
            entries: BTreeMap::new(),
            records: vec![],
            woken: HashSet::new(),
            taken: BTreeSet::new(),
            contradictions: 0,
            written: false,
        }
    }

    /// Reads what is not here yet: work, and the narrow row of what has none or is final.
    pub async fn load(&mut self, tx: &mut dyn Transaction, ids: &BTreeSet<NotificationId>) -> Result<(), StoreError> {
        let missing: Vec<_> = ids.iter().copied().filter(|id| !self.entries.contains_key(id)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let work = tx.work(&missing).await?;
        let found: BTreeSet<_> = work.iter().map(|w| w.id).collect();
        let gone = missing.into_iter().filter(|id| !found.contains(id)).collect();
        self.adopt_all(tx, work).await?;
        self.load_narrow(tx, gone).await
    }

    /// Takes work that a primitive has read and locked, with the narrow row of what is final.
    pub async fn adopt_all(&mut self, tx: &mut dyn Transaction, work: Vec<WorkRow>) -> Result<(), StoreError> {
        let is_final = |w: &&WorkRow| w.state.life.state.is_final() && !self.entries.contains_key(&w.id);
        let narrow = work.iter().filter(is_final).map(|w| w.id).collect();
        for work in work {
            self.adopt(work);
        }
        self.load_narrow(tx, narrow).await
    }

    async fn load_narrow(&mut self, tx: &mut dyn Transaction, ids: Vec<NotificationId>) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        for row in tx.notifications(&ids).await? {
            let entry = self.entries.entry(row.id).or_insert_with(|| Entry {
                id: row.id,
                tenant: row.tenant,
                event_id: row.event_id,
                work: None,
                outcome: NotificationOutcome::NEW,
                stored: Stored::Not,
                work_changed: false,
                outcome_changed: false,
            });
            entry.outcome = row.outcome;
        }
        Ok(())
    }

    /// Takes work that a primitive has read and locked.
    pub fn adopt(&mut self, work: WorkRow) {
        self.entries.entry(work.id).or_insert_with(|| Entry::of_work(work));
    }

    /// Takes a notification that this transaction inserts: with its work, or with the outcome that it has already.
    pub fn admit(&mut self, row: &NotificationRow, work: Result<WorkRow, NotificationOutcome>) {
        let (work, outcome) = work.map_or_else(|outcome| (None, Some(outcome)), |work| (Some(work), None));
        let entry = Entry {
            id: row.id,
            tenant: row.tenant.clone(),
            event_id: row.event_id.clone(),
            work,
            outcome_changed: outcome.is_some(),
            outcome: outcome.unwrap_or(NotificationOutcome::NEW),
            stored: Stored::Not,
            work_changed: false,
        };
        self.entries.insert(row.id, entry);
    }

    /// What of the work here is due in a queue, the longest due first. A row that was read as due may not be so any more.
    pub fn due(&self, queue: &Queue, limit: u32) -> Vec<NotificationId> {
        let work = self.entries.values().filter_map(|entry| entry.work.as_ref());
        let due = work.filter(|work| work.state.queue.as_ref() == Some(queue) && work.state.due_at <= self.now);
        let mut due: Vec<_> = due.map(|work| (work.state.due_at, work.id)).collect();
        due.sort();
        due.into_iter().take(limit as usize).map(|(_, id)| id).collect()
    }

    pub fn get(&self, id: NotificationId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    /// Live columns to change.
    pub fn change(&mut self, id: NotificationId) -> Option<&mut WorkState> {
        self.entries.get_mut(&id).and_then(Entry::change_work)
    }

    /// Judges a fact and derives what follows. `Err` changes nothing.
    pub fn apply(&mut self, id: NotificationId, fact: Fact, outlook: Outlook, how: Telling) -> Result<State, Illegal> {
        let Some(entry) = self.entries.get_mut(&id) else {
            return Err(Illegal { state: State::Failed, fact });
        };
        let before = entry.life();
        let step = step(&before, fact, outlook)?;
        let after = step.life;
        if let Some(work) = entry.change_work() {
            work.life = after;
        } else {
            entry.outcome.tell(&after);
            entry.outcome_changed = true;
        }
        if after.state.is_final() {
            self.core.finish(entry, self.now);
            entry.outcome_changed = true;
        }
        if let (true, Some(message_id), Some(provider)) =
            (after.sent == Sent::Yes, &how.message_id, entry.provider().cloned())
        {
            self.taken.insert((provider, message_id.clone(), id));
            if entry.outcome.message_id.is_none() {
                self.core.remember_message(entry, message_id);
                entry.outcome_changed = true;
            }
        }
        self.tell_entry(id, how.clone(), Some((before.state, after.state)));
        if step.contradicted {
            self.contradictions += 1;
            self.tell_entry(id, Telling { what: What::Contradicted, ..how }, None);
        }
        Ok(after.state)
    }

    /// Adds one receipt's word on delivery; says whether it changed what is known.
    pub fn deliver(
        &mut self,
        id: NotificationId,
        status: crate::domain::receipt::ReceiptStatus,
        part: crate::domain::receipt::Part,
        how: Telling,
    ) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        let facts = entry.outcome.delivery.with(status, part);
        if facts == entry.outcome.delivery {
            return false;
        }
        entry.outcome.delivery = facts;
        entry.outcome_changed = true;
        self.tell_entry(id, how, None);
        true
    }

    /// Sets where the entry's work waits.
    pub fn place(&mut self, id: NotificationId, queue: Option<Queue>, due_at: Timestamp) {
        let Some(work) = self.change(id) else { return };
        work.queue.clone_from(&queue);
        work.due_at = due_at;
        if let Some(queue) = queue {
            self.woken.insert(queue);
        }
    }

    /// Lets the entry's work wait where it is, and wakes nobody.
    pub fn put_back(&mut self, id: NotificationId, due_at: Timestamp) {
        if let Some(work) = self.change(id) {
            work.due_at = due_at;
        }
    }

    /// Appends a record about an entry.
    pub fn tell_entry(&mut self, id: NotificationId, how: Telling, states: Option<(State, State)>) {
        let Some(entry) = self.entries.get(&id) else { return };
        let mut record = Record::new(self.now, entry.tenant.clone(), how.what, how.actor);
        record.notification = Some(id);
        record.event_id = Some(entry.event_id.clone());
        record.from = states.map(|s| s.0);
        record.to = states.map(|s| s.1);
        record.sent = Some(entry.life().sent);
        record.delivery = Some(entry.delivery()).filter(|d| *d != Delivery::None);
        record.attempt = how.attempt;
        record.provider = entry.provider().filter(|_| how.attempt.is_some()).cloned();
        record.message_id = how.message_id;
        record.outcome = how.outcome;
        record.reason = how.reason;
        record.source = how.source;
        record.address = entry.leg().map(|leg| leg.address);
        record.ticket = how.ticket;
        self.records.push(record);
    }

    /// Appends a record that stands for itself.
    pub fn tell(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Writes all that changed, and the log of it, in one step: nothing reads it before the commit.
    pub async fn close(&mut self, tx: &mut dyn Transaction) -> Result<(), StoreError> {
        let mut changes = Changes { records: std::mem::take(&mut self.records), ..Changes::default() };
        for entry in std::mem::take(&mut self.entries).into_values() {
            if entry.outcome_changed {
                changes.outcomes.push(NotificationUpdate { id: entry.id, outcome: entry.outcome });
            }
            let Some(work) = entry.work else { continue };
            match (entry.stored, self.core.is_over(&work)) {
                (Stored::Not, false) => changes.new.push(work),
                (Stored::As(..), true) if entry.work_changed => changes.over.push(entry.id),
                (Stored::As(was_state, was_attempt), false) if entry.work_changed => changes.changed.push(WorkUpdate {
                    id: entry.id,
                    was_state,
                    was_attempt,
                    wipe_message: work.state.life.is_past_sending(),
                    state: work.state,
                }),
                _ => {}
            }
        }
        self.written = !changes.is_empty();
        if self.written { tx.write(&changes).await } else { Ok(()) }
    }
}
