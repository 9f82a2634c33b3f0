//! The protocol as a model: one event of one user, two workers that crash, stall and are taken for dead, a provider with a
//! slow and lossy line to it, and whoever finds out about unknowns. Where a fact leads is the real lifecycle's word.
//!
//! Time is order here: a deadline passes, a dedupe window closes, and time-outs run out, each at any moment at which the
//! bounds between them allow it.

mod guard;
mod moves;

use sendonce::domain::lifecycle::{Fact, Life, Marks, Outlook, State, step};

pub use guard::Guard;

/// What the provider can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Silent,
    Lookup,
    Dedupe,
}

/// A configuration of the model.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub strategy: Strategy,
    /// A copy of the store is taken and restored at some time.
    pub restores: bool,
    pub removed: Option<Guard>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub life: Life,
    /// Since the attempt ended all time-outs and lags have passed.
    settled: bool,
    restored: bool,
    /// Somebody was told that no further attempt would be made.
    stopped: bool,
    /// The ledger was told that it was sent.
    pub told_sent: bool,
    /// It was in a final state.
    pub ended: bool,
}

impl Row {
    const NEW: Self =
        Self { life: Life::NEW, settled: false, restored: false, stopped: false, told_sent: false, ended: false };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    Claimed,
    Waiting,
    Answered(Answer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    Accepted,
    NotSent,
    Refused,
    NeverBegan,
    Unknown,
}

/// A claim in a worker's hands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Hand {
    row: usize,
    attempt: u8,
    probe: bool,
    phase: Phase,
    /// The time by which it had to begin is over.
    stale: bool,
    /// It is taken for dead.
    buried: bool,
    /// Its result was stored once, and the answer to that lost.
    stored: bool,
}

/// A request on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Request {
    row: usize,
    attempt: u8,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct World {
    posts: u8,
    /// Posts that wait for a commit.
    pending: u8,
    pub acknowledged: bool,
    pub rows: Vec<Row>,
    hands: [Option<Hand>; 2],
    wire: Vec<Request>,
    /// Which attempts of which row the provider took.
    pub arrived: Vec<(usize, u8)>,
    /// What it passed on to the user.
    pub messages: u8,
    remembers: bool,
    window_closed: bool,
    over: bool,
    crashes: u8,
    burials: u8,
    cancels: u8,
    copy: Option<Vec<Row>>,
    copies: u8,
    pub sent_late: bool,
    pub recorded_late: bool,
    pub begun_after_stop: bool,
}

/// What may happen next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    Post,
    AnswerEarly,
    Commit,
    Claim(usize, usize),
    Probe(usize, usize),
    Begin(usize),
    Arrive { request: usize, answered: bool },
    TurnAway(usize, Answer),
    Vanish(usize),
    GiveUp(usize),
    Store { hand: usize, answer_lost: bool },
    Crash(usize),
    Bury(usize),
    Strand(usize),
    TimeOutsPass(usize),
    LookUp(usize, Option<bool>),
    Receipt(usize),
    Operator(usize, Fact),
    Cancel,
    DeadlinePasses,
    Expire(usize),
    WindowCloses,
    Copy,
    Restore,
}

const MAX_ATTEMPTS: u8 = 2;

impl World {
    fn on_wire(&self, row: usize) -> bool {
        self.wire.iter().any(|request| request.row == row)
    }

    /// Of its attempts none but the newest can still arrive.
    fn only_newest_on_wire(&self, row: usize) -> bool {
        let newest = self.rows[row].life.attempt;
        self.wire.iter().all(|request| request.row != row || request.attempt == newest)
    }

    pub fn is_pending(&self) -> bool {
        self.pending > 0
    }

    pub fn has_arrived(&self, row: usize) -> bool {
        self.arrived.iter().any(|(r, _)| *r == row)
    }

    /// Whoever works on it is not known to be alive.
    fn is_stranded(&self, row: usize) -> bool {
        let life = &self.rows[row].life;
        let theirs = |hand: &&Hand| hand.row == row && hand.attempt == life.attempt && !hand.buried;
        (life.state == State::Dispatching || life.probing) && !self.hands.iter().flatten().any(|hand| theirs(&hand))
    }

    fn outlook(&self) -> Outlook {
        Outlook { in_time: !self.over, another_address: true, max_attempts: MAX_ATTEMPTS }
    }

    /// A fact goes through the lifecycle; one that it does not take changes nothing.
    fn fact(&mut self, row: usize, fact: Fact) {
        let outlook = self.outlook();
        if let Ok(step) = step(&self.rows[row].life, fact, outlook) {
            self.rows[row].life = step.life;
        }
    }

    fn tell_sent(&mut self, row: usize, fact: Fact) {
        self.rows[row].told_sent = true;
        self.fact(row, fact);
    }
}

impl Protocol {
    pub fn has(&self, guard: Guard) -> bool {
        self.removed != Some(guard)
    }

