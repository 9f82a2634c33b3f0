//! Rows of a database as rows of ours. What does not read as what it should be is `Corrupt`, never a default.

use super::StoreError;
use super::callbacks::{Backlog, Callback, Logged};
use super::rows::{
    AccountCounts, AccountFault, Asked, Due, HighWater, Known, Leg, LogRow, NotificationOutcome, NotificationRow,
    Owner, Queue, UnknownRow, WorkCounts, WorkRow, WorkState,
};
use crate::domain::audit::{Actor, DaemonPart, Record, Source, What};
use crate::domain::callback::{Before, Change};
use crate::domain::content::Channel;
use crate::domain::delivery::{Delivery, DeliveryFacts};
use crate::domain::ids::{
    ActorName, BadName, EventId, HookName, KeyedHash, Kind, NotificationId, ProviderMessageId, ProviderName, Tenant,
    Ticket,
};
use crate::domain::lifecycle::{Life, Marks, Sent, State};
use crate::domain::outcome::{OutcomeClass, Reason};
use crate::domain::receipt::{Part, Receipt, ReceiptStatus};
use crate::domain::time::Timestamp;

type Read<T> = Result<T, StoreError>;

/// The columns of one row, by name. The outer `None`: there is no such column, or it is of another type.
pub(super) trait Columns {
    fn integer(&self, column: &str) -> Option<Option<i64>>;
    fn text(&self, column: &str) -> Option<Option<&str>>;
    fn bytes(&self, column: &str) -> Option<Option<&[u8]>>;
}

/// One row, and the table to name when it is corrupt.
pub(super) struct Cells<'r, R>(pub(super) &'static str, pub(super) &'r R);

impl<R: Columns> Cells<'_, R> {
    fn corrupt(&self, column: &'static str) -> StoreError {
        StoreError::Corrupt { table: self.0, column }
    }

    fn need<T>(&self, column: &'static str, value: Option<T>) -> Read<T> {
        value.ok_or(self.corrupt(column))
    }

    /// An integer that fits.
    pub(super) fn int<T: TryFrom<i64>>(&self, column: &'static str) -> Read<T> {
        let value = self.opt_int(column)?;
        self.need(column, value)
    }

    fn opt_int<T: TryFrom<i64>>(&self, column: &'static str) -> Read<Option<T>> {
        let number = self.1.integer(column).ok_or(self.corrupt(column))?;
        number.map(|n| T::try_from(n).map_err(|_| self.corrupt(column))).transpose()
    }

    fn flag(&self, column: &'static str) -> Read<bool> {
        match self.int::<u8>(column)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.corrupt(column)),
        }
    }

    pub(super) fn time(&self, column: &'static str) -> Read<Timestamp> {
        self.int(column).map(Timestamp::from_micros)
    }

    pub(super) fn opt_time(&self, column: &'static str) -> Read<Option<Timestamp>> {
        Ok(self.opt_int(column)?.map(Timestamp::from_micros))
    }

    fn blob<const N: usize>(&self, column: &'static str) -> Read<[u8; N]> {
        let value = self.opt_blob(column)?;
        self.need(column, value)
    }

    fn opt_blob<const N: usize>(&self, column: &'static str) -> Read<Option<[u8; N]>> {
        self.opt_bytes(column)?.map(|bytes| bytes.try_into().map_err(|_| self.corrupt(column))).transpose()
    }

    fn opt_bytes(&self, column: &'static str) -> Read<Option<&[u8]>> {
        self.1.bytes(column).ok_or(self.corrupt(column))
    }

    fn bytes(&self, column: &'static str) -> Read<&[u8]> {
        let value = self.opt_bytes(column)?;
        self.need(column, value)
    }

    pub(super) fn id(&self, column: &'static str) -> Read<NotificationId> {
        self.blob(column).map(NotificationId::from_bytes)
    }

    pub(super) fn hash(&self, column: &'static str) -> Read<KeyedHash> {
        self.blob(column).map(KeyedHash::from_bytes)
    }

    fn opt_text(&self, column: &'static str) -> Read<Option<&str>> {
        self.1.text(column).ok_or(self.corrupt(column))
    }

    pub(super) fn text(&self, column: &'static str) -> Read<&str> {
        let value = self.opt_text(column)?;
        self.need(column, value)
    }

    /// A text that one of our types reads.
    fn read<T>(&self, column: &'static str, parse: impl Fn(&str) -> Option<T>) -> Read<T> {
        let value = self.opt_read(column, parse)?;
        self.need(column, value)
    }

    fn opt_read<T>(&self, column: &'static str, parse: impl Fn(&str) -> Option<T>) -> Read<Option<T>> {
        self.opt_text(column)?.map(|text| parse(text).ok_or(self.corrupt(column))).transpose()
    }
}

