//! What of a job makes a difference to any guard, and the real `Job` that it stands for.
//!
//! Every command of the ledger runs on a `Job` built from this, and its result is brought back. What is left out is
//! read by no guard: the texts, `last_error`, `refunded_at`, `reclaimed_at`, `delivered_at`, and the order of
//! `counted_events` (the model counts far fewer than the 16 that are kept). Times that a guard compares with the
//! present only are held at the age from which on they compare the same for ever ([`JobState::settle`]).

use std::sync::LazyLock;

use recoup::clock::Timestamp;
use recoup::job::{AccountId, Cost, Entry, EntryType, EventId, Job, JobId, Phase};
use recoup::transition::{self, Charge};

use crate::scenario::{CLAIM_TIMEOUT, SWEEP_GRACE, Scenario};

/// A time, in ticks from now: what is past is negative.
pub type Ticks = i8;

/// The moment that is always now: time passes by moving everything else into the past.
const NOW_MS: i64 = 1_768_000_000_000;
const TICK_MS: i64 = 1_000;
/// Where the entries in front of the last one stand: before every time the model can tell apart.
const LONG_AGO: Ticks = -100;

struct Names {
    job: JobId,
    account: AccountId,
    cost: Cost,
    events: [EventId; 2],
}

static NAMES: LazyLock<Names> = LazyLock::new(|| Names {
    job: JobId::new("job").expect("a word is an id"),
    account: AccountId::new("account").expect("a word is an id"),
    cost: Cost::new(7).expect("seven credits are a cost"),
    events: ["e0", "e1"].map(|id| EventId::new(id).expect("a word is an id")),
});

/// The id of the event with this number.
pub fn event_id(event: u8) -> EventId {
    NAMES.events[usize::from(event)].clone()
}

/// The moment that lies `ticks` from now.
pub fn at(ticks: Ticks) -> Timestamp {
    Timestamp::from_millis(NOW_MS + i64::from(ticks) * TICK_MS)
}

/// So many ticks, as a duration.
pub fn span(ticks: Ticks) -> std::time::Duration {
    std::time::Duration::from_millis(u64::from(ticks.unsigned_abs()) * TICK_MS.unsigned_abs())
}

fn ticks(at: Timestamp) -> Ticks {
    let ticks = (at.as_millis() - NOW_MS) / TICK_MS;
    Ticks::try_from(ticks).expect("every time of the model lies within a hundred ticks of now")
}

/// The job's charge, under this policy.
pub fn charge(max_attempts: u8) -> Charge {
    Charge {
        job_id: NAMES.job.clone(),
        account_id: NAMES.account.clone(),
        cost: NAMES.cost,
        max_attempts: max_attempts.into(),
        replayed: false,
    }
}

/// What of a job makes a difference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobState {
    /// Where it stands.
    pub phase: Phase,
    /// Failures so far.
    pub attempts: u8,
    /// Its cap.
    pub max_attempts: u8,
    /// Whether the refund entry is there.
    pub refunded: bool,
    /// Whether the reclaim entry is there.
    pub reclaimed: bool,
    /// When the waiting retry is due.
    pub not_before: Option<Ticks>,
    /// When the attempt under way was noted as handed over.
    pub dispatched_at: Option<Ticks>,
    /// When a person sent it back.
    pub redriven_at: Option<Ticks>,
    /// When it was last written; read by the sweep for open hand-overs.
    pub updated_at: Ticks,
    /// When it was charged; read by the search for silence.
    pub created_at: Ticks,
    /// When its last entry was written; read by the next entry.
    pub entry_at: Ticks,
    /// The events counted, a bit each.
    pub counted: u8,
}

impl JobState {
    /// A job just charged.
    pub fn charged(max_attempts: u8) -> Self {
        Self::of(&transition::charged(&charge(max_attempts), at(0)))
    }

