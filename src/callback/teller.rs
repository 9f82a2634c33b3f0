//! Telling one target: reads on in the log, sends what is due, keeps what was not taken.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use super::client::{Answer, Fault};
use super::pace::Pace;
use super::{LAST_ANSWERS, Parts, Target, message};
use crate::clock::Quiet;
use crate::domain::callback::Change;
use crate::domain::ids::TargetName;
use crate::metrics::{ByTarget, ByTargetResult};
use crate::store::callbacks::{Again, Backlog, Callback, Logged, NewCallback};
use crate::store::{self, StoreError};

/// The longest pause between two looks, for what other nodes commit.
const POLL: Duration = Duration::from_secs(1);

/// After a commit so long is waited for others, which are looked at together.
const GATHER: Duration = Duration::from_millis(20);

/// How many positions of the log are read at once.
const WINDOW: i64 = 1000;

/// The most callbacks of one target that are taken over and not settled; what comes after them stays in the log.
const BACKLOG_MAX: u64 = 10_000;

/// How many callbacks are looked at in one turn, beyond those under way.
const TURN: u32 = 100;

/// Time between two counts of what is not settled.
const COUNT_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Teller {
    parts: Parts,
    target: Arc<Target>,
    quiet: Quiet,
}

/// What the node that leads knows of one target.
struct Course {
    /// How far the log was read.
    read: i64,
    /// How far it was taken over in the store, which is less while nothing that was read is to be told.
    place: i64,
    /// The log may have grown.
    look: bool,
    backlog: Backlog,
    /// The backlog has changed since it was counted.
    stale: bool,
    /// By the boot-time clock.
    counted_at: Duration,
    sending: JoinSet<Answer>,
    under_way: HashMap<Id, Callback>,
    over: Vec<i64>,
    again: Vec<Again>,
    pace: Pace,
    gone: bool,
}

impl Course {
    /// Positions of callbacks that must not be sent now.
    fn busy(&self) -> HashSet<i64> {
        let under_way = self.under_way.values().map(|callback| callback.pos);
        under_way.chain(self.over.iter().copied()).chain(self.again.iter().map(|again| again.pos)).collect()
    }
}

/// Tells one target until the stop.
pub(super) async fn run(teller: Arc<Teller>, mut stop: watch::Receiver<bool>) {
    let mut commits = teller.parts.commits.clone();
    let mut course = None;
    let mut failed = 0_u8;
    while !*stop.borrow() {
        let wait = match teller.turn(&mut course).await {
            Ok(wait) => {
                failed = 0;
                wait
            }
            Err(error) => {
                failed = failed.saturating_add(1);
                if teller.may_tell() {
                    tracing::error!(callback = %teller.name(), %error, "the store does not let callbacks be sent");
                }
                store::RETRY.delay(failed, None, (teller.parts.draw)())
            }
        };
        teller.rest(course.as_mut(), wait, &mut commits, &mut stop).await;
    }
    if let Some(mut course) = course {
        teller.finish(&mut course).await;
    }
}

/// Waits for the stop.
pub(super) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Nobody is left to say it: then it is over too.
    let _over = stop.wait_for(|stop| *stop).await;
}

impl Teller {
    pub(super) fn new(parts: Parts, target: Target) -> Self {
        Self { parts, target: Arc::new(target), quiet: Quiet::default() }
    }

    pub(super) fn name(&self) -> &TargetName {
        &self.target.name
    }

    /// Does all that can be done now, and says how long there is nothing else.
    async fn turn(&self, course: &mut Option<Course>) -> Result<Duration, StoreError> {
        if !(self.parts.leads)() {
            if course.take().is_some() {
                self.hide();
            }
            return Ok(POLL);
        }
        let course = match course {
            Some(course) => course,
            None => course.insert(self.begin().await?),
        };
        self.settle(course).await?;
        let more = self.take_over(course).await?;
        self.count(course).await?;
        let wait = self.send(course).await?;
        self.show(course);
        Ok(if more { Duration::ZERO } else { wait })
    }

    async fn begin(&self) -> Result<Course, StoreError> {
        let callbacks = self.parts.store.callbacks();
        let place = callbacks.place(self.name()).await?;
        Ok(Course {
            read: place,
            place,
            look: true,
            backlog: callbacks.backlog(self.name()).await?,
            stale: false,
            counted_at: self.parts.clock.since_boot(),
            sending: JoinSet::new(),
            under_way: HashMap::new(),
            over: vec![],
            again: vec![],
            pace: Pace::default(),
            gone: false,
        })
    }

