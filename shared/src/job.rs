//! The words of the domain: ids, credits, phases, entries, the job itself, and what must always be true of it.
//!
//! Nothing here does I/O or knows a store. The types refuse what could never be a job, so that the rooms behind
//! them need not ask again.

use std::fmt;

use serde::Serialize;

use crate::clock::Timestamp;
use crate::trace::TraceContext;

/// The most characters an id may have.
pub const MAX_ID_CHARS: usize = 256;
/// The most characters of a failure's reason that are kept.
pub const MAX_REASON_CHARS: usize = 500;
/// The largest attempt number: what fits a signed 32-bit integer everywhere.
pub const MAX_ATTEMPT: u32 = i32::MAX as u32;
/// The largest cost: every whole number up to here is exact in a double, which is what JSON readers often use.
pub const MAX_COST: i64 = (1 << 53) - 1;
/// How many ids of counted failures a job remembers.
pub const COUNTED_EVENTS_KEPT: usize = 16;

/// Why a text is no id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// It has no characters.
    #[error("is empty; give 1 to 256 characters")]
    Empty,
    /// It is white space through and through.
    #[error("consists of blanks only; give 1 to 256 characters")]
    Blank,
    /// It is longer than [`MAX_ID_CHARS`].
    #[error("has {0} characters; at most 256 are allowed")]
    TooLong(usize),
    /// It holds a control character, such as a line break.
    #[error("holds the control character U+{0:04X}; remove it")]
    Control(u32),
}

fn check_id(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if let Some(control) = text.chars().find(|c| c.is_control()) {
        return Err(IdError::Control(control.into()));
    }
    if text.chars().all(char::is_whitespace) {
        return Err(IdError::Blank);
    }
    match text.chars().count() {
        count if count > MAX_ID_CHARS => Err(IdError::TooLong(count)),
        _ => Ok(()),
    }
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub struct $name(String);

        impl $name {
            /// Takes 1 to 256 characters, not only blanks and none of them a control character.
            ///
            /// # Errors
            /// [`IdError`] says what is wrong with the text.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check_id(&text)?;
                Ok(Self(text))
            }

            /// The id as it was given: ids are compared exactly.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }
    };
}

id_type!(
    /// The id of a job: one unit of metered work.
    JobId
);
id_type!(
    /// The id of an account: who pays.
    AccountId
);
id_type!(
    /// The id of one completion event, by which its redelivery is known.
    EventId
);

/// What a job costs, in whole credits: 1 to 2^53 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Cost(i64);

/// A number that is no cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a cost is 1 to {MAX_COST} whole credits, not {0}")]
pub struct CostError(pub i64);

impl Cost {
    /// Takes 1 to [`MAX_COST`] credits.
    ///
    /// # Errors
    /// [`CostError`] for anything else.
    pub fn new(credits: i64) -> Result<Self, CostError> {
        if (1..=MAX_COST).contains(&credits) { Ok(Self(credits)) } else { Err(CostError(credits)) }
    }

    /// The credits.
    pub fn credits(self) -> i64 {
        self.0
    }
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// An attempt is under way, as far as anybody has said.
    Running,
    /// The last attempt failed; the next waits for its time.
    RetryWaiting,
    /// Past its cap, set aside for a person.
    DeadLettered,
    /// Failed for good: no retry can mend it, or a person stopped it.
    Failed,
    /// The customer has the result. Nothing leads out of here.
    Delivered,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 5] =
        [Self::Running, Self::RetryWaiting, Self::DeadLettered, Self::Failed, Self::Delivered];

    /// The word that stands in the job document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::RetryWaiting => "retry_waiting",
            Self::DeadLettered => "dead_lettered",
            Self::Failed => "failed",
            Self::Delivered => "delivered",
        }
    }

    /// The phase that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The kinds of ledger entries. Refund and reclaim are inverses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryType {
    /// `-cost`, when the job is taken on.
    Charge,
    /// `+cost`, when its first failure is counted.
    Refund,
    /// `-cost`, when a refunded job turns out to be delivered.
    Reclaim,
}

impl EntryType {
    /// All types, in the order in which they stand in a job.
    pub const ALL: [Self; 3] = [Self::Charge, Self::Refund, Self::Reclaim];

    /// The word that stands in the ledger row.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::Reclaim => "reclaim",
        }
    }

    /// The type that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The signed credits that an entry of this type moves for a job of this cost.
    pub fn amount(self, cost: Cost) -> i64 {
        match self {
            Self::Charge | Self::Reclaim => -cost.credits(),
            Self::Refund => cost.credits(),
        }
    }
}

impl fmt::Display for EntryType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One immutable row of the ledger, inside its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// Signed credits.
    pub amount: i64,
    /// When it was written; never before the entry in front of it.
    pub created_at: Timestamp,
}

/// One row of the ledger as others see it: view `ledger`, statement, export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerRow {
    /// `<job_id>:<type>`.
    #[serde(rename = "_id")]
    pub id: String,
    /// The job that it belongs to.
    pub job_id: JobId,
    /// The account that it moves credits of.
    pub account_id: AccountId,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// Signed credits.
    pub amount: i64,
    /// When it was written.
    pub created_at: Timestamp,
}