    /// How it begins, and how much of what may go wrong goes wrong at most. Repeats and cancels have nothing to do with what
    /// a provider can tell.
    pub fn start(&self) -> World {
        let silent = self.strategy == Strategy::Silent;
        World {
            posts: if silent { 2 } else { 1 },
            cancels: u8::from(silent),
            crashes: 1,
            burials: u8::from(!self.restores),
            copies: u8::from(self.restores),
            ..World::default()
        }
    }

    /// The world after a move.
    pub fn after(&self, before: &World, then: &Move) -> World {
        let mut world = before.clone();
        match *then {
            Move::Post => {
                world.posts -= 1;
                world.pending += 1;
            }
            Move::AnswerEarly => world.acknowledged = true,
            Move::Commit => {
                world.pending -= 1;
                world.acknowledged = true;
                if world.rows.is_empty() || !self.has(Guard::OneRowForAnEvent) {
                    world.rows.push(Row::NEW);
                }
            }
            Move::Claim(hand, row) => self.take(&mut world, hand, row, Fact::Claimed),
            Move::Probe(hand, row) => self.take(&mut world, hand, row, Fact::ProbeBegun),
            Move::Begin(hand) => self.begin(&mut world, hand),
            Move::Arrive { request, answered } => {
                let request = world.wire.remove(request);
                let known = self.strategy == Strategy::Dedupe && world.remembers;
                world.messages += u8::from(!known);
                world.remembers = !world.window_closed;
                world.arrived.push((request.row, request.attempt));
                world.arrived.sort_unstable();
                world.arrived.dedup();
                if answered {
                    answer(&mut world, &request, Answer::Accepted);
                }
            }
            Move::TurnAway(request, word) => {
                let request = world.wire.remove(request);
                answer(&mut world, &request, word);
            }
            Move::Vanish(request) => drop(world.wire.remove(request)),
            Move::GiveUp(hand) => {
                if let Some(hand) = &mut world.hands[hand] {
                    hand.phase = Phase::Answered(Answer::Unknown);
                }
            }
            Move::Store { hand, answer_lost } => self.store(&mut world, hand, answer_lost),
            Move::Crash(hand) => {
                world.crashes -= 1;
                world.hands[hand] = None;
                world.pending = 0;
            }
            Move::Bury(hand) => {
                world.burials -= 1;
                if let Some(hand) = &mut world.hands[hand] {
                    hand.buried = true;
                }
            }
            Move::Strand(row) => {
                let fact = if world.rows[row].life.probing { Fact::ProbeEnded } else { Fact::Lost };
                world.rows[row].settled = false;
                world.fact(row, fact);
            }
            Move::TimeOutsPass(row) => {
                world.rows[row].settled = true;
                stall(&mut world, |hand| hand.row == row);
            }
            Move::LookUp(row, found) => self.look_up(&mut world, row, found),
            Move::Receipt(arrived) => {
                let (row, attempt) = world.arrived[arrived];
                world.tell_sent(row, Fact::EvidenceSent(attempt));
            }
            Move::Operator(row, Fact::EvidenceNotSent(attempt)) => self.not_sent(&mut world, row, attempt),
            Move::Operator(row, fact) => world.fact(row, fact),
            Move::Cancel => {
                world.cancels -= 1;
                world.fact(0, Fact::CancelAsked);
                world.rows[0].stopped = true;
                if !self.has(Guard::MarksHold) {
                    world.rows[0].life.marks = Marks::default();
                }
            }
            Move::DeadlinePasses => world.over = true,
            Move::Expire(row) => world.fact(row, Fact::TimeOver),
            Move::WindowCloses => {
                world.window_closed = true;
                world.remembers = false;
                stall(&mut world, |hand| hand.probe);
            }
            Move::Copy => {
                world.copies -= 1;
                world.copy = Some(world.rows.clone());
            }
            Move::Restore => self.restore(&mut world),
        }
        for row in &mut world.rows {
            row.ended |= row.life.state.is_final();
        }
        // Workers have no names.
        world.hands.sort_unstable();
        world
    }

    /// Records an attempt or a probe and hands it to a worker.
    fn take(&self, world: &mut World, hand: usize, row: usize, fact: Fact) {
        world.begun_after_stop |= world.rows[row].stopped;
        world.recorded_late |= world.over;
        let before = world.rows[row].life;
        world.fact(row, fact);
        let attempt = world.rows[row].life.attempt;
        world.rows[row].settled = false;
        if !self.has(Guard::RecordBeforeSend) {
            world.rows[row].life = before;
        }
        let probe = fact == Fact::ProbeBegun;
        let fresh = Hand { row, attempt, probe, phase: Phase::Claimed, stale: false, buried: false, stored: false };
        world.hands[hand] = Some(fresh);
    }

    /// The worker's last look at the clocks, and the first byte.
    fn begin(&self, world: &mut World, hand: usize) {
        let over = world.over;
        let Some(hand) = &mut world.hands[hand] else { return };
        if (hand.stale && self.has(Guard::StartBy)) || (over && self.has(Guard::ExpiryGate)) {
            hand.phase = Phase::Answered(Answer::NeverBegan);
            return;
        }
        hand.phase = Phase::Waiting;
        world.sent_late |= over;
        world.wire.push(Request { row: hand.row, attempt: hand.attempt });
        world.wire.sort_unstable();
    }

