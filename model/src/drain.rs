//! A drain, one step at a time, in the order of the library's `handlers::drain`.
//!
//! A pass runs its stages one after the other. Here a drain that is between two stages may begin any of them: that
//! allows every order that a pass has, and more, and saves the states that would only say how far it got. What the
//! order is needed for is kept: overdue jobs are swept only by a drain that saw the list empty. A read that a guarded
//! write repeats (the search for silent attempts) is one step with it, since the guard decides anyway. Entries claimed
//! together are taken up one after the other, in any order.

use recoup::job::Phase;
use recoup::transition::{DispatchOutcome, ExhaustedOutcome, SilenceOutcome};

use crate::faults::{Cause, Fault};
use crate::job::{at, span};
use crate::mutation::Mutation;
use crate::reach::Reach;
use crate::scenario::{CLAIM_TIMEOUT, LIST, MAX_ATTEMPTS, MAX_EXPIRED, SWEEP_GRACE, Target};
use crate::steps::Context;
use crate::world::{Drain, LIST_IS_EMPTY, MEMBERS, Place, World, attempts_of, member_of};

/// What a drain does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// Counts silence as a failure; whether the push after it arrives.
    FailSilent(bool),
    /// Looks at the list.
    Look,
    /// Takes what it looked at.
    Take,
    /// Reads the overdue retries.
    SweepOverdue,
    /// Reads the open hand-overs.
    SweepOpen,
    /// Parks what the sweep read.
    ParkMissing,
    /// Claims what is due.
    ClaimDue,
    /// Claims this member, whose claim ran out.
    ClaimExpired(usize),
    /// Asks the ledger what to do with this claim.
    Decide(usize),
    /// Takes the next step with the claim at hand.
    Settle,
    /// Could not go on with this claim: gives it back.
    GiveBack(usize),
    /// Could not note the hand-over, and leaves it.
    LeaveUnnoted,
    /// Dies.
    Die,
}

impl World {
    /// Everything that this drain may do next.
    pub fn moves(&self, drain: usize, cx: &Context, moves: &mut Vec<Move>) {
        let held = self.drains[drain].held;
        match self.drains[drain].place {
            Place::Idle => self.idle_moves(cx, moves),
            Place::Looked(_) => moves.push(Move::Take),
            Place::SeenEmpty => moves.push(Move::SweepOverdue),
            Place::Sweeping(_) => moves.push(Move::ParkMissing),
            Place::Holding => {
                for member in (0..MEMBERS).filter(|member| held[*member].is_some()) {
                    moves.push(Move::Decide(member));
                    if cx.scenario.setbacks {
                        moves.push(Move::GiveBack(member));
                    }
                }
            }
            Place::HandedOver(_) => {
                moves.push(Move::Settle);
                if cx.scenario.setbacks {
                    moves.push(Move::LeaveUnnoted);
                }
            }
            Place::Work(member, _)
            | Place::Sent(member)
            | Place::Noted(member)
            | Place::SetAside(member)
            | Place::Unwanted(member)
            | Place::Afresh(member) => {
                moves.push(Move::Settle);
                if cx.scenario.setbacks {
                    moves.push(Move::GiveBack(member));
                }
            }
            Place::LetGo(..) => moves.push(Move::Settle),
        }
        if self.left.deaths > 0 && self.drains[drain] != Drain::FRESH {
            moves.push(Move::Die);
        }
    }

    fn idle_moves(&self, cx: &Context, moves: &mut Vec<Move>) {
        if cx.scenario.attempt_timeout.is_some() {
            moves.extend([Move::FailSilent(true), Move::FailSilent(false)]);
        }
        // An empty list seen tells something only for the sweep of a job that waits.
        if self.list != LIST_IS_EMPTY || self.job.phase == Phase::RetryWaiting {
            moves.push(Move::Look);
        }
        if cx.without(Mutation::SweepBeforeIntake) {
            moves.push(Move::SweepOverdue);
        }
        moves.push(Move::SweepOpen);
        if self.something_is_due(cx) {
            moves.push(Move::ClaimDue);
        }
        moves.extend((0..MEMBERS).filter(|member| self.has_expired(*member)).map(Move::ClaimExpired));
    }

