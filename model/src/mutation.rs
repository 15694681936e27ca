//! The guards, each of which the search takes out once.
//!
//! A mutation is one guard left out or one order swapped, in [`rules`](crate::rules), [`queue`](crate::queue) or
//! [`drain`](crate::drain). It names the scenario in which the search must then fail, and, where one stands behind
//! the other, says why it cannot.

use crate::scenario::{self, Scenario};

/// What the search must make of a guard that was taken out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Expected {
    /// This search fails.
    Fails(Scenario),
    /// No search fails: another guard stands in for it.
    Covered {
        /// The search in which it was looked for.
        within: Scenario,
        /// What stands in for it.
        by: &'static str,
    },
}

macro_rules! mutations {
    ($($name:ident, $expected:expr, $guard:literal;)*) => {
        /// One guard that is taken out.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutation {
            $(#[doc = $guard] $name,)*
        }

        impl Mutation {
            /// All of them, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The guard, in words.
            pub fn guard(self) -> &'static str {
                match self { $(Self::$name => $guard,)* }
            }

            /// What the search must make of it.
            pub fn expected(self) -> Expected {
                match self { $(Self::$name => $expected,)* }
            }
        }
    };
}

use Expected::{Covered, Fails};

mutations! {
    ChargedAgain, Fails(scenario::SIGNALS), "charge: only where there is no such job";
    FailureIgnoresDelivered, Fails(scenario::SIGNALS), "failure: only while the phase is not delivered";
    FailureCountsAgain, Fails(scenario::SIGNALS), "failure of attempt k: only while attempts < k";
    FailureRefundsAgain, Fails(scenario::SIGNALS), "failure: the refund only where there is none";
    FailureLeadsOut, Fails(scenario::SIGNALS), "failure: failed and dead_lettered stay";
    FailureKeepsNote, Fails(scenario::SIGNALS), "failure: `dispatched_at` is unset";
    FailureKeepsRedrive, Fails(scenario::SIGNALS), "failure: `redriven_at` is unset by the next counted one";
    UnknownInAnyPhase, Fails(scenario::SIGNALS), "failure, attempt unknown: only while running";
    EventsNotRemembered, Fails(scenario::SIGNALS), "failure, attempt unknown: the event's id was not counted before";
    VerdictForgotten, Fails(scenario::SIGNALS), "second verdict: stops the waiting retry";
    VerdictOnAnyAttempt, Fails(scenario::SIGNALS), "second verdict: only on attempts = k";
    VerdictIgnoresRedrive, Fails(scenario::SIGNALS), "second verdict: only while `redriven_at` is unset";
    EntryTimeFromClock, Fails(scenario::SIGNALS), "entry: never older than the one in front of it";
    SuccessTwice, Fails(scenario::SIGNALS), "success: only while the phase is not delivered";
    SuccessWithoutReclaim, Fails(scenario::SIGNALS), "success: the reclaim where there was a refund";
    ReclaimWithoutRefund, Fails(scenario::SIGNALS), "success: the reclaim only where there was a refund";
    SuccessNotFromSetAside, Fails(scenario::SIGNALS), "success: in whatever phase";
    DispatchIgnoresAttempts, Fails(scenario::DRAINS), "dispatch: only where attempts = k";
    DispatchIgnoresPhase, Fails(scenario::SIGNALS), "dispatch: only from retry_waiting";
    DispatchIgnoresCap, Fails(scenario::SIGNALS), "dispatch: dead-lettered at the cap";
    DispatchKeepsNote, Covered { within: scenario::SIGNALS, by: "the failure before it has unset `dispatched_at`" },
        "dispatch: `dispatched_at` is unset";
    OpenHandOverIsStale, Fails(scenario::DRAINS), "dispatch: a hand-over that is open is finished";
    OpenLetterIsStale, Fails(scenario::EMPTIED), "dispatch: a dead letter that is open is finished by a claim that ran out";
    NoteIgnoresAttempts, Fails(scenario::EMPTIED), "hand-over done: only where attempts = k";
    NoteIgnoresPhase, Fails(scenario::SIGNALS), "hand-over done: only while running";
    NoteMoves, Fails(scenario::DRAINS), "hand-over done: only while `dispatched_at` is unset";
    ExhaustedIgnoresAttempts, Fails(scenario::DRAINS), "claims exhausted: only where attempts = k";
    ExhaustedIgnoresPhase, Fails(scenario::DRAINS), "claims exhausted: only from retry_waiting and running";
    ExhaustedIgnoresNote, Fails(scenario::DRAINS), "claims exhausted: only while the hand-over is open";
    ExhaustedIgnoresRedrive, Fails(scenario::DRAINS), "claims exhausted: claims before a redrive count for nothing";
    SilenceMissing, Fails(scenario::SILENCE), "no signal: silence is a failure";
    SilenceIgnoresPhase, Fails(scenario::SILENCE), "no signal: only while running";
    SilenceOfOpenHandOver, Fails(scenario::SILENCE), "no signal: not while the hand-over is open";
    RedriveIgnoresPhase, Fails(scenario::SIGNALS), "redrive: only what was set aside";
    RedriveWithoutAllowance, Fails(scenario::SIGNALS), "redrive: a fresh allowance";
    SweepMissing, Fails(scenario::SIGNALS), "sweep: overdue retries";
    OpenSweepMissing, Fails(scenario::DRAINS), "sweep: open hand-overs";
    SweepBeforeIntake, Fails(scenario::PROMPT), "sweep: overdue retries only once the list was seen empty";
    OpenSweepAtOnce, Fails(scenario::PROMPT), "sweep: an open hand-over only after `CLAIM_TIMEOUT` + `SWEEP_GRACE`";
    SweepIgnoresInFlight, Fails(scenario::PROMPT), "sweep: not what is in flight";
    SweepSkipsParked, Fails(scenario::DRAINS), "sweep: where it is parked, the earlier time wins";
    LaterTimeWins, Fails(scenario::DRAINS), "parking: the earlier time wins";
    NoCanonicalForm, Fails(scenario::DRAINS), "parking: one canonical form per job and attempts";
    TakenUnlooked, Fails(scenario::PROMPT), "intake: popped only if it is still the head";
    ClaimedEarly, Fails(scenario::SIGNALS), "claim: only what is due";
    ClaimedTwice, Fails(scenario::DRAINS), "claim: what is in flight is parked until its deadline";
    ExpiredNotCounted, Fails(scenario::POISON), "claim again: counted";
    ExpiredInBatch, Fails(scenario::POISON), "claim again: one at a time";
    HandOverUnchecked, Fails(scenario::DRAINS), "hand-over: refused where the claim is no longer the caller's";
    AcknowledgedUnchecked, Fails(scenario::DRAINS), "acknowledgement: refused where the claim is no longer the caller's";
    GivenBackUnchecked, Fails(scenario::DRAINS), "give back: refused where the claim is no longer the caller's";
    GiveBackCounted, Fails(scenario::DRAINS), "give back: uncounted";
    AcknowledgedBeforePush, Fails(scenario::DRAINS), "order: push, then acknowledge";
    NotedBeforePush, Fails(scenario::OUTSIDE), "order: push, then note";
}
