//! The gate that every call of a port goes through: it counts the calls of an operation, makes them fail where the list
//! says so, lets two processes take turns, and writes down what was really applied.
//!
//! A process makes one call at a time, in the order in which it asked. A drain has up to ten calls on the way at once;
//! behind the gate their order does not depend on which answer is back first, so that the same list is the same life
//! on a map and on servers, and "the n-th call" means the same call.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use recoup::clock::Timestamp;
use recoup::dispatch::DispatchError;
use recoup::job::{Job, JobId};
use recoup::ledger::LedgerError;
use recoup::queue::{DispatchMessage, List, NewEntry, QueueError, RetryEntry};
use recoup::transition::{
    ChargeOutcome, DispatchOutcome, ExhaustedOutcome, FailureOutcome, RedriveOutcome, SilenceOutcome,
    SuccessOutcome,
};
use tokio::sync::Notify;

use super::ops::{At, Call, Fault, Scheduler, Wrong};

/// What a call really did, whatever its caller was told.
#[derive(Clone, Debug)]
pub enum Flow {
    /// A charge was answered.
    Charge(ChargeOutcome, Box<Job>),
    /// A failure was answered.
    Failure(FailureOutcome, Box<Job>),
    /// A success was answered.
    Success(SuccessOutcome, Box<Job>),
    /// Silence was answered.
    Silence(SilenceOutcome, Box<Job>),
    /// A redrive was answered.
    Redrive(RedriveOutcome, Box<Job>),
    /// A due retry was decided on, at this time.
    Dispatch(DispatchOutcome, Box<Job>, Timestamp),
    /// Exhausted claims were decided on.
    Exhausted(ExhaustedOutcome, Box<Job>),
    /// A hand-over was recorded.
    Noted(JobId, u32),
    /// Bytes came to the list of new entries.
    Pushed(Vec<u8>),
    /// These were taken off its head.
    Taken(Vec<NewEntry>),
    /// These were parked unless they stood somewhere.
    Parked(Vec<RetryEntry>),
    /// A claim ended with a message in a list.
    HandedOver {
        /// What was claimed.
        member: Vec<u8>,
        /// Where to.
        to: List,
        /// What.
        message: String,
    },
    /// A claim ended without.
    Acknowledged(Vec<u8>),
    /// Work was sent to the target outside the queue.
    Sent(DispatchMessage),
    /// A worker took the oldest message of the ready list.
    WorkerTook,
}

/// What can lose the queue.
pub trait Emptier: Sync {
    /// It loses everything.
    fn lose(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

#[derive(Debug, Default)]
struct State {
    calls: u32,
    outage: bool,
    turn: u32,
    left: [bool; 2],
    flows: Vec<Flow>,
    faults_met: u64,
    undecided: u64,
    emptied: bool,
    disturbed: Option<String>,
    broken: Option<String>,
}

/// What an operation left behind.
#[derive(Debug, Default)]
pub struct Record {
    /// What was applied, in order.
    pub flows: Vec<Flow>,
    /// Calls that were made.
    pub calls: u32,
    /// Faults that found their call.
    pub faults_met: u64,
    /// Decisions of the ledger on a claim that a drain was not told, because the call failed.
    pub undecided: u64,
    /// Whether Redis was emptied.
    pub emptied: bool,
    /// What went wrong by itself: a store that did not answer, or not in time. What was applied is then not known.
    pub disturbed: Option<String>,
    /// A store that refused what it should take, or cannot read what it wrote.
    pub broken: Option<String>,
}

impl Record {
    /// Whether no store was called at all.
    pub fn changed_nothing(&self) -> bool {
        self.calls == 0 && self.flows.is_empty() && !self.emptied
    }
}

/// What an error that no fault made says of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Nothing: the caller asked for what cannot be.
    Caller,
    /// It was not to be reached.
    Weather,
    /// It is at fault.
    Store,
}

/// An error of a port.
pub trait PortError: fmt::Display {
    /// The error that an injected fault shows.
    fn injected() -> Self;

    /// Whom it blames.
    fn blame(&self) -> Blame;
}

const INJECTED: &str = "a fault of the simulation";

impl PortError for LedgerError {
    fn injected() -> Self {
        Self::Unavailable { store: "the ledger", what: INJECTED.to_owned() }
    }

    fn blame(&self) -> Blame {
        match self {
            Self::UnknownJob(_) | Self::AccountMismatch { .. } => Blame::Caller,
            Self::Unavailable { .. } => Blame::Weather,
            Self::Unreadable { .. } | Self::Refused { .. } | Self::Overflow(_) => Blame::Store,
        }
    }
}

impl PortError for QueueError {
    fn injected() -> Self {
        Self::Unavailable { store: "the queue", what: INJECTED.to_owned() }
    }

    fn blame(&self) -> Blame {
        match self {
            Self::Unavailable { .. } => Blame::Weather,
            Self::Refused { .. } => Blame::Store,
        }
    }
}

impl PortError for DispatchError {
    fn injected() -> Self {
        Self(INJECTED.to_owned())
    }

    fn blame(&self) -> Blame {
        Blame::Weather
    }
}

/// The gate of one operation.
pub struct Gate<'s> {
    faults: &'s [Fault],
    turns: Option<u32>,
    state: Mutex<State>,
    moved: Notify,
    emptier: &'s dyn Emptier,
}