    /// What this drain does next if nothing goes wrong; `None` where it has nothing to do at this time.
    pub fn fair_move(&self, drain: usize, cx: &Context) -> Option<Move> {
        let held = self.drains[drain].held;
        match self.drains[drain].place {
            Place::Idle => self.fair_stage(cx),
            Place::Looked(_) => Some(Move::Take),
            Place::SeenEmpty => Some(Move::SweepOverdue),
            Place::Sweeping(_) => Some(Move::ParkMissing),
            Place::Holding => held.iter().position(Option::is_some).map(Move::Decide),
            Place::Work(..)
            | Place::Sent(_)
            | Place::Noted(_)
            | Place::HandedOver(_)
            | Place::LetGo(..)
            | Place::SetAside(_)
            | Place::Unwanted(_)
            | Place::Afresh(_) => Some(Move::Settle),
        }
    }

    fn fair_stage(&self, cx: &Context) -> Option<Move> {
        let stages = [
            // Where the model's list is full, the push is lost.
            (self.is_silent(cx), Move::FailSilent(self.list[LIST - 1].is_none())),
            (self.list != LIST_IS_EMPTY, Move::Look),
            (self.is_overdue(cx) && !self.is_taken_care_of(), Move::Look),
            (self.is_open_for_long(cx) && !self.is_taken_care_of(), Move::SweepOpen),
            (self.something_is_due(cx), Move::ClaimDue),
        ];
        let expired = (0..MEMBERS).find(|member| self.has_expired(*member)).map(Move::ClaimExpired);
        stages.into_iter().find_map(|(there_is, next)| there_is.then_some(next)).or(expired)
    }

    /// Whether the sweep would change nothing: the job's entry is due, given back for a while, or in flight.
    fn is_taken_care_of(&self) -> bool {
        let member = member_of(self.job.attempts);
        self.waits_no_longer_than_given_back(member) || self.in_flight[member].is_some()
    }

    fn is_silent(&self, cx: &Context) -> bool {
        let mut after = *self;
        after.fail_silent(false, cx);
        after.job != self.job
    }

    fn is_overdue(&self, cx: &Context) -> bool {
        let overdue = self.job.not_before.is_some_and(|due| due <= -SWEEP_GRACE);
        overdue && self.job.phase == Phase::RetryWaiting && !cx.without(Mutation::SweepMissing)
    }

    fn is_open_for_long(&self, cx: &Context) -> bool {
        let wait = if cx.without(Mutation::OpenSweepAtOnce) { 0 } else { CLAIM_TIMEOUT + SWEEP_GRACE };
        let for_long = self.job.hand_over_is_open() && self.job.updated_at <= -wait;
        for_long && !cx.without(Mutation::OpenSweepMissing)
    }

    /// Takes one step.
    pub fn go(&mut self, drain: usize, next: Move, cx: &Context) {
        match next {
            Move::FailSilent(queued) => self.fail_silent(queued, cx),
            Move::Look => {
                let place =
                    if self.list == LIST_IS_EMPTY { Place::SeenEmpty } else { Place::Looked(self.list) };
                self.drains[drain].place = place;
            }
            Move::Take => {
                if let Place::Looked(entries) = self.drains[drain].place {
                    self.take_new(entries, cx);
                }
                self.drains[drain].place = Place::Idle;
            }
            Move::SweepOverdue => self.sweep(drain, self.is_overdue(cx)),
            Move::SweepOpen => self.sweep(drain, self.is_open_for_long(cx)),
            Move::ParkMissing => {
                if let Place::Sweeping(attempts) = self.drains[drain].place {
                    let waits = self.is_overdue(cx) || self.is_open_for_long(cx);
                    self.ghosts.late_sweep |= cx.scenario.prompt && !(waits && self.job.attempts == attempts);
                    self.park_missing(attempts, self.job.hand_over_is_open(), cx);
                }
                self.drains[drain].place = Place::Idle;
            }
            Move::ClaimDue => {
                self.claim_due(drain, cx);
                self.drains[drain].go_on();
            }
            Move::ClaimExpired(member) => {
                self.claim_expired(drain, member, cx);
                self.drains[drain].go_on();
            }
            Move::Decide(member) => self.decide(drain, member, cx),
            Move::Settle => self.settle_claim(drain, cx),
            Move::GiveBack(member) => {
                self.ghosts.letter_excused |= self.job.phase == Phase::DeadLettered;
                self.give_back(drain, member, CLAIM_TIMEOUT, cx);
                self.drains[drain].done_with(member);
            }
            Move::LeaveUnnoted => self.drains[drain].go_on(),
            Move::Die => {
                self.left.deaths -= 1;
                self.drains[drain] = Drain::FRESH;
            }
        }
    }