    /// The real job.
    pub fn to_job(self) -> Job {
        let cost = NAMES.cost;
        let mut kinds = vec![EntryType::Charge];
        kinds.extend(self.refunded.then_some(EntryType::Refund));
        kinds.extend(self.reclaimed.then_some(EntryType::Reclaim));
        let last = kinds.len() - 1;
        let entries: Vec<Entry> = kinds
            .into_iter()
            .enumerate()
            .map(|(i, kind)| Entry {
                kind,
                amount: kind.amount(cost),
                created_at: at(if i == last { self.entry_at } else { LONG_AGO }),
            })
            .collect();
        Job {
            job_id: NAMES.job.clone(),
            account_id: NAMES.account.clone(),
            cost,
            is_refunded: self.refunded,
            refunded_at: self.refunded.then(|| at(LONG_AGO)),
            is_reclaimed: self.reclaimed,
            reclaimed_at: self.reclaimed.then(|| at(LONG_AGO)),
            delivered_at: (self.phase == Phase::Delivered).then(|| at(LONG_AGO)),
            phase: self.phase,
            attempts: self.attempts.into(),
            max_attempts: self.max_attempts.into(),
            not_before: self.not_before.map(at),
            dispatched_at: self.dispatched_at.map(at),
            last_error: None,
            counted_events: (0..2).filter(|e| self.counted & (1 << e) != 0).map(event_id).collect(),
            redriven_at: self.redriven_at.map(at),
            net: entries.iter().map(|entry| entry.amount).sum(),
            entries,
            created_at: at(self.created_at),
            updated_at: at(self.updated_at),
            replayed: false,
            imported: false,
        }
    }

    /// What of this job makes a difference.
    pub fn of(job: &Job) -> Self {
        let small = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
        let counted = (0..2_u8).filter(|e| job.counted_events.contains(&NAMES.events[usize::from(*e)]));
        Self {
            phase: job.phase,
            attempts: small(job.attempts),
            max_attempts: small(job.max_attempts),
            refunded: job.is_refunded,
            reclaimed: job.is_reclaimed,
            not_before: job.not_before.map(ticks),
            dispatched_at: job.dispatched_at.map(ticks),
            redriven_at: job.redriven_at.map(ticks),
            updated_at: ticks(job.updated_at),
            created_at: ticks(job.created_at),
            entry_at: job.entries.last().map_or(LONG_AGO, |last| ticks(last.created_at)),
            counted: counted.fold(0, |mask, e| mask | 1_u8 << e),
        }
    }

    /// Whether its work is to be handed over by somebody still.
    pub fn hand_over_is_open(&self) -> bool {
        self.phase == Phase::Running && self.attempts > 0 && self.dispatched_at.is_none()
    }

    /// Lets a tick pass.
    pub fn age(&mut self) {
        for time in [&mut self.not_before, &mut self.dispatched_at, &mut self.redriven_at] {
            *time = time.map(|t| t - 1);
        }
        self.updated_at -= 1;
        self.created_at -= 1;
        self.entry_at -= 1;
    }

    /// Brings what can no longer differ to one form. `redriven_at` is settled with the claims it is compared with.
    pub fn settle(&mut self, scenario: &Scenario) {
        // Only "overdue by the grace" is asked of a due time that has passed.
        self.not_before = self.not_before.map(|t| t.max(-SWEEP_GRACE));
        let timeout = scenario.attempt_timeout.unwrap_or(0);
        self.dispatched_at = self.dispatched_at.filter(|_| self.phase != Phase::Delivered);
        self.dispatched_at = self.dispatched_at.map(|t| t.max(-timeout));
        let is_open = self.hand_over_is_open();
        let longest = timeout.max(CLAIM_TIMEOUT + SWEEP_GRACE);
        self.updated_at = if is_open { self.updated_at.max(-longest) } else { 0 };
        self.created_at = if self.attempts == 0 { self.created_at.max(-timeout) } else { 0 };
        // The slowest clock is a tick behind: an entry older than that is in front of every other.
        self.entry_at = if scenario.slow_clocks > 0 { self.entry_at.max(-1) } else { -1 };
        if self.phase == Phase::Delivered {
            // Every command is refused by the phase alone.
            (self.max_attempts, self.counted, self.redriven_at, self.entry_at) = (0, 0, None, -1);
        }
    }
}