/// A parser of names as one that just fails.
fn name<T>(parse: impl Fn(&str) -> Result<T, BadName>) -> impl Fn(&str) -> Option<T> {
    move |text| parse(text).ok()
}

fn channel(code: &str) -> Option<Channel> {
    [Channel::Sms, Channel::Email].into_iter().find(|c| c.code() == code)
}

pub(super) fn notification(row: &impl Columns) -> Read<NotificationRow> {
    let c = Cells("notification", row);
    Ok(NotificationRow {
        id: c.id("id")?,
        tenant: c.read("tenant", name(Tenant::parse))?,
        key: c.hash("key_h")?,
        event: c.hash("event_h")?,
        event_id: c.read("event_id", name(EventId::parse))?,
        kind: c.read("kind", name(Kind::parse))?,
        mask: c.text("mask")?.to_owned(),
        fingerprint: c.blob("fingerprint")?,
        created_at: c.time("created_at")?,
        expires_at: c.time("expires_at")?,
        outcome: NotificationOutcome {
            state: c.read("state", State::from_code)?,
            sent: c.read("sent", Sent::from_code)?,
            attempt: c.int("attempt")?,
            sent_attempt: c.opt_int("sent_attempt")?,
            open_attempt: c.opt_int("open_attempt")?,
            channel: c.opt_read("channel", channel)?,
            delivery: DeliveryFacts {
                delivered: c.int("delivered")?,
                undelivered: c.int("undelivered")?,
                parts: c.int("parts")?,
            },
            provider: c.opt_read("provider", name(ProviderName::parse))?,
            message_id: c.opt_read("message_id", name(ProviderMessageId::parse))?,
            receipt_key: c.opt_read("receipt_key", name(ProviderMessageId::parse))?,
            finished_at: c.opt_time("finished_at")?,
        },
    })
}

pub(super) fn known(row: &impl Columns) -> Read<Known> {
    let c = Cells("notification", row);
    Ok(Known {
        id: c.id("id")?,
        tenant: c.read("tenant", name(Tenant::parse))?,
        key: c.hash("key_h")?,
        event: c.hash("event_h")?,
        event_id: c.read("event_id", name(EventId::parse))?,
        fingerprint: c.blob("fingerprint")?,
        expires_at: c.time("expires_at")?,
    })
}

pub(super) fn work_state(row: &impl Columns) -> Read<WorkState> {
    let c = Cells("work", row);
    let asked = match c.opt_int("asked_attempt")? {
        None => None,
        Some(attempt) => Some(Asked {
            attempt,
            account: c.blob("asked_account")?,
            rev: c.blob("asked_rev")?,
            first_there_at: c.time("first_there_at")?,
            ended_at: c.opt_time("ended_at")?,
            cause: c.opt_read("cause", Reason::from_code)?,
            misses: c.int("misses")?,
            asks: c.int("asks")?,
        }),
    };
    Ok(WorkState {
        life: Life {
            state: c.read("state", State::from_code)?,
            sent: c.read("sent", Sent::from_code)?,
            attempt: c.int("attempt")?,
            used: c.int("used")?,
            open: c.opt_int("open_attempt")?,
            sent_attempt: c.opt_int("sent_attempt")?,
            probing: c.flag("probing")?,
            marks: Marks { cancel: c.flag("cancel_mark")?, supersede: c.flag("supersede_mark")? },
        },
        queue: c.opt_read("queue", Queue::parse)?,
        due_at: c.time("due_at")?,
        leg: c.int("leg")?,
        provider: c.read("provider", name(ProviderName::parse))?,
        tries_here: c.int("tries_here")?,
        owner: match c.opt_text("owner")? {
            Some(boot) => Some(Owner { boot: boot.to_owned(), claim: c.int("claim")? }),
            None => None,
        },
        asked,
    })
}