    fn fail_silent(&mut self, queued: bool, cx: &Context) {
        let Some(timeout) = cx.scenario.attempt_timeout else { return };
        let before = self.job.to_job();
        let step = cx.rules.no_signal(&before, span(timeout), &cx.delays, at(0));
        match step.outcome {
            SilenceOutcome::Refunded => cx.reach(Reach::SilentFirst),
            SilenceOutcome::FailureRecorded => cx.reach(Reach::SilentRetry),
            SilenceOutcome::NotSilent => {}
        }
        if let Some(after) = step.after {
            self.write(&before, &after, Cause::Silence);
            self.queue_retry(queued);
        }
    }

    fn sweep(&mut self, drain: usize, found: bool) {
        self.drains[drain].place = if found { Place::Sweeping(self.job.attempts) } else { Place::Idle };
    }

    fn decide(&mut self, drain: usize, member: usize, cx: &Context) {
        let Some(held) = self.drains[drain].held[member] else { return };
        let attempts = attempts_of(member);
        if held.claims.expired >= MAX_EXPIRED {
            return self.decide_exhausted(drain, member, cx);
        }
        self.blame(held.ran_out >= MAX_EXPIRED, Fault::TakenUpTooOften);
        if cx.scenario.poison && attempts == MAX_ATTEMPTS {
            self.drains[drain] = Drain::FRESH;
            return;
        }
        let before = self.job.to_job();
        let step = cx.rules.dispatch(&before, attempts, held.claims.expired > 0, at(0));
        cx.reach(match step.outcome {
            DispatchOutcome::Dispatched => Reach::Dispatched,
            DispatchOutcome::DeadLettered => Reach::CapReached,
            DispatchOutcome::HandOverOpen => Reach::HandOverFinished,
            DispatchOutcome::DeadLetterOpen => Reach::LetterFinished,
            DispatchOutcome::Stale => Reach::Stale,
        });
        let wrote = step.after.is_some();
        if let Some(after) = step.after {
            self.write(&before, &after, Cause::Dispatch);
        }
        self.drains[drain].place = match step.outcome {
            DispatchOutcome::Dispatched | DispatchOutcome::HandOverOpen => {
                self.blame(self.job.attempts != attempts, Fault::WrongAttempt);
                self.ghosts.started |= wrote;
                Place::Work(member, self.ghosts.pushed)
            }
            DispatchOutcome::DeadLettered | DispatchOutcome::DeadLetterOpen => {
                self.ghosts.letter_excused |= !self.is_ours(drain, member);
                Place::SetAside(member)
            }
            DispatchOutcome::Stale => {
                self.blame_dropping(attempts);
                Place::Unwanted(member)
            }
        };
    }

    fn decide_exhausted(&mut self, drain: usize, member: usize, cx: &Context) {
        let Some(held) = self.drains[drain].held[member] else { return };
        let attempts = attempts_of(member);
        let before = self.job.to_job();
        let step = cx.rules.claims_exhausted(&before, attempts, at(held.claims.first), at(0));
        cx.reach(match step.outcome {
            ExhaustedOutcome::DeadLettered => Reach::Exhausted,
            ExhaustedOutcome::DeadLetterOpen => Reach::ExhaustedLetter,
            ExhaustedOutcome::Redriven => Reach::ExhaustedRedriven,
            ExhaustedOutcome::Stale => Reach::ExhaustedStale,
        });
        if let Some(after) = step.after {
            self.blame(self.job.attempts != attempts, Fault::WrongEntrySetAside);
            self.blame(held.ran_out < MAX_EXPIRED, Fault::SetAsideTooSoon);
            let from_before = self.job.redriven_at.is_some_and(|redriven| redriven >= held.claims.first);
            self.blame(from_before, Fault::RedriveUndone);
            self.blame(cx.scenario.poison, Fault::NeighbourKilled);
            self.write(&before, &after, Cause::Exhausted);
        }
        self.drains[drain].place = match step.outcome {
            ExhaustedOutcome::DeadLettered | ExhaustedOutcome::DeadLetterOpen => {
                self.ghosts.letter_excused |= !self.is_ours(drain, member);
                Place::SetAside(member)
            }
            ExhaustedOutcome::Redriven => Place::Afresh(member),
            ExhaustedOutcome::Stale => {
                self.blame_dropping(attempts);
                Place::Unwanted(member)
            }
        };
    }

