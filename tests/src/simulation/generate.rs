//! Lists from seeds. The same seed and length give the same list, on every machine.
//!
//! Few jobs and small numbers, so that things meet: an event its double, a retry its foreign copy, a drain the clock
//! that its neighbour has wrong. Each seed also rolls what kind of life it is, because a list in which everything goes
//! wrong at once hides what one fault alone does.

use fastrand::Rng;
use recoup::job::MAX_ATTEMPT;

use super::ops::{
    Answer, At, Call, Due, Fault, InTheEnd, Junk, Op, Scenario, Scheduler, Setup, Step, Workplace, Wrong,
    step,
};

/// The kind of life that a seed rolls.
struct Kind {
    jobs: u8,
    /// Of a hundred steps, how many have a fault.
    faulty: u32,
    /// What goes wrong with most drains, always at the same step: an entry that kills whoever takes it up, a key that
    /// cannot be written.
    habit: Option<Fault>,
    wrong_clocks: bool,
    foreign: bool,
    losses: bool,
    at_once: bool,
}

impl Kind {
    fn rolled(rng: &mut Rng) -> Self {
        let jobs = rng.u8(1..=4);
        if rng.u8(..8) == 0 {
            return Self {
                jobs,
                faulty: 0,
                habit: None,
                wrong_clocks: false,
                foreign: false,
                losses: false,
                at_once: false,
            };
        }
        let mut kind = Self {
            jobs,
            faulty: [0, 10, 25, 50][rng.usize(..4)],
            habit: None,
            wrong_clocks: rng.u8(..3) == 0,
            foreign: rng.bool(),
            losses: rng.u8(..3) == 0,
            at_once: rng.bool(),
        };
        if rng.u8(..5) == 0 {
            kind.habit = Some(habit(rng, &kind));
        }
        kind
    }
}

/// The list of this seed, of `ops` operations at most.
pub fn generate(seed: u64, ops: usize) -> Scenario {
    let mut rng = Rng::with_seed(seed);
    let kind = Kind::rolled(&mut rng);
    let setup = Setup {
        max_attempts: rng.u32(1..=4),
        attempt_timeout: rng.bool(),
        workplace: if rng.u8(..4) == 0 { Workplace::Outside } else { Workplace::Ready },
        in_the_end: if rng.bool() { InTheEnd::Work } else { InTheEnd::Silence },
    };
    let length = rng.usize(ops.div_ceil(4)..=ops);
    let mut steps = Vec::with_capacity(length + 1);
    for job in 0..kind.jobs {
        if job == 0 || rng.u8(..4) > 0 {
            steps.push(with_faults(&mut rng, &kind, Op::Charge { job }));
        }
    }
    while steps.len() < length {
        let op = next(&mut rng, &kind, &steps);
        if matches!(op, Op::Drain { .. } | Op::BothDrain { .. }) && (kind.habit.is_some() || rng.bool()) {
            // What dies at the same step time and again only does so once its claim has run out.
            let ms = if kind.habit.is_some() { 60_001 } else { wait(&mut rng) };
            steps.push(step(Op::Wait { ms }));
        }
        steps.push(with_faults(&mut rng, &kind, op));
    }
    steps.truncate(length);
    Scenario { setup, steps }
}

fn next(rng: &mut Rng, kind: &Kind, before: &[Step]) -> Op {
    let job = rng.u8(..kind.jobs);
    loop {
        return match rng.u32(..120) {
            0..4 => Op::Charge { job },
            4 => Op::ChargeOtherwise { job },
            5 => Op::WrongAccount { job },
            6..26 => Op::Failed {
                job,
                attempt: attempt(rng),
                retryable: rng.u8(..8) > 0,
                id: rng.bool().then(|| rng.u8(..6)),
            },
            26..32 => Op::Succeeded { job },
            32..64 => Op::Drain { by: scheduler(rng) },
            64..74 if kind.at_once => Op::BothDrain { turns: rng.u32(..) },
            74..81 => Op::Wait { ms: wait(rng) },
            81..86 if kind.wrong_clocks => Op::Skew { of: scheduler(rng), ms: skew(rng) },
            86..92 if kind.foreign => Op::Push { job, attempts: attempt(rng).unwrap_or(1), due: due(rng) },
            92..95 if kind.foreign => Op::PushJunk { junk: junk(rng) },
            95..107 => Op::Work { then: answer(rng) },
            107..112 => Op::Redrive { job },
            112..114 if kind.losses => Op::RedisEmptied,
            114..120 => before[rng.usize(..before.len())].op,
            _ => continue,
        };
    }
}

