//! All steps that a state allows, and where each leads.

use recoup::backoff::Delays;
use recoup::job::{Job, Phase};
use recoup::transition::{ChargeOutcome, FailureOutcome, RedriveOutcome, SuccessOutcome};

use crate::drain::Move;
use crate::faults::{Cause, check_write};
use crate::job::{JobState, Ticks, at, charge};
use crate::mutation::Mutation;
use crate::reach::{Reach, Reached};
use crate::rules::{Rules, delays};
use crate::scenario::{LIST, MAX_ATTEMPTS, Scenario};
use crate::world::{Drain, FAR, ListEntry, World};

/// What every step goes by.
#[derive(Debug)]
pub struct Context {
    /// The bounds.
    pub scenario: Scenario,
    /// The ledger's commands.
    pub rules: Rules,
    /// The retry schedule.
    pub delays: Delays,
    /// What was come across.
    pub reached: Reached,
}

impl Context {
    /// A search of this scenario, with a guard taken out or with all in place.
    pub fn new(scenario: Scenario, mutation: Option<Mutation>) -> Self {
        Self { scenario, rules: Rules(mutation), delays: delays(), reached: Reached::default() }
    }

    /// Whether this guard is taken out.
    pub fn without(&self, guard: Mutation) -> bool {
        self.rules.0 == Some(guard)
    }

    /// Marks what was come across.
    pub fn reach(&self, what: Reach) {
        self.reached.mark(what);
    }
}

/// One step of anybody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A failure signal is handled.
    Failed {
        /// Of which attempt.
        attempt: Option<u8>,
        /// Its event.
        event: Option<u8>,
        /// Whether a retry can mend it.
        retryable: bool,
        /// Whether the push after the write arrives.
        queued: bool,
        /// The time by the clock that handles it.
        clock: Ticks,
    },
    /// The job is charged again.
    ChargedAgain,
    /// A success signal is handled, by a clock that stands so.
    Succeeded(Ticks),
    /// Another producer pushes an entry.
    Foreign {
        /// Its attempts.
        attempts: u8,
        /// When it is due.
        due: Ticks,
    },
    /// Redis loses everything.
    EmptyRedis,
    /// A person sends the job back; whether the push after the write arrives.
    Redrive(bool),
    /// A drain takes a step.
    Drain(usize, Move),
}

impl World {
    /// Every step that anybody may take next; some of them lead nowhere new.
    pub fn actions(&self, cx: &Context, actions: &mut Vec<Action>) {
        if self.fault.is_some() {
            return;
        }
        let drains = &self.drains[..cx.scenario.drains];
        if !cx.scenario.prompt || drains.iter().all(|drain| *drain == Drain::FRESH) {
            actions.push(Action::Tick);
        }
        self.signals(cx, actions);
        if self.left.foreign > 0 && self.list[LIST - 1].is_none() {
            let lowest = if cx.scenario.poison { MAX_ATTEMPTS } else { 1 };
            for attempts in lowest..=MAX_ATTEMPTS {
                actions.push(Action::Foreign { attempts, due: 0 });
                if !cx.scenario.poison {
                    actions.push(Action::Foreign { attempts, due: FAR });
                }
            }
        }
        if self.left.emptied > 0 {
            actions.push(Action::EmptyRedis);
        }
        if self.left.redrives > 0 && self.job.attempts < MAX_ATTEMPTS {
            actions.extend([Action::Redrive(true), Action::Redrive(false)]);
        }
        let mut moves = Vec::new();
        for drain in 0..cx.scenario.drains {
            moves.clear();
            self.moves(drain, cx, &mut moves);
            actions.extend(moves.iter().map(|next| Action::Drain(drain, *next)));
        }
    }

    fn signals(&self, cx: &Context, actions: &mut Vec<Action>) {
        let signals = cx.scenario.signals;
        let mut failures: Vec<(Option<u8>, Option<u8>)> =
            (1..=signals.known).map(|k| (Some(k), None)).collect();
        if self.job.attempts < MAX_ATTEMPTS || self.job.phase != Phase::Running {
            failures.extend(signals.unknown.then_some((None, None)));
            failures.extend((0..signals.events).map(|event| (None, Some(event))));
        }
        let clocks: &[Ticks] = if self.left.slow_clocks > 0 { &[0, -1] } else { &[0] };
        for &clock in clocks {
            for &(attempt, event) in &failures {
                for queued in [true, false] {
                    actions.push(Action::Failed { attempt, event, retryable: true, queued, clock });
                }
                if signals.verdicts {
                    actions.push(Action::Failed { attempt, event, retryable: false, queued: false, clock });
                }
            }
            actions.extend(signals.charges.then_some(Action::ChargedAgain));
            actions.extend(signals.success.then_some(Action::Succeeded(clock)));
        }
    }

