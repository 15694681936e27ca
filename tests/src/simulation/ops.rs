//! A simulated life as data: what happens, in which order, and what goes wrong where.
//!
//! A [`Scenario`] prints itself as the Rust expression that makes it, so that a list which found a bug is pasted into
//! a test as it stands.

use std::fmt;

/// One of the two scheduler instances, each with a clock of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// The first.
    A,
    /// The second.
    B,
}

/// Where a drain hands work over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workplace {
    /// The queue's own list.
    Ready,
    /// A target outside the queue.
    Outside,
}

/// What the workers do once the list is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InTheEnd {
    /// Nobody takes anything or says anything.
    Silence,
    /// Whatever is handed over is taken and succeeds.
    Work,
}

/// What holds for a whole list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Failures after which a job is dead-lettered.
    pub max_attempts: u32,
    /// Whether silence becomes a failure.
    pub attempt_timeout: bool,
    /// Where work goes.
    pub workplace: Workplace,
    /// How it ends.
    pub in_the_end: InTheEnd,
}

/// When a foreign producer says that a retry is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// So many milliseconds from now, negative for the past.
    In(i64),
    /// The same, written as RFC 3339.
    Written(i64),
    /// In three thousand years.
    FarOff,
}

/// Bytes that are no retry entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Junk {
    /// No bytes.
    Empty,
    /// Text.
    NotJson,
    /// JSON, but no object.
    Null,
    /// No text.
    NotUtf8,
    /// More than is kept.
    Large,
    /// An attempt that cannot be.
    NoAttempts,
    /// A time in seconds.
    Seconds,
}

/// What a worker does with the message that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It delivers.
    Succeeds,
    /// Another attempt can mend it.
    Fails,
    /// No other attempt can mend it.
    FailsForGood,
    /// It dies with the message in its hand.
    DiesSilently,
    /// It delivers, and says so twice.
    SucceedsTwice,
    /// It is taken for dead, and delivers after all.
    FailsThenSucceeds,
    /// It delivers, and is taken for dead then.
    SucceedsThenFails,
}

/// One thing that happens. Jobs are numbered; a job that nobody charged is unknown to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The job is charged, always for the same cost.
    Charge {
        /// The job.
        job: u8,
    },
    /// The job is charged for another cost, which conflicts where it is there already.
    ChargeOtherwise {
        /// The job.
        job: u8,
    },
    /// A failure signal.
    Failed {
        /// The job.
        job: u8,
        /// The attempt, where the signal says which.
        attempt: Option<u32>,
        /// Whether another attempt can mend it.
        retryable: bool,
        /// The number of its id, where it has one: the same number is the same event again.
        id: Option<u8>,
    },
    /// A success signal.
    Succeeded {
        /// The job.
        job: u8,
    },
    /// A failure signal that names another account than the job's.
    WrongAccount {
        /// The job.
        job: u8,
    },
    /// A drain.
    Drain {
        /// Whose.
        by: Scheduler,
    },
    /// A drain of each scheduler at once. Whose port call comes next is a bit of `turns`, from the lowest, over and
    /// over: 0 for A, 1 for B.
    BothDrain {
        /// The turns.
        turns: u32,
    },
    /// All clocks move on.
    Wait {
        /// Milliseconds.
        ms: u32,
    },
    /// A scheduler's clock is wrong by so much from here on; it may go back by that.
    Skew {
        /// Whose.
        of: Scheduler,
        /// Milliseconds ahead, or behind where negative.
        ms: i64,
    },
    /// Another program pushes a retry.
    Push {
        /// The job.
        job: u8,
        /// The failures that it names.
        attempts: u32,
        /// When it is due.
        due: Due,
    },
    /// Another program pushes what is no retry.
    PushJunk {
        /// What.
        junk: Junk,
    },
    /// A worker takes the oldest message, if there is one.
    Work {
        /// And then?
        then: Answer,
    },
    /// A person sends the job back.
    Redrive {
        /// The job.
        job: u8,
    },
    /// All keys of the queue are gone.
    RedisEmptied,
}

