//! The use cases, over the ports only: what a failure, a success, a drain and an audit do.
//!
//! No store, no clock and no envelope is known here. The functions and the command call the same ones.

use serde::Serialize;

use crate::clock::Timestamp;
use crate::job::{Job, JobId, Phase};
use crate::ledger::LedgerError;
use crate::queue::QueueError;
use crate::transition::{ChargeOutcome, FailureOutcome, SuccessOutcome};

pub mod audit;
pub mod drain;
pub mod failed;
pub mod succeeded;

/// Why a drain or an audit stopped short: one of its stores failed it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// What one event did, in the word that callers and logs see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The job is there now, with its charge entry.
    Charged,
    /// A failure was counted, and the refund entry written with it.
    Refunded,
    /// A failure was counted, or taken as the final verdict; money did not move.
    FailureRecorded,
    /// The job was delivered; its charge stands.
    Delivered,
    /// The job was delivered after its refund, which was taken back.
    Reclaimed,
    /// Nothing: this is known already.
    Duplicate,
    /// Nothing: delivered work is never refunded.
    AlreadyDelivered,
}

impl Outcome {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Charged => "charged",
            Self::Refunded => "refunded",
            Self::FailureRecorded => "failure_recorded",
            Self::Delivered => "delivered",
            Self::Reclaimed => "reclaimed",
            Self::Duplicate => "duplicate",
            Self::AlreadyDelivered => "already_delivered",
        }
    }

    /// What a charge did; `None` for a conflict, which is an error and no outcome.
    pub fn of_charge(outcome: ChargeOutcome) -> Option<Self> {
        match outcome {
            ChargeOutcome::Charged => Some(Self::Charged),
            ChargeOutcome::Duplicate => Some(Self::Duplicate),
            ChargeOutcome::Conflict => None,
        }
    }
}

impl From<FailureOutcome> for Outcome {
    fn from(outcome: FailureOutcome) -> Self {
        match outcome {
            FailureOutcome::Refunded => Self::Refunded,
            FailureOutcome::FailureRecorded => Self::FailureRecorded,
            FailureOutcome::AlreadyDelivered => Self::AlreadyDelivered,
            FailureOutcome::Duplicate => Self::Duplicate,
        }
    }
}

impl From<SuccessOutcome> for Outcome {
    fn from(outcome: SuccessOutcome) -> Self {
        match outcome {
            SuccessOutcome::Delivered => Self::Delivered,
            SuccessOutcome::Reclaimed => Self::Reclaimed,
            SuccessOutcome::Duplicate => Self::Duplicate,
        }
    }
}

/// The answer to one event: what it did, and how the job stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The job.
    pub job_id: JobId,
    /// What the event did.
    pub outcome: Outcome,
    /// How many attempts have failed so far.
    pub attempts: u32,
    /// Where the job stands.
    pub phase: Phase,
    /// When the waiting retry is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
}

impl Answer {
    fn new(outcome: Outcome, job: Job) -> Self {
        Self {
            job_id: job.job_id,
            outcome,
            attempts: job.attempts,
            phase: job.phase,
            not_before: job.not_before,
        }
    }
}
