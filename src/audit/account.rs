//! The accounting: every acknowledged event has one `accepted` record, and every finished one has one final record.

use std::fmt;

use serde::Serialize;

use crate::domain::ids::Tenant;
use crate::ledger::{Ledger, LedgerError};
use crate::store::rows::{AccountCounts, AccountFault};

/// Faults that are listed at most.
pub const FAULTS: u32 = 1000;

/// Whether the accounting closes, and what is missing where it does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Account {
    /// The sums add up, and no notification's records are at fault.
    pub closes: bool,
    /// The sums.
    pub counts: AccountCounts,
    /// Notifications whose records do not add up, at most [`FAULTS`].
    pub faults: Vec<AccountFault>,
}

impl Account {
    /// Judges what was counted.
    pub fn of(counts: AccountCounts, faults: Vec<AccountFault>) -> Self {
        let closes = faults.is_empty()
            && counts.finished + counts.live == counts.notifications
            && counts.accepted_records == counts.notifications
            && counts.final_records == counts.finished;
        Self { closes, counts, faults }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counts;
        writeln!(f, "notifications     {:>12}", c.notifications)?;
        writeln!(f, "  accepted records{:>12}", c.accepted_records)?;
        writeln!(f, "finished          {:>12}", c.finished)?;
        writeln!(f, "  final records   {:>12}", c.final_records)?;
        writeln!(f, "live              {:>12}", c.live)?;
        writeln!(f, "sent              {:>12}", c.sent)?;
        writeln!(f, "not sent          {:>12}", c.not_sent)?;
        writeln!(f, "not known         {:>12}", c.unknown)?;
        for fault in &self.faults {
            let finished = if fault.finished { "finished" } else { "live" };
            let (accepted, last) = (fault.accepted_records, fault.final_records);
            writeln!(f, "{}: {finished}, {accepted} accepted records, {last} final records", fault.id)?;
        }
        f.write_str(if self.closes { "the accounting closes" } else { "the accounting does not close" })
    }
}

/// Takes the account of one tenant, or of all. Right at every moment, also while notifications are under way: a state and
/// its record are written together.
///
/// # Errors
/// What the store reports.
pub async fn account(ledger: &Ledger, tenant: Option<&Tenant>) -> Result<Account, LedgerError> {
    let counts = ledger.account_counts(tenant).await?;
    let faults = ledger.account_faults(tenant, FAULTS).await?;
    Ok(Account::of(counts, faults))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::NotificationId;

    const GOOD: AccountCounts = AccountCounts {
        notifications: 3,
        finished: 2,
        live: 1,
        accepted_records: 3,
        final_records: 2,
        sent: 1,
        not_sent: 1,
        unknown: 0,
    };

    #[test]
    fn an_account_closes_only_when_every_record_is_there_once() {
        assert!(Account::of(GOOD, vec![]).closes);
        assert!(Account::of(AccountCounts::default(), vec![]).closes);
        for bad in [
            AccountCounts { accepted_records: 2, ..GOOD },
            AccountCounts { final_records: 3, ..GOOD },
            AccountCounts { live: 0, ..GOOD },
        ] {
            assert!(!Account::of(bad, vec![]).closes, "{bad:?}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let id = NotificationId::from_bytes([1; 16]);
        let fault = AccountFault { id, accepted_records: 1, final_records: 0, finished: true };
        let account = Account::of(GOOD, vec![fault]);
        assert!(!account.closes);
        let text = account.to_string();
        assert!(text.contains(&format!("{id}: finished, 1 accepted records, 0 final records")), "{text}");
        assert!(text.ends_with("does not close"), "{text}");
    }
}