    /// Where a step leads; `None` where it changes nothing.
    pub fn after(&self, action: Action, cx: &Context) -> Option<Self> {
        let mut next = *self;
        let happened = next.take(action, cx);
        next.settle(&cx.scenario);
        (happened && next != *self).then_some(next)
    }

    fn take(&mut self, action: Action, cx: &Context) -> bool {
        match action {
            Action::Tick => {
                self.age();
                true
            }
            Action::Failed { attempt, event, retryable, queued, clock } => {
                let wrote = self.failed((attempt, event, retryable), clock, cx);
                wrote && self.queue_retry(queued)
            }
            Action::ChargedAgain => self.charged_again(cx),
            Action::Succeeded(clock) => self.succeeded(clock, cx),
            Action::Foreign { attempts, due } => {
                self.left.foreign -= 1;
                self.push(ListEntry { attempts, due, foreign: cx.without(Mutation::NoCanonicalForm) })
            }
            Action::EmptyRedis => {
                self.left.emptied -= 1;
                self.empty_redis();
                true
            }
            Action::Redrive(queued) => self.redriven(cx) && self.queue_retry(queued),
            Action::Drain(drain, next) => {
                self.go(drain, next, cx);
                true
            }
        }
    }

    fn use_clock(&mut self, clock: Ticks) {
        self.left.slow_clocks -= u8::from(clock < 0);
    }

    fn failed(&mut self, signal: (Option<u8>, Option<u8>, bool), clock: Ticks, cx: &Context) -> bool {
        let (attempt, event, retryable) = signal;
        let before = self.job.to_job();
        let step = cx.rules.failure(&before, signal, &cx.delays, at(clock));
        let verdict = !retryable && before.phase == Phase::RetryWaiting && !self.ghosts.redriven;
        let is_second = attempt.is_none_or(|k| u32::from(k) == before.attempts);
        let counted = step.after.as_ref().is_some_and(|after| after.attempts > before.attempts);
        cx.reach(match step.outcome {
            FailureOutcome::Refunded => Reach::Refunded,
            FailureOutcome::FailureRecorded if !counted => Reach::Verdict,
            FailureOutcome::FailureRecorded => match before.phase {
                Phase::DeadLettered | Phase::Failed => Reach::FailureSetAside,
                Phase::Running | Phase::RetryWaiting | Phase::Delivered => Reach::FailureRecorded,
            },
            FailureOutcome::AlreadyDelivered => Reach::FailureDelivered,
            FailureOutcome::Duplicate => Reach::FailureDuplicate,
        });
        let stopped = self.ghosts.stopped || (verdict && is_second && !counted);
        let wrote = step.after.is_some();
        if let Some(after) = step.after {
            self.use_clock(clock);
            self.write(&before, &after, Cause::Failure(attempt, event));
        }
        let stops_now = stopped && !self.ghosts.stopped && !counted;
        self.ghosts.stopped |= stops_now;
        wrote || stops_now
    }

    fn charged_again(&mut self, cx: &Context) -> bool {
        let before = self.job.to_job();
        let step = cx.rules.charge_again(&before, &charge(cx.scenario.cap), at(0));
        if step.outcome == ChargeOutcome::Duplicate {
            cx.reach(Reach::ChargeDuplicate);
        }
        step.after.is_some_and(|after| {
            self.write(&before, &after, Cause::Charge);
            true
        })
    }

    fn succeeded(&mut self, clock: Ticks, cx: &Context) -> bool {
        let before = self.job.to_job();
        let step = cx.rules.success(&before, at(clock));
        let set_aside = matches!(before.phase, Phase::DeadLettered | Phase::Failed);
        cx.reach(match step.outcome {
            SuccessOutcome::Delivered => Reach::Delivered,
            SuccessOutcome::Reclaimed if set_aside => Reach::ReclaimedSetAside,
            SuccessOutcome::Reclaimed => Reach::Reclaimed,
            SuccessOutcome::Duplicate => Reach::SuccessDuplicate,
        });
        if let Some(after) = step.after {
            self.use_clock(clock);
            self.write(&before, &after, Cause::Success);
        }
        self.blame(self.job.phase != Phase::Delivered, crate::Fault::SuccessLost);
        true
    }