impl fmt::Debug for Gate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl<'s> Gate<'s> {
    /// With these faults, and with these turns where two processes go through.
    pub fn new(faults: &'s [Fault], turns: Option<u32>, emptier: &'s dyn Emptier) -> Self {
        Self { faults, turns, state: Mutex::default(), moved: Notify::new(), emptier }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down what was applied.
    pub fn note(&self, flow: Flow) {
        self.state().flows.push(flow);
    }

    /// Redis is lost.
    pub async fn lose_redis(&self) {
        self.emptier.lose().await;
        self.state().emptied = true;
    }

    /// The end of the operation.
    pub fn finish(self) -> Record {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let State { flows, calls, faults_met, undecided, emptied, disturbed, broken, .. } = state;
        Record { flows, calls, faults_met, undecided, emptied, disturbed, broken }
    }

    /// What goes wrong with the next call.
    fn next_call(&self, which: Call) -> Option<Wrong> {
        let mut state = self.state();
        state.calls += 1;
        let decides = matches!(which, Call::Dispatch | Call::ClaimsExhausted);
        if state.outage {
            state.undecided += u64::from(decides);
            return Some(Wrong::ErrorBefore);
        }
        let calls = state.calls;
        let strikes = |fault: &&Fault| match fault.at {
            At::Number(at) => at == calls,
            At::Each(call) => call == which,
        };
        let fault = self.faults.iter().find(strikes).map(|fault| fault.wrong);
        state.faults_met += u64::from(fault.is_some());
        state.outage = fault == Some(Wrong::Outage);
        let fails = matches!(fault, Some(Wrong::ErrorBefore | Wrong::ErrorAfter | Wrong::Outage));
        state.undecided += u64::from(fails && decides);
        fault
    }

    fn is_turn_of(&self, who: Scheduler) -> bool {
        let Some(turns) = self.turns else { return true };
        let state = self.state();
        let next = if turns.rotate_right(state.turn) & 1 == 0 { Scheduler::A } else { Scheduler::B };
        next == who || state.left[next as usize]
    }

    async fn wait_for_turn(&self, who: Scheduler) {
        loop {
            let moved = self.moved.notified();
            if self.is_turn_of(who) {
                return;
            }
            moved.await;
        }
    }

    fn end_turn(&self) {
        let mut state = self.state();
        state.turn = (state.turn + 1) % u32::BITS;
        drop(state);
        self.moved.notify_waiters();
    }

    fn leave(&self, who: Scheduler) {
        self.state().left[who as usize] = true;
        self.moved.notify_waiters();
    }
}

/// A process that makes calls, until it ends or dies.
#[derive(Debug)]
pub struct Process<'g> {
    gate: &'g Gate<'g>,
    who: Scheduler,
    in_order: tokio::sync::Mutex<()>,
    dead: AtomicBool,
    died: Notify,
}

impl<'g> Process<'g> {
    /// One that goes through this gate.
    pub fn new(gate: &'g Gate<'g>, who: Scheduler) -> Self {
        let in_order = tokio::sync::Mutex::new(());
        Self { gate, who, in_order, dead: AtomicBool::new(false), died: Notify::new() }
    }

    /// Does the work, as far as the process lives: `None` where it died.
    pub async fn live<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let done = tokio::select! {
            biased;
            () = self.died.notified() => None,
            done = work => Some(done),
        };
        self.gate.leave(self.who);
        done
    }

    /// Never returns; whoever waits for this process drops it.
    async fn die<T>(&self) -> T {
        self.dead.store(true, Ordering::Relaxed);
        self.died.notify_one();
        pending().await
    }

    /// Makes a call, or lets it go wrong. `applied` writes down what the call did.
    pub async fn pass<T, E: PortError>(
        &self,
        which: Call,
        call: impl Future<Output = Result<T, E>>,
        applied: impl FnOnce(&T, &mut Vec<Flow>),
    ) -> Result<T, E> {
        // The drivers' futures are large, and a test's stack is small.
        let call = Box::pin(call);
        let mut whole = Whole { process: self, is: false };
        let in_order = self.in_order.lock().await;
        self.gate.wait_for_turn(self.who).await;
        yield_once().await;
        let wrong = self.gate.next_call(which);
        let answer = match wrong {
            Some(Wrong::ErrorBefore | Wrong::Outage) => Err(E::injected()),
            Some(Wrong::Die) => self.die().await,
            Some(Wrong::RedisLost) => {
                self.gate.lose_redis().await;
                self.apply(call, applied).await
            }
            Some(Wrong::ErrorAfter) => match self.apply(call, applied).await {
                Ok(_) => Err(E::injected()),
                Err(error) => Err(error),
            },
            Some(Wrong::DieAfter) => {
                drop(self.apply(call, applied).await);
                self.die().await
            }
            None => self.apply(call, applied).await,
        };
        whole.is = true;
        self.gate.end_turn();
        drop(in_order);
        answer
    }

    async fn apply<T, E: PortError>(
        &self,
        call: impl Future<Output = Result<T, E>>,
        applied: impl FnOnce(&T, &mut Vec<Flow>),
    ) -> Result<T, E> {
        let answer = call.await;
        match &answer {
            Ok(answer) => applied(answer, &mut self.gate.state().flows),
            Err(error) => match error.blame() {
                Blame::Caller => {}
                Blame::Weather => self.gate.state().disturbed = Some(error.to_string()),
                Blame::Store => self.gate.state().broken = Some(error.to_string()),
            },
        }
        answer
    }
}

/// Notices a call that its caller gave up on.
struct Whole<'p, 'g> {
    process: &'p Process<'g>,
    is: bool,
}

impl Drop for Whole<'_, '_> {
    fn drop(&mut self) {
        if !self.is && !self.process.dead.load(Ordering::Relaxed) {
            self.process.gate.state().disturbed = Some("a call was given up on".to_owned());
        }
    }
}

/// A store in memory answers at once; with this it does so as late as a server does, in the same order.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
