//! The retry queue's port: where retries wait until they are due.
//!
//! Three rooms, and an entry is moved from one to the next by one atomic step at a time, so that whoever dies in
//! between leaves it in exactly one of them:
//!
//! ```text
//!  push ──> retry (list, FIFO, any producer, any bytes)
//!             │ look_at_new + take_new: parsed outside, popped only if it is still the head
//!             ▼
//!           parked (by not_before, one canonical form per job and attempts) <── park_missing, give_back
//!             │ claim_due                                                          ▲
//!             ▼                                                                    │
//!           in flight (by claim deadline) ── hand_over / acknowledge ──> ready, dead-letter, gone
//!             └──────────────────────────── claim_expired: taken again, counted ───┘
//! ```
//!
//! The queue holds no truth. The job document does, and the sweep rebuilds from it whatever is missing here; so
//! nothing in this port is needed for money to be right, and only [`RetryQueue::hand_over`] is needed for a retry
//! to happen at all.

use std::future::Future;
use std::time::Duration;

use serde::Serialize;

use crate::clock::Timestamp;
use crate::job::{AccountId, JobId, LastError};
use crate::trace::TraceContext;

pub mod entry;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use entry::{EntryError, RetryEntry, parse_entry};

/// Claims that ran out without any answer, after which the job is set aside.
pub const MAX_EXPIRED_CLAIMS: u32 = 5;
/// Bytes of new entries that one look fetches at most (a single entry may be larger): what a small function can hold.
pub const MAX_LOOK_BYTES: usize = 1 << 20;

/// Why the queue could not answer.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Try again.
    #[error("{store} is not to be reached or did not answer: {what}; try again")]
    Unavailable {
        /// Which store.
        store: &'static str,
        /// What it said, without addresses that hold secrets.
        what: String,
    },
    /// Call a person: the store refuses the operation itself (rights, wrong type of a key, out of memory).
    #[error("{store} refused: {what}")]
    Refused {
        /// Which store.
        store: &'static str,
        /// What it said.
        what: String,
    },
}

impl QueueError {
    /// Whether the queue was out of reach, so that the next entry need not wait for it too.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// What to do with the entry at the head of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intake {
    /// Park its canonical form until `entry.not_before`; where it is parked already, the earlier time wins.
    Park(RetryEntry),
    /// Keep it for a person: this JSON goes to the dead-letter list.
    Malformed(String),
}

/// The entry at the head of the list, as it was looked at, and what to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// Its bytes, which must still stand at the head.
    pub raw: Vec<u8>,
    /// What to do.
    pub intake: Intake,
}

/// An entry that is ours until `deadline`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The bytes that stand in flight: the canonical form, unless another program put them there.
    pub member: Vec<u8>,
    /// When the claim runs out; together with the member it tells this claim from any later one.
    pub deadline: Timestamp,
    /// How many claims of this entry ran out before this one.
    pub expired_claims: u32,
    /// When the first of the claims that ran out was made; this claim's own time where none did.
    pub first_claim: Timestamp,
}

/// Where a claim's message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `<prefix>:ready`, for the workers.
    Ready,
    /// `<prefix>:dead-letter`, for people.
    DeadLetter,
}

/// How much stands where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Depths {
    /// New entries.
    pub retry: u64,
    /// Entries that wait for their time.
    pub parked: u64,
    /// Entries that are claimed.
    pub in_flight: u64,
    /// Messages that no worker has taken.
    pub ready: u64,
    /// Dead letters ever written.
    pub dead_letter: u64,
}

/// The retry queue. `now` is always the caller's clock.
pub trait RetryQueue: Send + Sync {
    /// Appends an entry to the list. For speed only: without it, the sweep finds the job.
    fn push(&self, entry: &RetryEntry) -> impl Future<Output = Result<(), QueueError>> + Send;

    /// The first entries of the list, up to `limit` and [`MAX_LOOK_BYTES`] (one entry at least), left where they are.
    fn look_at_new(&self, limit: usize) -> impl Future<Output = Result<Vec<Vec<u8>>, QueueError>> + Send;