pub(super) fn work(row: &impl Columns) -> Read<WorkRow> {
    let c = Cells("work", row);
    Ok(WorkRow {
        id: c.id("id")?,
        tenant: c.read("tenant", name(Tenant::parse))?,
        event_id: c.read("event_id", name(EventId::parse))?,
        kind: c.read("kind", name(Kind::parse))?,
        created_at: c.time("created_at")?,
        state: work_state(row)?,
        expires_at: c.time("expires_at")?,
        ordered_at: c.time("ordered_at")?,
        user: c.hash("user_h")?,
        legs: c.need("legs", Leg::decode(c.bytes("legs")?))?,
        sealed_to: c.bytes("sealed_to")?.to_vec(),
        sealed_message: c.opt_bytes("sealed_message")?.map(<[u8]>::to_vec),
    })
}

/// Whether a record's actor could not be read again: a name of a part of the daemon that nobody has.
pub(super) fn is_unreadable(record: &Record) -> bool {
    matches!(record.actor, Actor::Daemon(_)) && actor(&record.actor.to_string()).is_none()
}

/// Rows of due work that read, and the ids of those that do not. Each of these is told of, so that somebody looks at it.
pub(super) fn due_that_reads<R: Columns>(rows: &[R]) -> Read<(Vec<Due>, Vec<NotificationId>)> {
    let (mut due, mut unreadable) = (Vec::with_capacity(rows.len()), vec![]);
    for row in rows {
        let cells = Cells("work", row);
        match work(row).and_then(|work| Ok(Due { work, overtaken: cells.flag("overtaken")? })) {
            Ok(row) => due.push(row),
            Err(error) => {
                let id = cells.id("id")?;
                tracing::error!(alert = true, notification = %id, %error, "work that cannot be read is set aside");
                unreadable.push(id);
            }
        }
    }
    Ok((due, unreadable))
}

pub(super) fn unknown(row: &impl Columns) -> Read<UnknownRow> {
    let c = Cells("work", row);
    Ok(UnknownRow {
        id: c.id("id")?,
        tenant: c.read("tenant", name(Tenant::parse))?,
        event_id: c.read("event_id", name(EventId::parse))?,
        mask: c.text("mask")?.to_owned(),
        state: work_state(row)?,
        created_at: c.time("created_at")?,
        expires_at: c.time("expires_at")?,
    })
}

pub(super) fn log(row: &impl Columns) -> Read<LogRow> {
    let c = Cells("log", row);
    let record = Record {
        at: c.time("at")?,
        tenant: c.read("tenant", name(Tenant::parse))?,
        notification: c.opt_blob("notification")?.map(NotificationId::from_bytes),
        event_id: c.opt_read("event_id", name(EventId::parse))?,
        what: c.read("what", What::from_code)?,
        from: c.opt_read("from_state", State::from_code)?,
        to: c.opt_read("to_state", State::from_code)?,
        sent: c.opt_read("sent", Sent::from_code)?,
        delivery: c.opt_read("delivery", Delivery::from_code)?,
        attempt: c.opt_int("attempt")?,
        provider: c.opt_read("provider", name(ProviderName::parse))?,
        message_id: c.opt_read("message_id", name(ProviderMessageId::parse))?,
        outcome: c.opt_read("outcome", OutcomeClass::from_code)?,
        reason: c.opt_read("reason", Reason::from_code)?,
        source: c.opt_read("source", Source::from_code)?,
        actor: c.read("actor", actor)?,
        address: c.opt_blob("address_h")?.map(KeyedHash::from_bytes),
        ticket: c.opt_read("ticket", name(Ticket::parse))?,
    };
    Ok(LogRow { pos: c.int("pos")?, record })
}

/// Reads an actor as its `Display` writes it.
pub(super) fn actor(text: &str) -> Option<Actor> {
    match text.split_once(':')? {
        ("daemon", part) => DaemonPart::from_code(part).map(Actor::Daemon),
        ("key", id) => ActorName::parse(id).ok().map(Actor::Key),
        ("hook", name) => HookName::parse(name).ok().map(Actor::Hook),
        ("provider", provider) => ProviderName::parse(provider).ok().map(Actor::Provider),
        _ => None,
    }
}