/// What goes wrong with one call of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// An error; nothing was applied.
    ErrorBefore,
    /// An error; it was applied, and the answer got lost.
    ErrorAfter,
    /// This call and all after it in the operation are errors; nothing is applied.
    Outage,
    /// The process dies before it makes the call.
    Die,
    /// The process dies with the call applied.
    DieAfter,
    /// Redis loses everything just before the call.
    RedisLost,
}

/// A call of a port: of the ledger, of the queue, or of the target outside it. Named as its method is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Call {
    Charge,
    RecordFailure,
    RecordSuccess,
    Dispatch,
    HandOverDone,
    ClaimsExhausted,
    NoSignal,
    Redrive,
    AtCap,
    Outstanding,
    Push,
    LookAtNew,
    TakeNew,
    ClaimDue,
    ClaimExpired,
    HandOver,
    Acknowledge,
    GiveBack,
    ParkMissing,
    SweepCursor,
    KeepSweepCursor,
    Depths,
    Missing,
    Send,
}

/// Which call of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The n-th, counted from 1.
    Number(u32),
    /// Each of this method.
    Each(Call),
}

/// A fault on a call of a port in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which call.
    pub at: At,
    /// What goes wrong.
    pub wrong: Wrong,
}

/// An operation and its faults.
#[derive(Clone, PartialEq, Eq)]
pub struct Step {
    /// What happens.
    pub op: Op,
    /// What goes wrong meanwhile.
    pub faults: Vec<Fault>,
}

/// A step in which nothing goes wrong.
pub fn step(op: Op) -> Step {
    Step { op, faults: Vec::new() }
}

impl Step {
    /// The same, with this fault on the call number `at`.
    #[must_use]
    pub fn fault(mut self, at: u32, wrong: Wrong) -> Self {
        self.faults.push(Fault { at: At::Number(at), wrong });
        self
    }

    /// The same, with this fault on each call of this method.
    #[must_use]
    pub fn each(mut self, call: Call, wrong: Wrong) -> Self {
        self.faults.push(Fault { at: At::Each(call), wrong });
        self
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step({:?})", self.op)?;
        self.faults.iter().try_for_each(|fault| match fault.at {
            At::Number(at) => write!(f, ".fault({at}, {:?})", fault.wrong),
            At::Each(call) => write!(f, ".each(Call::{call:?}, {:?})", fault.wrong),
        })
    }
}

/// A whole list.
#[derive(Clone, PartialEq, Eq)]
pub struct Scenario {
    /// What holds throughout.
    pub setup: Setup,
    /// What happens.
    pub steps: Vec<Step>,
}

/// With `use recoup_tests::simulation::ops::{Answer::*, Due::*, InTheEnd::*, Junk::*, Op::*, Scheduler::*,
/// Workplace::*, Wrong::*, *}` this is Rust.
impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Scenario {{\n    setup: {:?},\n    steps: vec![", self.setup)?;
        for step in &self.steps {
            writeln!(f, "        {step:?},")?;
        }
        write!(f, "    ],\n}}")
    }
}

impl Scenario {
    /// Whether this is a life without faults, wrong clocks, other programs, losses and drains at once, in which
    /// nothing may happen twice or early.
    pub fn is_calm(&self) -> bool {
        self.steps.iter().all(|step| {
            step.faults.is_empty()
                && match step.op {
                    Op::BothDrain { .. } | Op::Skew { .. } | Op::Push { .. } | Op::RedisEmptied => false,
                    Op::Charge { .. }
                    | Op::ChargeOtherwise { .. }
                    | Op::Failed { .. }
                    | Op::Succeeded { .. }
                    | Op::WrongAccount { .. }
                    | Op::Drain { .. }
                    | Op::Wait { .. }
                    | Op::PushJunk { .. }
                    | Op::Work { .. }
                    | Op::Redrive { .. } => true,
                }
        })
    }
}