    /// Waits for an answer, a commit, the stop, or until `wait` is over.
    async fn rest(
        &self,
        course: Option<&mut Course>,
        wait: Duration,
        commits: &mut watch::Receiver<u64>,
        stop: &mut watch::Receiver<bool>,
    ) {
        let Some(course) = course else {
            let _over = tokio::time::timeout(wait, stopped(stop)).await;
            return;
        };
        tokio::select! {
            () = stopped(stop) => {}
            Some(ended) = course.sending.join_next_with_id() => self.hear(course, ended),
            Ok(()) = commits.changed() => {
                tokio::time::sleep(GATHER).await;
                course.look = true;
            }
            () = tokio::time::sleep(wait) => course.look = true,
        }
        while let Some(ended) = course.sending.try_join_next_with_id() {
            self.hear(course, ended);
        }
    }

    /// Reads a piece of the log, and keeps what of it is to be told. Says whether there is more.
    async fn take_over(&self, course: &mut Course) -> Result<bool, StoreError> {
        if !course.look || course.backlog.count >= BACKLOG_MAX {
            return Ok(false);
        }
        let callbacks = self.parts.store.callbacks();
        let end = self.parts.store.reader().log_end().await?;
        let up_to = end.min(course.read.saturating_add(WINDOW));
        if up_to > course.read {
            let logged = callbacks.logged(&self.target.tenant, course.read, up_to).await?;
            let new = self.to_tell(&logged);
            course.read = up_to;
            if !new.is_empty() || up_to - course.place >= WINDOW {
                if !callbacks.take_over(self.name(), course.place, up_to, &new).await? {
                    // Another node was here.
                    *course = self.begin().await?;
                    return Ok(true);
                }
                course.place = up_to;
                course.backlog.count += new.len() as u64;
                course.stale = true;
            }
        }
        course.look = up_to < end;
        Ok(course.look)
    }

    fn to_tell(&self, logged: &[Logged]) -> Vec<NewCallback> {
        let now = self.parts.clock.now();
        let mut new = vec![];
        for Logged { pos, record, before, state } in logged {
            let change = Change::told_by(record, *before, *state).filter(|c| self.target.changes.contains(c));
            let (Some(change), Some(notification)) = (change, record.notification) else { continue };
            if record.at.plus(self.target.give_up_after) <= now {
                tracing::warn!(callback = %self.name(), %notification, %change, "a callback is too old to be sent");
                self.counted("given_up");
                continue;
            }
            new.push(NewCallback { pos: *pos, notification, change, state: *state, due_at: record.at });
        }
        new
    }

    /// Sends what is due and gives up what is too old. Says how long nothing else is due.
    async fn send(&self, course: &mut Course) -> Result<Duration, StoreError> {
        if course.backlog.count == 0 {
            return Ok(POLL);
        }
        let (boot, now) = (self.parts.clock.since_boot(), self.parts.clock.now());
        let most = if course.gone { 0 } else { course.pace.room(boot, self.target.concurrency) };
        let mut room = most.saturating_sub(course.under_way.len());
        if room == 0 && !course.gone {
            let closed = course.pace.closed_for(boot);
            return Ok(if closed.is_zero() { POLL } else { closed.min(POLL) });
        }
        let busy = course.busy();
        let limit = TURN.saturating_add(u32::try_from(busy.len()).unwrap_or(u32::MAX));
        let mut wait = POLL;
        for callback in self.parts.store.callbacks().first(self.name(), limit).await? {
            if busy.contains(&callback.pos) {
                continue;
            }
            let early = callback.due_at.since(now);
            if !early.is_zero() {
                wait = wait.min(early);
                break;
            }
            if callback.at.plus(self.target.give_up_after) <= now {
                self.give_up(course, &callback);
                wait = Duration::ZERO;
            } else if room > 0 {
                room -= 1;
                self.begin_sending(course, callback);
            }
        }
        Ok(wait)
    }

    fn begin_sending(&self, course: &mut Course, callback: Callback) {
        let (target, clock) = (self.target.clone(), self.parts.clock.clone());
        let id = message::id(&callback);
        let body = message::body(&callback, self.parts.public_url.as_deref());
        let sending = course.sending.spawn(async move {
            let now = clock.now();
            let stamp = message::stamp(id, &body, &target.keys, now);
            target.client.post(&stamp, body, now).await
        });
        course.under_way.insert(sending.id(), callback);
    }