/// A kept receipt, with its place in the order of arrival.
pub(super) fn receipt(row: &impl Columns) -> Read<(i64, Receipt)> {
    let c = Cells("unmatched_receipt", row);
    let receipt = Receipt {
        provider: c.read("provider", name(ProviderName::parse))?,
        reference: None,
        message_id: Some(c.read("message_id", name(ProviderMessageId::parse))?),
        status: c.read("status", ReceiptStatus::from_code)?,
        part: c.need("part", Part::new(c.int("part")?, c.int("parts")?))?,
    };
    Ok((c.int("seq")?, receipt))
}

pub(super) fn receipt_key(row: &impl Columns) -> Read<(ProviderName, ProviderMessageId, NotificationId)> {
    let c = Cells("notification", row);
    let provider = c.read("provider", name(ProviderName::parse))?;
    Ok((provider, c.read("receipt_key", name(ProviderMessageId::parse))?, c.id("id")?))
}

pub(super) fn high_water(row: &impl Columns) -> Read<HighWater> {
    let incarnation = Cells("meta", row).text("value")?.to_owned();
    let c = Cells("log", row);
    Ok(HighWater { incarnation, pos: c.int("pos")?, at: c.time("at")? })
}

pub(super) fn work_counts(row: &impl Columns) -> Read<WorkCounts> {
    let c = Cells("work", row);
    Ok(WorkCounts {
        provider: c.read("provider", name(ProviderName::parse))?,
        state: c.read("state", State::from_code)?,
        count: c.int("count")?,
        oldest_due: c.time("oldest_due")?,
    })
}

pub(super) fn account_counts(row: &impl Columns) -> Read<AccountCounts> {
    let c = Cells("notification", row);
    let (notifications, finished): (u64, u64) = (c.int("notifications")?, c.int("finished")?);
    Ok(AccountCounts {
        notifications,
        finished,
        live: notifications.saturating_sub(finished),
        accepted_records: c.int("accepted_records")?,
        final_records: c.int("final_records")?,
        sent: c.int("sent")?,
        not_sent: c.int("not_sent")?,
        unknown: c.int("unknown")?,
    })
}

pub(super) fn account_fault(row: &impl Columns) -> Read<AccountFault> {
    let c = Cells("notification", row);
    Ok(AccountFault {
        id: c.id("id")?,
        accepted_records: c.int("accepted_records")?,
        final_records: c.int("final_records")?,
        finished: c.flag("finished")?,
    })
}

pub(super) fn logged(row: &impl Columns) -> Read<Logged> {
    let LogRow { pos, record } = log(row)?;
    let c = Cells("log", row);
    let before = Before {
        sent: c.opt_read("was_sent", Sent::from_code)?,
        delivery: c.opt_read("was_delivery", Delivery::from_code)?,
    };
    Ok(Logged { pos, record, before, state: c.read("state", State::from_code)? })
}

pub(super) fn callback(row: &impl Columns) -> Read<Callback> {
    let (c, l) = (Cells("callback", row), Cells("log", row));
    Ok(Callback {
        pos: c.int("pos")?,
        notification: c.id("notification")?,
        change: c.read("change", Change::from_code)?,
        state: c.read("state", State::from_code)?,
        tries: c.int("tries")?,
        due_at: c.time("due_at")?,
        at: l.time("at")?,
        event_id: l.read("event_id", name(EventId::parse))?,
        sent: l.opt_read("sent", Sent::from_code)?,
        delivery: l.opt_read("delivery", Delivery::from_code)?,
        attempt: l.opt_int("attempt")?,
        provider: l.opt_read("provider", name(ProviderName::parse))?,
        outcome: l.opt_read("outcome", OutcomeClass::from_code)?,
        reason: l.opt_read("reason", Reason::from_code)?,
    })
}

pub(super) fn backlog(row: &impl Columns) -> Read<Backlog> {
    let c = Cells("callback", row);
    Ok(Backlog { count: c.int("count")?, oldest: c.opt_time("oldest")? })
}