    /// Takes these entries off the head, one after the other, as far as each still is the head; the answer says how
    /// many were. Each is popped and parked, or popped and kept for a person, in one atomic step.
    fn take_new(&self, entries: &[NewEntry]) -> impl Future<Output = Result<usize, QueueError>> + Send;

    /// Claims up to `limit` parked entries that are due at `now`, until `now + timeout`. An entry whose canonical
    /// form is in flight is passed over and parked until that claim's deadline.
    fn claim_due(
        &self,
        now: Timestamp,
        timeout: Duration,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Claim>, QueueError>> + Send;

    /// Claims the one entry whose claim ran out first, if there is one, and counts that it ran out.
    fn claim_expired(
        &self,
        now: Timestamp,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<Claim>, QueueError>> + Send;

    /// Pushes `message` to the list and lets go of the claim, in one step; false, and nothing is pushed, where the
    /// claim is no longer the caller's.
    fn hand_over(
        &self,
        claim: &Claim,
        to: List,
        message: &str,
    ) -> impl Future<Output = Result<bool, QueueError>> + Send;

    /// Lets go of the claim for good; false where it was no longer the caller's.
    fn acknowledge(&self, claim: &Claim) -> impl Future<Output = Result<bool, QueueError>> + Send;

    /// Parks the claimed entry again until `due`, with nothing counted against it; false where the claim was no longer
    /// the caller's. An earlier time at which it is parked wins.
    fn give_back(
        &self,
        claim: &Claim,
        due: Timestamp,
    ) -> impl Future<Output = Result<bool, QueueError>> + Send;

    /// Parks those of these entries that stand neither in parked nor in flight; the answer says how many that were. One
    /// that is parked beyond `far` gets its own time, so that nobody's far-off time buries it; up to then it stays, since
    /// it may have been given back for a while.
    fn park_missing(
        &self,
        entries: &[RetryEntry],
        far: Timestamp,
    ) -> impl Future<Output = Result<usize, QueueError>> + Send;

    /// What [`RetryQueue::keep_sweep_cursor`] kept last, if it is still there.
    fn sweep_cursor(&self) -> impl Future<Output = Result<Option<String>, QueueError>> + Send;

    /// Keeps where the sweep ended, for the next drain, whichever process runs it. Losing it costs time only.
    fn keep_sweep_cursor(&self, cursor: &str) -> impl Future<Output = Result<(), QueueError>> + Send;

    /// How much stands where.
    fn depths(&self) -> impl Future<Output = Result<Depths, QueueError>> + Send;

    /// Which of these entries `(job, attempts)` stand neither in parked nor in flight.
    fn missing(
        &self,
        entries: &[RetryEntry],
    ) -> impl Future<Output = Result<Vec<RetryEntry>, QueueError>> + Send;
}

/// What a worker receives: run `attempt` of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DispatchMessage {
    /// The job.
    pub job_id: JobId,
    /// Who pays.
    pub account_id: AccountId,
    /// The attempt to run, counted from 1.
    pub attempt: u32,
    /// The trace of the failure before it, so that a worker can go on with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// What a person finds in the dead-letter list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum DeadLetter {
    /// A job at its cap.
    AttemptsExhausted(DeadJob),
    /// A job that killed whoever took it up.
    ClaimsExhausted(DeadJob),
    /// Bytes that are no retry entry: the text itself.
    #[serde(rename = "malformed")]
    MalformedText {
        /// The text.
        payload: String,
    },
    /// Bytes that are no retry entry, too large or not UTF-8.
    #[serde(rename = "malformed")]
    MalformedBytes {
        /// Their size and digest.
        payload: Digest,
    },
}

/// A job that was set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadJob {
    /// The job.
    pub job_id: JobId,
    /// Who pays.
    pub account_id: AccountId,
    /// How many attempts failed.
    pub attempts: u32,
    /// Why the last one did.
    pub last_error: Option<LastError>,
    /// When it was set aside.
    pub at: Timestamp,
}

/// Bytes that are not kept themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Digest {
    /// How many there were.
    pub bytes: usize,
    /// Their SHA-256, in hexadecimal digits.
    pub sha256: String,
}
