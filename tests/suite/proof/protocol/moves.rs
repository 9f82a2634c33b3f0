//! What may happen next.

use sendonce::domain::lifecycle::{Fact, Marks, State};

use super::{Answer, Guard, Hand, MAX_ATTEMPTS, Move, Phase, Protocol, Row, Strategy, World};

impl Protocol {
    /// Every move that is possible.
    pub fn moves(&self, world: &World) -> Vec<Move> {
        let mut moves = vec![];
        let mut may = |possible: bool, then: Move| {
            if possible {
                moves.push(then);
            }
        };
        may(world.posts > 0 && (!world.acknowledged || world.posts == 1), Move::Post);
        may(world.pending > 0, Move::Commit);
        may(world.pending > 0 && !world.acknowledged && !self.has(Guard::AnswerAfterCommit), Move::AnswerEarly);
        may(!world.over && !world.rows.is_empty(), Move::DeadlinePasses);
        let idle_line = world.wire.is_empty();
        may(self.strategy == Strategy::Dedupe && !world.window_closed && idle_line, Move::WindowCloses);
        let cancellable = world.rows.first().is_some_and(|row| !row.life.state.is_final());
        may(world.cancels > 0 && cancellable, Move::Cancel);
        may(world.copies > 0 && !world.rows.is_empty(), Move::Copy);
        may(world.copy.is_some(), Move::Restore);
        for (number, request) in world.wire.iter().enumerate() {
            let waits =
                |hand: &Hand| (hand.row, hand.attempt, hand.phase) == (request.row, request.attempt, Phase::Waiting);
            let answered = world.hands.iter().flatten().any(waits);
            may(answered, Move::Arrive { request: number, answered: true });
            may(true, Move::Arrive { request: number, answered: false });
            may(true, Move::Vanish(number));
            may(answered, Move::TurnAway(number, Answer::NotSent));
            may(answered, Move::TurnAway(number, Answer::Refused));
        }
        for (place, hand) in world.hands.iter().enumerate() {
            let Some(hand) = hand else {
                for row in 0..world.rows.len() {
                    self.free_hand(world, place, row, &mut may);
                }
                continue;
            };
            may(hand.phase == Phase::Claimed, Move::Begin(place));
            may(hand.phase == Phase::Waiting, Move::GiveUp(place));
            let answered = matches!(hand.phase, Phase::Answered(_));
            may(answered, Move::Store { hand: place, answer_lost: false });
            may(answered && !hand.stored, Move::Store { hand: place, answer_lost: true });
            may(world.crashes > 0, Move::Crash(place));
            may(world.burials > 0 && !hand.buried, Move::Bury(place));
        }
        may(world.crashes > 0 && world.pending > 0, Move::Crash(0));
        for (number, row) in world.rows.iter().enumerate() {
            self.row_moves(world, number, row, &mut may);
        }
        moves
    }

    fn free_hand(&self, world: &World, hand: usize, number: usize, may: &mut impl FnMut(bool, Move)) {
        let row = &world.rows[number];
        let life = &row.life;
        let in_time = !world.over || !self.has(Guard::NoneAfterDeadline);
        may(life.state.is_waiting() && in_time, Move::Claim(hand, number));
        let wanted = life.state == State::DispatchUnknown && life.marks == Marks::default() && in_time;
        let possible = !life.probing && life.used < MAX_ATTEMPTS && row.settled && !row.restored;
        let remembered = !world.window_closed || !self.has(Guard::DedupeWindow);
        may(self.strategy == Strategy::Dedupe && wanted && possible && remembered, Move::Probe(hand, number));
    }

    fn row_moves(&self, world: &World, number: usize, row: &Row, may: &mut impl FnMut(bool, Move)) {
        let life = &row.life;
        may(world.is_stranded(number) && self.has(Guard::StrandedAreFound), Move::Strand(number));
        let expires = life.state.is_waiting() || life.state == State::DispatchUnknown;
        may(world.over && expires, Move::Expire(number));
        for at in 0..world.arrived.len() {
            may(world.arrived[at].0 == number, Move::Receipt(at));
        }
        let Some(open) = life.open else { return };
        let is_there = world.has_arrived(number);
        may(!row.settled && !world.on_wire(number), Move::TimeOutsPass(number));
        if self.strategy == Strategy::Lookup {
            let found = world.arrived.contains(&(number, open));
            may(found, Move::LookUp(number, Some(true)));
            // The provider's index lags behind.
            may(!found || !row.settled, Move::LookUp(number, Some(false)));
            may(!self.has(Guard::UnreadableIsNothing), Move::LookUp(number, None));
        }
        may(is_there, Move::Operator(number, Fact::EvidenceSent(open)));
        // Of the attempt that a probe repeats he can know it while the probe is under way.
        let over = (row.settled && !world.on_wire(number)) || (life.probing && world.only_newest_on_wire(number));
        may(!is_there && over, Move::Operator(number, Fact::EvidenceNotSent(open)));
        may(life.state == State::DispatchUnknown, Move::Operator(number, Fact::Abandoned));
    }

    /// Something can happen that changes the world.
    pub fn goes_on(&self, world: &World) -> bool {
        self.moves(world).iter().any(|then| self.after(world, then) != *world)
    }
}