    fn redriven(&mut self, cx: &Context) -> bool {
        let before = self.job.to_job();
        let step = cx.rules.redrive(&before, at(0));
        if step.outcome == RedriveOutcome::Redriven {
            let dead = before.phase == Phase::DeadLettered;
            cx.reach(if dead { Reach::RedrivenDead } else { Reach::RedrivenFailed });
        }
        let Some(after) = step.after else { return false };
        self.left.redrives -= 1;
        self.write(&before, &after, Cause::Redrive);
        true
    }

    /// Takes over what a command wrote, and checks it.
    pub fn write(&mut self, before: &Job, after: &Job, cause: Cause) {
        if let Some(fault) = check_write(before, after, cause, &self.ghosts) {
            self.fault.get_or_insert(fault);
        }
        self.job = JobState::of(after);
        let ghosts = &mut self.ghosts;
        if after.attempts > before.attempts {
            (ghosts.pushed, ghosts.pushed_loosely) = (false, false);
            (ghosts.started, ghosts.stopped, ghosts.redriven) = (false, false, false);
            // An entry of the attempts before no longer finds its dead letter open.
            ghosts.letter_excused |= after.phase == Phase::DeadLettered;
            if let Cause::Failure(_, Some(event)) = cause {
                ghosts.events |= 1 << event;
            }
        }
        if cause == Cause::Redrive {
            (ghosts.started, ghosts.stopped, ghosts.redriven) = (false, false, true);
        }
    }

    /// Pushes the retry of a job that waits; false where there is none to push.
    pub fn queue_retry(&mut self, queued: bool) -> bool {
        let Some(due) = self.job.not_before.filter(|_| queued) else { return !queued };
        self.push(ListEntry { attempts: self.job.attempts, due: due.max(0), foreign: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    /// A walk's choices, the same each time: xorshift.
    struct Choices(u64);

    impl Choices {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % bound as u64).unwrap()
        }
    }

    /// Settling must lose nothing that any later step could see: the same steps, taken by a world that is settled
    /// after each and by one that never is, must end alike.
    #[test]
    fn a_world_that_is_never_settled_goes_the_same_way() {
        // Bytes of entries that are past due are told apart in the one and not in the other, so no copies here.
        let exact = Scenario { foreign: 0, redrives: 0, ..scenario::OUTSIDE };
        let silent = Scenario { foreign: 0, ..scenario::SILENCE };
        let mut steps = 0;
        for scenario in [scenario::SIGNALS, scenario::EMPTIED, scenario::PROMPT, exact, silent] {
            let cx = Context::new(scenario, None);
            let mut choices = Choices(0x9E37_79B9_7F4A_7C15);
            for _ in 0..2_000 {
                let mut settled = World::start(&scenario);
                let mut raw = settled;
                for _ in 0..60 {
                    let mut actions = Vec::new();
                    settled.actions(&cx, &mut actions);
                    if choices.below(4) > 0 {
                        // Else signals end most walks before a drain has got anywhere.
                        actions.retain(|action| matches!(action, Action::Tick | Action::Drain(..)));
                    }
                    let action = actions[choices.below(actions.len())];
                    settled = settled.after(action, &cx).unwrap_or(settled);
                    let before = raw;
                    if !raw.take(action, &cx) {
                        raw = before;
                    }
                    let mut compared = raw;
                    compared.settle(&scenario);
                    assert_eq!(compared, settled, "{}: after {action:?}", scenario.name);
                    steps += 1;
                }
            }
        }
        assert!(steps > 200_000, "the walks got no farther than {steps} steps");
    }

    #[test]
    fn a_job_is_brought_back_as_it_was() {
        let cx = Context::new(scenario::SIGNALS, None);
        let mut here = World::start(&cx.scenario);
        let failed =
            Action::Failed { attempt: None, event: Some(1), retryable: true, queued: true, clock: 0 };
        for action in [failed, Action::Tick, Action::Succeeded(0)] {
            here = here.after(action, &cx).unwrap();
            assert_eq!(JobState::of(&here.job.to_job()), here.job);
            assert_eq!(here.job.to_job().violations(), Vec::<String>::new());
        }
    }

    #[test]
    fn states_that_differ_only_in_which_drain_is_which_count_as_one() {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        let cx = Context::new(scenario::DRAINS, None);
        let failed =
            Action::Failed { attempt: Some(1), event: None, retryable: true, queued: true, clock: 0 };
        let failed = World::start(&cx.scenario).after(failed, &cx).unwrap();
        let [a, b] = [0, 1].map(|drain| failed.after(Action::Drain(drain, Move::Look), &cx).unwrap());
        let print = |world: &World| BuildHasherDefault::<DefaultHasher>::default().hash_one(world);
        assert_ne!(a, b);
        assert_eq!(print(&a), print(&b));
        assert_ne!(print(&a), print(&failed));
    }
}