impl LedgerRow {
    /// The row that `entry` of this job is.
    pub fn new(job_id: JobId, account_id: AccountId, entry: Entry) -> Self {
        Self {
            id: format!("{job_id}:{}", entry.kind),
            job_id,
            account_id,
            kind: entry.kind,
            amount: entry.amount,
            created_at: entry.created_at,
        }
    }
}

/// Why the last failure that was counted failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastError {
    /// In the reporter's words, cut to [`MAX_REASON_CHARS`]; `unspecified` where it gave none.
    pub reason: String,
    /// When it was counted, by our clock.
    pub at: Timestamp,
    /// The trace of the event that told of it. The embedded store keeps none: nothing there is traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// A job and its entries, as one document holds them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Job {
    /// One unit of metered work.
    pub job_id: JobId,
    /// Who pays.
    pub account_id: AccountId,
    /// What it costs.
    pub cost: Cost,
    /// Whether the refund entry is there.
    pub is_refunded: bool,
    /// When it was written.
    pub refunded_at: Option<Timestamp>,
    /// Whether the reclaim entry is there.
    pub is_reclaimed: bool,
    /// When it was written.
    pub reclaimed_at: Option<Timestamp>,
    /// When the success was recorded.
    pub delivered_at: Option<Timestamp>,
    /// Where the job stands.
    pub phase: Phase,
    /// How many attempts have failed so far.
    pub attempts: u32,
    /// Failures after which it is dead-lettered.
    pub max_attempts: u32,
    /// When the waiting retry is due.
    pub not_before: Option<Timestamp>,
    /// When the attempt under way was handed to the workers; absent for the first attempt.
    pub dispatched_at: Option<Timestamp>,
    /// Why the last counted failure failed.
    pub last_error: Option<LastError>,
    /// The ids of the last [`COUNTED_EVENTS_KEPT`] failures that changed the job, oldest first.
    pub counted_events: Vec<EventId>,
    /// When a person sent it back to the retry queue; gone with the next counted failure.
    pub redriven_at: Option<Timestamp>,
    /// The ledger rows, oldest first.
    pub entries: Vec<Entry>,
    /// The sum of the entries.
    pub net: i64,
    /// When it was charged.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// Whether a replay made it: somebody's past, not today's work.
    pub replayed: bool,
    /// Whether it was taken over from an earlier layout. That layout did not record deliveries, so silence during
    /// the first attempt says nothing about it.
    pub imported: bool,
}

impl Job {
    /// What is wrong with this job by invariants 1, 2, 3 and 6, a sentence each; empty where all hold.
    ///
    /// Of the six invariants these are the ones that one document shows by itself. That entries never change (4)
    /// and attempts never go down (5) is a matter of the writes, and of who may write.
    pub fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut expected = vec![EntryType::Charge];
        if self.is_refunded {
            expected.push(EntryType::Refund);
        }
        if self.is_reclaimed {
            expected.push(EntryType::Reclaim);
        }
        let expected: Vec<(EntryType, i64)> =
            expected.into_iter().map(|kind| (kind, kind.amount(self.cost))).collect();
        let stands: Vec<(EntryType, i64)> = self.entries.iter().map(|e| (e.kind, e.amount)).collect();
        if stands != expected {
            found.push(format!(
                "entries are {}, but cost and flags ask for {}",
                in_words(&stands),
                in_words(&expected)
            ));
        }
        if self.entries.windows(2).any(|pair| pair[1].created_at < pair[0].created_at) {
            found.push("an entry is older than the one in front of it".to_owned());
        }
        if self.is_reclaimed != (self.is_refunded && self.phase == Phase::Delivered) {
            found.push(format!(
                "is_reclaimed is {} with is_refunded {} in phase {}",
                self.is_reclaimed, self.is_refunded, self.phase
            ));
        }
        let sum: i128 = self.entries.iter().map(|entry| i128::from(entry.amount)).sum();
        if i128::from(self.net) != sum {
            found.push(format!("net is {}, but the entries add up to {sum}", self.net));
        }
        if (self.attempts > 0) != self.is_refunded {
            found.push(format!("attempts is {} with is_refunded {}", self.attempts, self.is_refunded));
        }
        let needs_refund = matches!(self.phase, Phase::RetryWaiting | Phase::DeadLettered | Phase::Failed);
        if needs_refund && !self.is_refunded {
            found.push(format!("phase is {}, but the job was never refunded", self.phase));
        }
        found
    }
}

fn in_words(entries: &[(EntryType, i64)]) -> String {
    let words: Vec<String> = entries.iter().map(|(kind, amount)| format!("{kind} {amount:+}")).collect();
    format!("[{}]", words.join(", "))
}

/// Cuts a reason to [`MAX_REASON_CHARS`] characters, never in the middle of one.
pub fn cut_reason(reason: &str) -> &str {
    reason.char_indices().nth(MAX_REASON_CHARS).map_or(reason, |(end, _)| &reason[..end])
}

#[cfg(test)]
mod tests;