    fn blame_dropping(&mut self, attempts: u8) {
        let waits = self.job.phase == Phase::RetryWaiting || self.job.hand_over_is_open();
        self.blame(waits && self.job.attempts == attempts, Fault::DroppedWanted);
    }

    fn settle_claim(&mut self, drain: usize, cx: &Context) {
        match self.drains[drain].place {
            Place::Work(member, pushed_before) => self.hand_over(drain, member, pushed_before, cx),
            Place::Sent(member) => {
                self.note(attempts_of(member), cx);
                self.drains[drain].place = Place::Noted(member);
            }
            Place::Noted(member) | Place::Unwanted(member) => {
                self.let_go(drain, member, Mutation::AcknowledgedUnchecked, cx);
                self.drains[drain].done_with(member);
            }
            Place::HandedOver(attempts) => {
                self.note(attempts, cx);
                self.drains[drain].go_on();
            }
            Place::LetGo(attempts, pushed_before) => {
                self.push_work(attempts, pushed_before, true, cx);
                self.drains[drain].place = Place::HandedOver(attempts);
            }
            Place::SetAside(member) => {
                let ours = self.let_go(drain, member, Mutation::HandOverUnchecked, cx);
                self.ghosts.letter |= ours;
                self.drains[drain].done_with(member);
            }
            Place::Afresh(member) => {
                self.give_back(drain, member, 0, cx);
                self.drains[drain].done_with(member);
            }
            Place::Idle | Place::Looked(_) | Place::SeenEmpty | Place::Sweeping(_) | Place::Holding => {}
        }
    }

    fn hand_over(&mut self, drain: usize, member: usize, pushed_before: bool, cx: &Context) {
        let attempts = attempts_of(member);
        let Some(held) = self.drains[drain].held[member] else { return };
        let exclusive = !held.orphan && (cx.scenario.target == Target::ReadyList || held.deadline > 0);
        if cx.without(Mutation::AcknowledgedBeforePush) {
            let ours = self.let_go(drain, member, Mutation::AcknowledgedUnchecked, cx);
            self.drains[drain].done_with(member);
            if ours {
                self.drains[drain].place = Place::LetGo(attempts, pushed_before);
            }
            return;
        }
        if cx.without(Mutation::NotedBeforePush) {
            self.note(attempts, cx);
        }
        match cx.scenario.target {
            Target::ReadyList => {
                if self.let_go(drain, member, Mutation::HandOverUnchecked, cx) {
                    self.push_work(attempts, pushed_before, exclusive, cx);
                    self.drains[drain].held[member] = None;
                    self.drains[drain].place = Place::HandedOver(attempts);
                } else {
                    self.drains[drain].done_with(member);
                }
            }
            Target::Outside => {
                self.push_work(attempts, pushed_before, exclusive, cx);
                self.drains[drain].place = Place::Sent(member);
            }
        }
    }

    /// The workers have it. `exclusive`: by the claim, nobody else can have handed it over since the ledger said so.
    fn push_work(&mut self, attempts: u8, pushed_before: bool, exclusive: bool, cx: &Context) {
        if self.job.attempts == attempts {
            let strictly = exclusive && !self.ghosts.pushed_loosely;
            self.blame(self.ghosts.pushed && !pushed_before && strictly, Fault::HandedOverTwice);
            let undisturbed = cx.scenario.prompt && !cx.scenario.poison && !self.ghosts.late_sweep;
            self.blame(self.ghosts.pushed && undisturbed, Fault::PushedTwice);
            self.ghosts.pushed = true;
            self.ghosts.pushed_loosely |= !exclusive;
        }
    }

    fn note(&mut self, attempts: u8, cx: &Context) {
        let before = self.job.to_job();
        let step = cx.rules.hand_over_done(&before, attempts, at(0));
        cx.reach(if step.outcome { Reach::Noted } else { Reach::NotNoted });
        if let Some(after) = step.after {
            self.write(&before, &after, Cause::Note);
        }
    }
}
