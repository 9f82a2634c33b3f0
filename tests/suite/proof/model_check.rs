//! Every reachable state of the protocol, by a model checker: the promise holds in all of them, and without any one of its
//! guards it does not.

use sendonce::domain::lifecycle::{Sent, State};
use stateright::{Checker as _, HasDiscoveries, Model, Property};

use super::protocol::{Guard, Move, Protocol, Strategy, World};

const LOST: &str = "no acknowledged event is lost";
const TWICE: &str = "nothing is sent twice";
const LATE: &str = "nothing is sent past its deadline";
const RECORDED: &str = "nothing is handed out past its deadline";
const STOPPED: &str = "nothing begins that was stopped";
const TRUE: &str = "what it says of sending is true";
const LEARNT: &str = "what was learnt is not forgotten";
const BESIDE: &str = "no attempt is made beside one that may have been sent";
const ENDED: &str = "what has ended stays ended";
const STUCK: &str = "nothing is left without an end";

impl Model for Protocol {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        vec![self.start()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Move>) {
        actions.extend(self.moves(world));
    }

    fn next_state(&self, world: &World, then: Move) -> Option<World> {
        Some(self.after(world, &then)).filter(|after| after != world)
    }

    /// Attempts that count for nothing could be made for ever.
    fn within_boundary(&self, world: &World) -> bool {
        world.rows.iter().all(|row| row.life.attempt <= 3)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LOST, |_, w: &World| !w.acknowledged || w.is_pending() || !w.rows.is_empty()),
            Property::always(TWICE, |_, w: &World| w.messages <= 1),
            Property::always(LATE, |_, w: &World| !w.sent_late),
            Property::always(RECORDED, |_, w: &World| !w.recorded_late),
            Property::always(STOPPED, |_, w: &World| !w.begun_after_stop),
            Property::always(TRUE, |_, w: &World| {
                let mut rows = w.rows.iter().enumerate();
                rows.all(|(number, row)| match row.life.sent {
                    Sent::No => !w.has_arrived(number),
                    Sent::Yes => w.has_arrived(number),
                    Sent::Unknown => true,
                })
            }),
            Property::always(LEARNT, |_, w: &World| {
                w.rows.iter().all(|row| !row.told_sent || row.life.sent == Sent::Yes)
            }),
            Property::always(BESIDE, |_, w: &World| {
                let may_begin = |state: State| state.is_waiting() || state == State::Dispatching;
                w.rows.iter().all(|row| row.life.open.is_none() || !may_begin(row.life.state))
            }),
            Property::always(ENDED, |_, w: &World| w.rows.iter().all(|row| !row.ended || row.life.state.is_final())),
            Property::always(STUCK, |protocol: &Self, w: &World| {
                w.rows.iter().all(|row| row.life.state.is_final()) || protocol.goes_on(w)
            }),
            Property::sometimes("it is sent", |_, w: &World| {
                w.rows.iter().any(|row| row.life.state == State::Dispatched)
            }),
            Property::sometimes("it expires as unknown", |_, w: &World| {
                w.rows.iter().any(|row| row.life.state == State::Expired && row.life.sent == Sent::Unknown)
            }),
        ]
    }
}

fn protocol(strategy: Strategy, restores: bool) -> Protocol {
    Protocol { strategy, restores, removed: None }
}

#[test]
fn the_promise_holds_in_every_reachable_state() {
    for (strategy, restores) in [
        (Strategy::Silent, false),
        (Strategy::Lookup, false),
        (Strategy::Dedupe, false),
        (Strategy::Lookup, true),
        (Strategy::Dedupe, true),
    ] {
        let checker = protocol(strategy, restores).checker().threads(2).spawn_bfs().join();
        checker.assert_properties();
    }
}

/// Each guard, where it matters, and what of the promise is broken without it.
const WITHOUT: [(Guard, Strategy, bool, &str); 20] = [
    (Guard::AnswerAfterCommit, Strategy::Silent, false, LOST),
    (Guard::OneRowForAnEvent, Strategy::Silent, false, TWICE),
    (Guard::RecordBeforeSend, Strategy::Silent, false, TWICE),
    (Guard::LostIsUnknown, Strategy::Silent, false, TWICE),
    (Guard::AttemptFence, Strategy::Silent, false, TWICE),
    (Guard::StartBy, Strategy::Lookup, false, TWICE),
    (Guard::SettleAfter, Strategy::Lookup, false, TWICE),
    (Guard::UnreadableIsNothing, Strategy::Lookup, false, TWICE),
    (Guard::DedupeWindow, Strategy::Dedupe, false, TWICE),
    (Guard::ProbeSaysNothing, Strategy::Dedupe, false, TRUE),
    (Guard::ExpiryGate, Strategy::Silent, false, LATE),
    (Guard::LateAnswerCounts, Strategy::Silent, false, LEARNT),
    (Guard::MarksHold, Strategy::Silent, false, STOPPED),
    (Guard::StrandedAreFound, Strategy::Silent, false, STUCK),
    (Guard::RestoredIsUnknown, Strategy::Lookup, true, TWICE),
    (Guard::MissAfterRestore, Strategy::Lookup, true, TWICE),
    (Guard::ProbeIsAwaited, Strategy::Dedupe, false, TRUE),
    (Guard::RepeatIsApart, Strategy::Dedupe, false, TRUE),
    (Guard::NoneAfterDeadline, Strategy::Silent, false, RECORDED),
    (Guard::ExpiredIsOver, Strategy::Silent, false, ENDED),
];

#[test]
fn without_any_one_guard_the_checker_finds_a_life_that_breaks_the_promise() {
    for (guard, strategy, restores, broken) in WITHOUT {
        let protocol = Protocol { removed: Some(guard), ..protocol(strategy, restores) };
        let found = HasDiscoveries::AnyOf([broken].into());
        let checker = protocol.checker().threads(2).finish_when(found).spawn_bfs().join();
        assert!(checker.discovery(broken).is_some(), "without {guard:?} this still holds: {broken}");
    }
}