    /// Takes note of an answer; the store learns of it with the next turn.
    fn hear(&self, course: &mut Course, ended: Result<(Id, Answer), JoinError>) {
        let lost = Answer::Failed { fault: Fault::Lost, retry_after: None };
        let (task, answer) = ended.unwrap_or_else(|panicked| (panicked.id(), lost));
        let Some(callback) = course.under_way.remove(&task) else { return };
        let boot = self.parts.clock.since_boot();
        let (fault, retry_after) = match answer {
            Answer::Taken => {
                course.pace.alive();
                course.over.push(callback.pos);
                self.counted("delivered");
                return;
            }
            Answer::Gone => {
                if !std::mem::replace(&mut course.gone, true) {
                    tracing::error!(
                        alert = true,
                        callback = %self.name(),
                        "the target wants no more callbacks (410); none is sent until the daemon is started again"
                    );
                }
                (Fault::Refused, None)
            }
            Answer::Failed { fault, retry_after } => (fault, retry_after),
        };
        if fault.is_about_one() {
            course.pace.alive();
        } else {
            course.pace.failed(callback.notification, boot, (self.parts.draw)());
        }
        if let (Fault::RateLimited | Fault::ServerFault, Some(wish)) = (fault, retry_after) {
            course.pace.wish(boot, wish);
        }
        self.counted("failed");
        if self.may_tell() {
            let (id, notification) = (message::id(&callback), callback.notification);
            tracing::warn!(callback = %self.name(), %notification, webhook_id = id, %fault, "a callback was not taken");
        }
        let tries = callback.tries.saturating_add(1);
        let failed = u8::try_from(tries).unwrap_or(u8::MAX);
        let due_at = self.parts.clock.now().plus(self.target.retry.delay(failed, retry_after, (self.parts.draw)()));
        if due_at >= callback.at.plus(self.target.give_up_after) {
            self.give_up(course, &callback);
        } else {
            course.again.push(Again { pos: callback.pos, tries, due_at });
        }
    }

    fn give_up(&self, course: &mut Course, callback: &Callback) {
        let Callback { notification, change, tries, .. } = callback;
        let id = message::id(callback);
        tracing::error!(
            alert = true,
            callback = %self.name(),
            %notification,
            webhook_id = id,
            %change,
            tries,
            "a callback is given up"
        );
        self.counted("given_up");
        course.over.push(callback.pos);
    }

    /// Stores what became of callbacks.
    async fn settle(&self, course: &mut Course) -> Result<(), StoreError> {
        if course.over.is_empty() && course.again.is_empty() {
            return Ok(());
        }
        self.parts.store.callbacks().settle(self.name(), &course.over, &course.again).await?;
        course.backlog.count = course.backlog.count.saturating_sub(course.over.len() as u64);
        course.stale = true;
        course.over.clear();
        course.again.clear();
        Ok(())
    }

    /// Counts anew, now and then, what is not settled.
    async fn count(&self, course: &mut Course) -> Result<(), StoreError> {
        let now = self.parts.clock.since_boot();
        if course.stale && (now >= course.counted_at + COUNT_EVERY || course.backlog.count == 0) {
            course.backlog = self.parts.store.callbacks().backlog(self.name()).await?;
            (course.stale, course.counted_at) = (false, now);
        }
        Ok(())
    }

    /// Lets what is under way end, for a while, and stores it.
    async fn finish(&self, course: &mut Course) {
        let patience = tokio::time::sleep(LAST_ANSWERS);
        tokio::pin!(patience);
        while !course.under_way.is_empty() {
            tokio::select! {
                Some(ended) = course.sending.join_next_with_id() => self.hear(course, ended),
                () = &mut patience => break,
            }
        }
        if let Ok(Err(error)) = tokio::time::timeout(LAST_ANSWERS, self.settle(course)).await {
            tracing::warn!(callback = %self.name(), %error, "answers to callbacks could not be stored; they are sent again");
        }
    }

    fn counted(&self, result: &'static str) {
        let label = ByTargetResult { target: self.name().to_string(), result };
        self.parts.metrics.callbacks.get_or_create(&label).inc();
    }

    fn show(&self, course: &Course) {
        let label = ByTarget { target: self.name().to_string() };
        let metrics = &self.parts.metrics;
        metrics.callbacks_pending.get_or_create(&label).set(i64::try_from(course.backlog.count).unwrap_or(i64::MAX));
        let age = course.backlog.oldest.map_or(Duration::ZERO, |oldest| self.parts.clock.now().since(oldest));
        metrics.callback_age_seconds.get_or_create(&label).set(age.as_secs_f64());
        metrics.callback_gone.get_or_create(&label).set(course.gone.into());
    }

    /// Another node shows the numbers.
    fn hide(&self) {
        let label = ByTarget { target: self.name().to_string() };
        let metrics = &self.parts.metrics;
        metrics.callbacks_pending.remove(&label);
        metrics.callback_age_seconds.remove(&label);
        metrics.callback_gone.remove(&label);
    }

    /// Whether a fault may be told: one line per period.
    fn may_tell(&self) -> bool {
        self.quiet.may_tell(self.parts.clock.since_boot())
    }
}