    fn store(&self, world: &mut World, place: usize, answer_lost: bool) {
        let Some(mut hand) = world.hands[place].take() else { return };
        let Phase::Answered(answer) = hand.phase else { return };
        let (row, attempt) = (hand.row, hand.attempt);
        let life = world.rows[row].life;
        let mine = life.attempt == attempt || !self.has(Guard::AttemptFence);
        if answer == Answer::Accepted && (mine || self.has(Guard::LateAnswerCounts)) {
            world.rows[row].told_sent = true;
        }
        if mine && life.probing {
            self.end_probe(world, row, answer);
        } else if mine && life.state == State::Dispatching {
            self.end_attempt(world, row, answer);
        } else if self.has(Guard::LateAnswerCounts) {
            let repeated_since = life.open == Some(attempt) && life.attempt > attempt && self.has(Guard::RepeatIsApart);
            match answer {
                Answer::Accepted => world.fact(row, Fact::EvidenceSent(attempt)),
                Answer::Unknown => {}
                _ if repeated_since => {}
                _ => self.not_sent(world, row, attempt),
            }
        } else if answer == Answer::Accepted {
            world.rows[row].told_sent = true;
        }
        if answer_lost {
            hand.stored = true;
            world.hands[place] = Some(hand);
        }
    }

    fn end_attempt(&self, world: &mut World, row: usize, answer: Answer) {
        let fact = match answer {
            Answer::Accepted => Fact::Accepted,
            Answer::NotSent => Fact::NotSent,
            Answer::Refused => Fact::RefusedMessage,
            Answer::NeverBegan => Fact::NeverBegan,
            Answer::Unknown if !self.has(Guard::LostIsUnknown) => Fact::NotSent,
            Answer::Unknown => Fact::Lost,
        };
        world.fact(row, fact);
    }

    fn end_probe(&self, world: &mut World, row: usize, answer: Answer) {
        let life = world.rows[row].life;
        world.fact(row, if answer == Answer::NeverBegan { Fact::ProbeNeverBegan } else { Fact::ProbeEnded });
        world.rows[row].settled = answer == Answer::NeverBegan;
        let about = life.open.unwrap_or(life.attempt);
        let surely_not = !matches!(answer, Answer::Accepted | Answer::Unknown);
        if answer == Answer::Accepted {
            world.fact(row, Fact::EvidenceSent(about));
        } else if surely_not && (life.open == Some(life.attempt) || !self.has(Guard::ProbeSaysNothing)) {
            self.not_sent(world, row, about);
        }
    }

    fn look_up(&self, world: &mut World, row: usize, found: Option<bool>) {
        let now = &world.rows[row];
        let Some(open) = now.life.open else { return };
        let settled = now.settled || !self.has(Guard::SettleAfter);
        let proves = settled && (!now.restored || !self.has(Guard::MissAfterRestore));
        match found {
            Some(true) => world.tell_sent(row, Fact::EvidenceSent(open)),
            Some(false) if proves => self.not_sent(world, row, open),
            Some(false) => {}
            None => self.not_sent(world, row, open),
        }
    }

    /// Evidence that an attempt was not sent.
    fn not_sent(&self, world: &mut World, row: usize, attempt: u8) {
        let (mut life, mut outlook) = (world.rows[row].life, world.outlook());
        life.probing &= self.has(Guard::ProbeIsAwaited);
        if life.state == State::Expired && !self.has(Guard::ExpiredIsOver) {
            life.state = State::DispatchUnknown;
            outlook.in_time = true;
        }
        if let Ok(step) = step(&life, Fact::EvidenceNotSent(attempt), outlook) {
            world.rows[row].life = step.life;
        }
    }

    fn restore(&self, world: &mut World) {
        let Some(copy) = world.copy.take() else { return };
        world.rows = copy;
        world.hands = [None, None];
        world.pending = 0;
        if !self.has(Guard::RestoredIsUnknown) {
            return;
        }
        for row in 0..world.rows.len() {
            if !world.rows[row].life.state.is_final() {
                world.rows[row].restored = true;
                world.rows[row].settled = false;
                world.fact(row, Fact::Restored);
            }
        }
    }
}

/// The answer reaches the worker that waits for it, if one does.
fn answer(world: &mut World, request: &Request, word: Answer) {
    for hand in world.hands.iter_mut().flatten() {
        if (hand.row, hand.attempt, hand.phase) == (request.row, request.attempt, Phase::Waiting) {
            hand.phase = Phase::Answered(word);
        }
    }
}

/// So much time passes that what has not begun may not any more.
fn stall(world: &mut World, which: impl Fn(&Hand) -> bool) {
    for hand in world.hands.iter_mut().flatten().filter(|hand| which(hand) && hand.phase == Phase::Claimed) {
        hand.stale = true;
    }
}
