//! Admission: events become notifications, each once. The constraints decide, in the transaction that inserts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use zeroize::Zeroizing;

use crate::domain::address::Address;
use crate::domain::audit::{Actor, DaemonPart, Record, What};
use crate::domain::ids::{KeyedHash, NotificationId};
use crate::domain::lifecycle::{Fact, Life, Outlook, State, step};
use crate::domain::outcome::Reason;
use crate::domain::time::Timestamp;
use crate::store::rows::{Known, Leg, NotificationOutcome, NotificationRow, Queue, WorkRow, WorkState};
use crate::store::{StoreError, Transaction};
use crate::vault::{Column, Purpose, UnsealError, random};

use super::book::{Book, Telling};
use super::command::{Accepted, Admission, Claimed, LimitCheck, NewNotification, Opened, Repeat};
use super::core::Core;

/// A judged event with its rows made and its values sealed: what the committer needs, and nothing that is slow to make.
pub(super) struct Prepared {
    pub row: NotificationRow,
    pub work: WorkRow,
    pub repeat: Repeat,
    limits: Vec<LimitCheck>,
    actor: Actor,
}

/// Makes the rows on the caller's thread. `None`: no route leads to any of its addresses.
pub(super) fn prepare(core: &Core, new: NewNotification) -> Option<Prepared> {
    let id = NotificationId::new(new.now, *random());
    let legs: Vec<Leg> = new.to.iter().map(|to| leg_of(core, to)).collect();
    let (leg, provider) = core.routable_leg(id, &new.kind, &legs, 0)?;
    let mask = new.to.iter().map(Address::mask).collect::<Vec<_>>().join(",");
    let seal = |column, plain: serde_json::Result<Vec<u8>>| {
        plain.ok().map(|plain| core.vault.seal(column, &new.tenant, id, &Zeroizing::new(plain)))
    };
    let sealed_to = seal(Column::To, serde_json::to_vec(&new.to))?;
    let sealed_message = seal(Column::Message, serde_json::to_vec(&new.content))?;
    let row = NotificationRow {
        id,
        tenant: new.tenant.clone(),
        key: new.repeat.key,
        event: new.repeat.event,
        event_id: new.event_id.clone(),
        kind: new.kind.clone(),
        mask,
        fingerprint: new.repeat.fingerprint,
        created_at: new.now,
        expires_at: new.expires_at,
        outcome: NotificationOutcome::NEW,
    };
    let state = WorkState {
        life: Life::NEW,
        queue: Some(Queue::Send(provider.clone())),
        due_at: new.now,
        leg,
        provider,
        tries_here: 0,
        owner: None,
        asked: None,
    };
    let work = WorkRow {
        id,
        tenant: new.tenant,
        event_id: new.event_id,
        kind: new.kind,
        created_at: new.now,
        state,
        expires_at: new.expires_at,
        ordered_at: new.occurred_at.unwrap_or(new.now),
        user: new.user,
        legs,
        sealed_to,
        sealed_message: Some(sealed_message),
    };
    Some(Prepared { row, work, repeat: new.repeat, limits: new.limits, actor: new.actor })
}

fn leg_of(core: &Core, to: &Address) -> Leg {
    let canonical = Zeroizing::new(to.canonical());
    Leg {
        channel: to.channel(),
        country: to.country(),
        address: core.index.hash(Purpose::Address, &[canonical.as_bytes()]),
    }
}

/// Opens the sealed values of a claim.
pub(super) fn open(core: &Core, claimed: &Claimed) -> Result<Opened, UnsealError> {
    let open = |column, sealed| core.vault.open(column, &claimed.tenant, claimed.id, sealed);
    let to = open(Column::To, &claimed.sealed_to)?;
    let to: Vec<Address> = serde_json::from_slice(&to).map_err(|_| UnsealError::Broken)?;
    let content = open(Column::Message, &claimed.sealed_message)?;
    let content = serde_json::from_slice(&content).map_err(|_| UnsealError::Broken)?;
    let to = to.into_iter().nth(claimed.leg_index.into()).ok_or(UnsealError::Broken)?;
    Ok(Opened { to, content })
}

/// The address that a row of work is at, for a look-up that needs it.
pub(super) fn open_address(core: &Core, work: &WorkRow) -> Option<Address> {
    let to = core.vault.open(Column::To, &work.tenant, work.id, &work.sealed_to).ok()?;
    let to: Vec<Address> = serde_json::from_slice(&to).ok()?;
    to.into_iter().nth(work.state.leg.into())
}

