//! Makes a list that breaks a claim as short as it will go: fewer operations, then fewer faults, then plainer ones.
//!
//! A candidate counts only where it breaks the same claim, so that a list does not slip from one bug to another.

use super::ops::{Answer, Due, Fault, InTheEnd, Op, Scenario, Scheduler, Setup, Step, Workplace, Wrong};

/// Candidates that are played at most: some seconds.
const MAX_TRIES: usize = 2_000;

/// The shortest list found that still `fails`.
pub fn shrink(scenario: Scenario, mut fails: impl FnMut(&Scenario) -> bool) -> Scenario {
    let mut best = scenario;
    let mut tries = 0;
    loop {
        let before = best.clone();
        best = fewer_steps(best, &mut tries, &mut fails);
        best = plainer(best, &mut tries, &mut fails);
        if best == before || tries > MAX_TRIES {
            return best;
        }
    }
}

/// Leaves out runs of steps, long ones first.
fn fewer_steps(mut best: Scenario, tries: &mut usize, fails: &mut impl FnMut(&Scenario) -> bool) -> Scenario {
    let mut run = best.steps.len();
    while run > 0 {
        let mut at = 0;
        while at < best.steps.len() && *tries <= MAX_TRIES {
            let end = (at + run).min(best.steps.len());
            let mut candidate = best.clone();
            candidate.steps.drain(at..end);
            *tries += 1;
            if fails(&candidate) {
                best = candidate;
            } else {
                at += run;
            }
        }
        run /= 2;
    }
    best
}

/// Takes the first plainer form of each step, and of the setup, that still fails.
fn plainer(mut best: Scenario, tries: &mut usize, fails: &mut impl FnMut(&Scenario) -> bool) -> Scenario {
    let mut candidates: Vec<Scenario> =
        plainer_setups(best.setup).map(|setup| Scenario { setup, ..best.clone() }).collect();
    let mut at = 0;
    loop {
        for candidate in candidates.drain(..) {
            *tries += 1;
            if *tries <= MAX_TRIES && fails(&candidate) {
                best = candidate;
                break;
            }
        }
        let Some(step) = best.steps.get(at) else { return best };
        for plainer in plainer_steps(step) {
            let mut candidate = best.clone();
            candidate.steps[at] = plainer;
            candidates.push(candidate);
        }
        at += 1;
    }
}

fn plainer_setups(setup: Setup) -> impl Iterator<Item = Setup> {
    [
        Setup { attempt_timeout: false, workplace: Workplace::Ready, in_the_end: InTheEnd::Silence, ..setup },
        Setup { workplace: Workplace::Ready, ..setup },
        Setup { attempt_timeout: false, ..setup },
        Setup { in_the_end: InTheEnd::Silence, ..setup },
        Setup { max_attempts: 4, ..setup },
    ]
    .into_iter()
    .filter(move |plainer| *plainer != setup)
}

fn plainer_steps(step: &Step) -> Vec<Step> {
    let mut plainer = Vec::new();
    for at in 0..step.faults.len() {
        let mut fewer = step.clone();
        fewer.faults.remove(at);
        plainer.push(fewer);
        let Fault { at: call, wrong } = step.faults[at];
        let kinds = [Wrong::ErrorBefore, Wrong::Die].into_iter().filter(|kind| *kind != wrong);
        for fault in kinds.map(|wrong| Fault { at: call, wrong }) {
            let mut other = step.clone();
            other.faults[at] = fault;
            plainer.push(other);
        }
    }
    plainer.extend(plainer_ops(step.op).into_iter().map(|op| Step { op, faults: step.faults.clone() }));
    plainer.retain(|candidate| candidate != step);
    plainer
}

fn plainer_ops(op: Op) -> Vec<Op> {
    match op {
        Op::Failed { job, attempt, retryable, .. } => vec![
            Op::Failed { job, attempt: Some(1), retryable: true, id: None },
            Op::Failed { job, attempt, retryable: true, id: None },
            Op::Failed { job, attempt, retryable, id: None },
        ],
        Op::Drain { .. } => vec![Op::Drain { by: Scheduler::A }],
        Op::BothDrain { turns } => vec![
            Op::Drain { by: Scheduler::A },
            Op::BothDrain { turns: 0 },
            Op::BothDrain { turns: 0xAAAA_AAAA },
            Op::BothDrain { turns: turns & 0xFFFF },
        ],
        Op::Wait { .. } => vec![Op::Wait { ms: 60_000 }, Op::Wait { ms: 3_600_000 }],
        Op::Push { job, attempts, .. } => vec![Op::Push { job, attempts, due: Due::In(0) }],
        Op::Work { .. } => vec![Op::Work { then: Answer::DiesSilently }, Op::Work { then: Answer::Fails }],
        Op::Charge { .. }
        | Op::ChargeOtherwise { .. }
        | Op::Succeeded { .. }
        | Op::WrongAccount { .. }
        | Op::Skew { .. }
        | Op::PushJunk { .. }
        | Op::Redrive { .. }
        | Op::RedisEmptied => Vec::new(),
    }
}