fn scheduler(rng: &mut Rng) -> Scheduler {
    if rng.bool() { Scheduler::A } else { Scheduler::B }
}

fn attempt(rng: &mut Rng) -> Option<u32> {
    match rng.u32(..100) {
        0 => Some(MAX_ATTEMPT),
        1..40 => Some(1),
        40..55 => Some(2),
        55..62 => Some(3),
        62..65 => Some(rng.u32(4..=6)),
        _ => None,
    }
}

/// Around the bounds that there are: the backoffs, the claim timeout, the sweep's grace, and both; the attempt timeout.
fn wait(rng: &mut Rng) -> u32 {
    [1, 3_999, 4_000, 8_000, 60_000, 60_001, 120_000, 180_001, 900_000, 3_600_000][rng.usize(..10)]
}

fn skew(rng: &mut Rng) -> i64 {
    let ms = [1, 4_000, 60_000, 180_000, 7_200_000][rng.usize(..5)];
    if rng.bool() { ms } else { -ms }
}

fn due(rng: &mut Rng) -> Due {
    match rng.u8(..8) {
        0..3 => Due::In(0),
        3 => Due::In(-3_600_000),
        4 => Due::In(60_000),
        5 => Due::Written(4_000),
        _ => Due::FarOff,
    }
}

fn junk(rng: &mut Rng) -> Junk {
    [Junk::Empty, Junk::NotJson, Junk::Null, Junk::NotUtf8, Junk::Large, Junk::NoAttempts, Junk::Seconds]
        [rng.usize(..7)]
}

fn answer(rng: &mut Rng) -> Answer {
    [
        Answer::Succeeds,
        Answer::Fails,
        Answer::Fails,
        Answer::FailsForGood,
        Answer::DiesSilently,
        Answer::SucceedsTwice,
        Answer::FailsThenSucceeds,
        Answer::SucceedsThenFails,
    ][rng.usize(..8)]
}

fn with_faults(rng: &mut Rng, kind: &Kind, op: Op) -> Step {
    let mut step = step(op);
    let Some(calls) = calls_of(op) else { return step };
    if let Some(habit) = kind.habit.filter(|_| calls > 10 && rng.u8(..32) > 0) {
        step.faults.push(habit);
        return step;
    }
    let mut share = kind.faulty;
    while step.faults.len() < 3 && rng.u32(..100) < share {
        step.faults.push(Fault { at: At::Number(rng.u32(1..=calls)), wrong: wrong(rng, kind) });
        share = 25;
    }
    step
}

/// How many calls of the ports an operation makes, roughly; `None` for one that makes none.
fn calls_of(op: Op) -> Option<u32> {
    match op {
        Op::Charge { .. } | Op::ChargeOtherwise { .. } | Op::Succeeded { .. } | Op::WrongAccount { .. } => {
            Some(1)
        }
        Op::Failed { .. } | Op::Redrive { .. } => Some(2),
        Op::Work { .. } => Some(3),
        Op::Drain { .. } => Some(16),
        Op::BothDrain { .. } => Some(30),
        Op::Wait { .. } | Op::Skew { .. } | Op::Push { .. } | Op::PushJunk { .. } | Op::RedisEmptied => None,
    }
}

fn habit(rng: &mut Rng, kind: &Kind) -> Fault {
    let steps = [
        Call::Dispatch,
        Call::Dispatch,
        Call::HandOver,
        Call::HandOver,
        Call::HandOverDone,
        Call::Acknowledge,
        Call::GiveBack,
        Call::ClaimsExhausted,
        Call::ParkMissing,
        Call::NoSignal,
        Call::Send,
    ];
    Fault { at: At::Each(steps[rng.usize(..steps.len())]), wrong: wrong(rng, kind) }
}

fn wrong(rng: &mut Rng, kind: &Kind) -> Wrong {
    match rng.u8(..16) {
        0..4 => Wrong::ErrorBefore,
        4..8 => Wrong::ErrorAfter,
        8..12 => Wrong::Die,
        12..14 => Wrong::DieAfter,
        14 if kind.losses => Wrong::RedisLost,
        _ => Wrong::Outage,
    }
}