/// What the answer is made of, from the first request's row.
pub(super) fn first_answer(known: &Known) -> Accepted {
    Accepted { id: known.id, event_id: known.event_id.clone(), expires_at: known.expires_at }
}

/// Judges a repeat against the rows that hold its key or event: the key first.
pub(super) fn judge_repeat(known: &[Known], repeat: &Repeat) -> Option<Admission> {
    let mine = |k: &&Known| k.tenant == repeat.tenant;
    if let Some(first) = known.iter().filter(mine).find(|k| k.key == repeat.key) {
        let same = first.fingerprint == repeat.fingerprint;
        return Some(if same { Admission::Replayed(first_answer(first)) } else { Admission::KeyReused });
    }
    let first = known.iter().filter(mine).find(|k| k.event == repeat.event)?;
    Some(Admission::EventTaken(first_answer(first)))
}

/// Admits a batch; the answers are in its order.
pub(super) async fn admit(
    core: &Core,
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
    batch: &[&Prepared],
) -> Result<Vec<Admission>, StoreError> {
    let rows: Vec<NotificationRow> = batch.iter().map(|p| p.row.clone()).collect();
    let mut inserted = tx.insert_notifications(&rows).await?;
    let limited = enforce_limits(book.now, tx, batch, &inserted).await?;
    if !limited.is_empty() {
        let ids: Vec<_> = limited.keys().copied().collect();
        tx.delete_notifications(&ids).await?;
        inserted.retain(|id| !limited.contains_key(id));
    }
    let repeats: Vec<&Prepared> =
        batch.iter().copied().filter(|p| !inserted.contains(&p.row.id) && !limited.contains_key(&p.row.id)).collect();
    let wanted: Vec<_> = repeats.iter().map(|p| (p.repeat.tenant.clone(), p.repeat.key, p.repeat.event)).collect();
    let known = if wanted.is_empty() { vec![] } else { tx.known(&wanted).await? };
    let fresh: Vec<&Prepared> = batch.iter().copied().filter(|p| inserted.contains(&p.row.id)).collect();
    store_fresh(core, book, tx, &fresh).await?;
    Ok(batch
        .iter()
        .map(|p| {
            if inserted.contains(&p.row.id) {
                let row = &p.row;
                let event_id = row.event_id.clone();
                return Admission::New(Accepted { id: row.id, event_id, expires_at: row.expires_at });
            }
            // A repeat, in one batch, of an event that a limit has just turned away shares its answer.
            let same = |q: &&&Prepared| {
                q.repeat.tenant == p.repeat.tenant && (q.repeat.key == p.repeat.key || q.repeat.event == p.repeat.event)
            };
            let turned_away = || batch.iter().filter(same).find_map(|q| limited.get(&q.row.id)).cloned();
            limited.get(&p.row.id).cloned().or_else(|| judge_repeat(&known, &p.repeat)).or_else(turned_away).unwrap_or(
                Admission::Limited { scope: super::command::LimitScope::Tenant, retry_after: Duration::from_secs(1) },
            )
        })
        .collect())
}

/// Checks the limits of new events (GCRA: a theoretical arrival time per scope, moved on by each event that passes).
/// Returns those that did not pass.
async fn enforce_limits(
    now: Timestamp,
    tx: &mut dyn Transaction,
    batch: &[&Prepared],
    inserted: &HashSet<NotificationId>,
) -> Result<BTreeMap<NotificationId, Admission>, StoreError> {
    let fresh = || batch.iter().filter(|p| inserted.contains(&p.row.id));
    let scopes: HashSet<KeyedHash> = fresh().flat_map(|p| p.limits.iter().map(|l| l.key)).collect();
    if scopes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let scopes: Vec<_> = scopes.into_iter().collect();
    let mut arrivals: HashMap<KeyedHash, Timestamp> = tx.quotas(&scopes).await?.into_iter().collect();
    let mut refused = BTreeMap::new();
    let mut moved = BTreeMap::new();
    for p in fresh() {
        let next: Vec<_> = p.limits.iter().map(|limit| (limit, arrive(limit, arrivals.get(&limit.key), now))).collect();
        if let Some((limit, Err(retry_after))) = next.iter().find(|(_, arrival)| arrival.is_err()) {
            refused.insert(p.row.id, Admission::Limited { scope: limit.scope, retry_after: *retry_after });
            continue;
        }
        for (limit, arrival) in next {
            if let Ok(at) = arrival {
                arrivals.insert(limit.key, at);
                moved.insert(limit.key, at);
            }
        }
    }
    if !moved.is_empty() {
        tx.save_quotas(&moved.into_iter().collect::<Vec<_>>()).await?;
    }
    Ok(refused)
}

