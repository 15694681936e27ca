//! What must never be.
//!
//! Checked on every write of the ledger, every claim and every hand-over, on the step that does it: a rule about two
//! states is then a matter of one step, and the trace ends where it breaks. Rules that a single document shows by
//! itself are the library's own, `Job::violations`. A rule is told in terms of what happened (the ghosts of
//! [`World`](crate::World)), not in those of the guard that keeps it, wherever that can be said otherwise.

use recoup::job::{Job, Phase};

use crate::world::Ghosts;

macro_rules! faults {
    ($($name:ident: $text:literal,)*) => {
        /// What went wrong.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Fault {
            $(#[doc = $text] $name,)*
        }

        impl Fault {
            /// In words.
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

faults! {
    Invariant: "an invariant of one job is broken (1 to 3 or 6, `Job::violations`)",
    Money: "a delivered job is not paid exactly once, or an undelivered refunded one not at all",
    EntryChanged: "an entry changed or went away (invariant 4)",
    AttemptsDown: "`attempts` went down (invariant 5)",
    DeliveredLeft: "a delivered job is something else again",
    SetAsideLeft: "a job that was set aside went on without a person and without a success",
    SuccessLost: "a success left the job undelivered",
    EventCountedTwice: "one event was counted twice",
    CountedWhileWaiting: "a failure without an attempt number was counted while no attempt was under way",
    VerdictMisplaced: "a verdict on another attempt stopped the retry",
    RedriveUndone: "what a person redrove was set aside again without another attempt, or by claims from before",
    StartedAfterVerdict: "a retry was started that a verdict had stopped",
    StartedTwice: "the ledger started one attempt twice",
    StartedOverCap: "an attempt over the job's cap was started",
    WrongAttempt: "a drain took up an attempt that is not the job's next",
    NoteMoved: "the recorded time of a hand-over moved, or stands on a job that is not running",
    NotedUnpushed: "a hand-over was recorded that had not happened",
    CountedUnstarted: "silence of work that nobody was given counted as a failure",
    SetAsideAtWork: "a job was set aside while its work is with the workers",
    WrongEntrySetAside: "an entry of other attempts set the job aside",
    SetAsideTooSoon: "a job was set aside for claims that did not run out so often",
    TakenUpTooOften: "an entry whose claims ran out too often was taken up as any other",
    DroppedWanted: "an entry was dropped while the job waits for it",
    HandedOverTwice: "two drains handed over one attempt, though each should have had the entry to itself",
    TwoHolders: "two drains hold a claim of one entry",
    WaitsTwice: "one retry waits twice",
    IntakeLost: "the intake popped an entry that it did not park",
    ClaimedEarly: "an entry was claimed that is not due",
    QueuedTwice: "the sweep queued a retry that stands in the queue",
    PushedTwice: "one attempt was handed over twice though nobody died or was slow",
    NeighbourKilled: "an entry that kills whoever takes it took a neighbour along",
    RetryLost: "a retry stays lost: fair drains and time do not bring the job to an end",
    EntriesLeft: "entries stay in the queue for ever",
    LetterLost: "a dead-lettered job never reached the dead-letter list",
}

/// Which command wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The charge, again.
    Charge,
    /// A failure signal: of which attempt, by which event.
    Failure(Option<u8>, Option<u8>),
    /// A success signal.
    Success,
    /// The guard of a due retry.
    Dispatch,
    /// The note of a hand-over.
    Note,
    /// Claims that ran out.
    Exhausted,
    /// Silence.
    Silence,
    /// A person.
    Redrive,
}

/// Checks one write of the ledger.
pub fn check_write(before: &Job, after: &Job, cause: Cause, ghosts: &Ghosts) -> Option<Fault> {
    let rules = [
        (!is_paid_right(after), Fault::Money),
        (!after.violations().is_empty(), Fault::Invariant),
        (!after.entries.starts_with(&before.entries), Fault::EntryChanged),
        (after.attempts < before.attempts, Fault::AttemptsDown),
        (before.phase == Phase::Delivered && after.phase != Phase::Delivered, Fault::DeliveredLeft),
        (leaves_set_aside(before, after, cause), Fault::SetAsideLeft),
        (note_is_out_of_place(before, after, cause), Fault::NoteMoved),
    ];
    rules
        .into_iter()
        .find_map(|(broken, fault)| broken.then_some(fault))
        .or_else(|| check_failure(before, after, cause, ghosts))
        .or_else(|| check_drain_write(before, after, cause, ghosts))
}

fn is_paid_right(job: &Job) -> bool {
    let sum: i64 = job.entries.iter().map(|entry| entry.amount).sum();
    match job.phase {
        Phase::Delivered => sum == -job.cost.credits(),
        Phase::Running | Phase::RetryWaiting | Phase::DeadLettered | Phase::Failed => {
            sum == if job.attempts > 0 { 0 } else { -job.cost.credits() }
        }
    }
}

fn leaves_set_aside(before: &Job, after: &Job, cause: Cause) -> bool {
    let was_set_aside = matches!(before.phase, Phase::DeadLettered | Phase::Failed);
    let by_right = matches!(cause, Cause::Redrive | Cause::Success);
    was_set_aside && after.phase != before.phase && !by_right
}

fn note_is_out_of_place(before: &Job, after: &Job, cause: Cause) -> bool {
    let moved = cause == Cause::Note && before.dispatched_at.is_some();
    let waits = matches!(after.phase, Phase::RetryWaiting | Phase::DeadLettered | Phase::Failed);
    let freshly_open = before.phase == Phase::RetryWaiting && after.phase == Phase::Running;
    moved || ((waits || freshly_open) && after.dispatched_at.is_some())
}

fn check_failure(before: &Job, after: &Job, cause: Cause, ghosts: &Ghosts) -> Option<Fault> {
    let Cause::Failure(attempt, event) = cause else { return None };
    let counted = after.attempts > before.attempts;
    if counted && attempt.is_none() && event.is_some_and(|e| ghosts.events & 1 << e != 0) {
        return Some(Fault::EventCountedTwice);
    }
    if counted && attempt.is_none() && before.phase != Phase::Running {
        return Some(Fault::CountedWhileWaiting);
    }
    let stopped = !counted && before.phase == Phase::RetryWaiting && after.phase == Phase::Failed;
    if stopped && attempt.is_some_and(|k| u32::from(k) != before.attempts) {
        return Some(Fault::VerdictMisplaced);
    }
    (stopped && ghosts.redriven).then_some(Fault::RedriveUndone)
}

fn check_drain_write(before: &Job, after: &Job, cause: Cause, ghosts: &Ghosts) -> Option<Fault> {
    match cause {
        Cause::Dispatch if after.phase == Phase::Running => {
            if ghosts.stopped {
                Some(Fault::StartedAfterVerdict)
            } else if ghosts.started {
                Some(Fault::StartedTwice)
            } else {
                (before.attempts >= before.max_attempts).then_some(Fault::StartedOverCap)
            }
        }
        Cause::Dispatch => ghosts.redriven.then_some(Fault::RedriveUndone),
        Cause::Note => (!ghosts.pushed).then_some(Fault::NotedUnpushed),
        Cause::Exhausted => {
            let with_workers = before.phase == Phase::Running && before.dispatched_at.is_some();
            with_workers.then_some(Fault::SetAsideAtWork)
        }
        Cause::Silence => (before.attempts > 0 && !ghosts.pushed).then_some(Fault::CountedUnstarted),
        Cause::Charge | Cause::Failure(..) | Cause::Success | Cause::Redrive => None,
    }
}
