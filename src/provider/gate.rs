//! The last look at the clocks before bytes leave.

use std::time::Duration;

use crate::clock::SharedClock;
use crate::domain::outcome::{Outcome, Reason};
use crate::domain::time::Timestamp;

/// Lets an attempt begin, or stops it while that is still certain to be harmless.
///
/// Two limits: `start_by` on the boot-time clock, after which a supervisor may take a paused worker for dead; and the
/// octet that commits (the final dot, the end of the request) must leave before `commit_by`, the expiry less the
/// channel's transit time. Waiting for an answer is not bound by the expiry.
#[derive(Clone)]
pub struct Gate {
    clock: SharedClock,
    start_by: Duration,
    commit_by: Timestamp,
}

impl Gate {
    /// A gate that closes at `start_by` (time since boot) and at `commit_by`.
    pub fn new(clock: SharedClock, start_by: Duration, commit_by: Timestamp) -> Self {
        Self { clock, start_by, commit_by }
    }

    /// Asked before the first byte and again before the octet that commits.
    ///
    /// # Errors
    /// The outcome of an attempt that may not go on: it never began.
    pub fn check(&self) -> Result<(), Outcome> {
        self.check_ahead(Duration::ZERO)
    }

    /// As [`check`](Self::check), where the octet that commits may leave as much as `lead` later and nothing asks again.
    ///
    /// # Errors
    /// As there.
    pub fn check_ahead(&self, lead: Duration) -> Result<(), Outcome> {
        if self.clock.since_boot() > self.start_by {
            Err(Outcome::never_began(Reason::StartedTooLate))
        } else if self.clock.now().plus(lead) > self.commit_by {
            Err(Outcome::never_began(Reason::DeadlinePassed))
        } else {
            Ok(())
        }
    }

    /// The store's wall clock, for dates and signatures.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How long the message is still of use, from now to `commit_by`.
    pub fn remaining(&self) -> Duration {
        self.commit_by.since(self.clock.now())
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("start_by", &self.start_by).field("commit_by", &self.commit_by).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);
    const MOMENT: Duration = Duration::from_micros(1);

    #[test]
    fn nothing_begins_past_the_time_to_begin_or_past_the_deadline() {
        let clock = ManualClock::at(NOW);
        let gate = |start_by, commit_by| Gate::new(clock.clone(), start_by, NOW.plus(commit_by));
        let too_late = Err(Outcome::never_began(Reason::StartedTooLate));
        let over = Err(Outcome::never_began(Reason::DeadlinePassed));
        clock.advance(SECOND);
        for (start_by, commit_by, expected) in
            [(SECOND, SECOND, Ok(())), (SECOND - MOMENT, SECOND, too_late), (SECOND, SECOND - MOMENT, over.clone())]
        {
            assert_eq!(gate(start_by, commit_by).check(), expected, "{start_by:?} {commit_by:?}");
        }
        let ahead = |lead| gate(SECOND, SECOND * 2).check_ahead(lead);
        assert_eq!((ahead(SECOND), ahead(SECOND + MOMENT)), (Ok(()), over), "nothing asks again before the last octet");
        assert_eq!(gate(SECOND, SECOND * 3).remaining(), SECOND * 2);
        assert_eq!(gate(SECOND, SECOND / 2).remaining(), Duration::ZERO);
    }
}