/// One event under one limit: the new theoretical arrival time, or how long to wait.
fn arrive(limit: &LimitCheck, arrival: Option<&Timestamp>, now: Timestamp) -> Result<Timestamp, Duration> {
    let step = limit.per / limit.burst.max(1);
    let arrival = arrival.copied().unwrap_or(now).max(now);
    let earliest = arrival.plus(step).minus(limit.per);
    if earliest > now { Err(earliest.since(now)) } else { Ok(arrival.plus(step)) }
}

/// Stores the rows of new events; of each user's events only the newest goes on.
async fn store_fresh(
    core: &Core,
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
    fresh: &[&Prepared],
) -> Result<(), StoreError> {
    if fresh.is_empty() {
        return Ok(());
    }
    let users: HashSet<KeyedHash> = fresh.iter().map(|p| p.work.user).collect();
    let live = tx.work_of_users(&users.into_iter().collect::<Vec<_>>()).await?;
    let mut newest: HashMap<KeyedHash, (Timestamp, NotificationId)> = HashMap::new();
    let order = live.iter().map(|(user, id, at)| (*user, (*at, *id)));
    for (user, at) in order.chain(fresh.iter().map(|p| (p.work.user, (p.work.ordered_at, p.work.id)))) {
        newest.entry(user).and_modify(|best| *best = at.max(*best)).or_insert(at);
    }
    let is_newest = |user: &KeyedHash, id: NotificationId| newest.get(user).is_some_and(|best| best.1 == id);
    for p in fresh {
        book.tell(accepted_record(p, book.now));
        if is_newest(&p.work.user, p.work.id) {
            book.woken.extend(p.work.state.queue.clone());
            book.admit(&p.row, Ok(p.work.clone()));
        } else {
            end_overtaken(book, p);
        }
    }
    let older = live.into_iter().filter(|(user, id, _)| !is_newest(user, *id)).map(|(_, id, _)| id).collect();
    supersede(core, book, tx, older).await
}

fn accepted_record(p: &Prepared, now: Timestamp) -> Record {
    let mut record = Record::new(now, p.row.tenant.clone(), What::Accepted, p.actor.clone());
    record.notification = Some(p.row.id);
    record.event_id = Some(p.row.event_id.clone());
    record.to = Some(State::Accepted);
    record.sent = Some(Life::NEW.sent);
    record.address = p.work.legs.first().map(|leg| leg.address);
    record
}

/// An event that a newer one had overtaken before it came: it is acknowledged, and over.
fn end_overtaken(book: &mut Book<'_>, p: &Prepared) {
    let outlook = Outlook { in_time: true, another_address: false, max_attempts: 1 };
    let life = step(&Life::NEW, Fact::NewerEvent, outlook).map_or(Life::NEW, |step| step.life);
    let mut record = accepted_record(p, book.now);
    record.what = What::NewerEvent;
    record.actor = Actor::Daemon(DaemonPart::Admission);
    record.from = Some(State::Accepted);
    record.to = Some(life.state);
    record.reason = Some(Reason::NewerEvent);
    book.tell(record);
    let outcome = NotificationOutcome { state: life.state, finished_at: Some(book.now), ..NotificationOutcome::NEW };
    book.admit(&p.row, Err(outcome));
}

async fn supersede(
    core: &Core,
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
    older: Vec<NotificationId>,
) -> Result<(), StoreError> {
    book.load(tx, &older.iter().copied().collect()).await?;
    for id in older {
        let Some(work) = book.get(id).and_then(|e| e.work.as_ref()) else { continue };
        if work.state.life.marks.supersede || work.state.life.state.is_final() {
            continue;
        }
        let outlook = core.outlook(work, work.state.leg, book.now, false);
        let how = Telling::new(What::NewerEvent, Actor::Daemon(DaemonPart::Admission)).because(Reason::NewerEvent);
        // Live work has an edge for a newer event in every state that is not final.
        let _ended = book.apply(id, Fact::NewerEvent, outlook, how);
    }
    Ok(())
}
