//! What a replay did, in numbers: the shape of `recoup replay --json`.

use recoup::handlers::Outcome;
use recoup::handlers::drain::DrainCounts;
use recoup::ledger::Totals;
use serde::Serialize;

use super::simpler::GivenAway as SimplerGivenAway;

/// The summary. Credits are whole and positive, but for the balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// Lines of the log that are not blank.
    pub(crate) events: u64,
    /// Jobs in the ledger.
    pub(crate) jobs: u64,
    /// Accounts in the ledger.
    pub(crate) accounts: u64,
    pub(crate) outcomes: Outcomes,
    pub(crate) credits: Credits,
    pub(crate) retries: Retries,
    pub(crate) given_away: GivenAway,
}

/// How many events had which outcome; together, as many as there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Outcomes {
    pub(crate) charged: u64,
    pub(crate) refunded: u64,
    pub(crate) failure_recorded: u64,
    pub(crate) delivered: u64,
    pub(crate) reclaimed: u64,
    pub(crate) duplicate: u64,
    pub(crate) already_delivered: u64,
    /// Lines that are no events, or that the ledger refuses.
    pub(crate) rejected: u64,
}

impl Outcomes {
    /// One more event had this outcome.
    pub(crate) fn count(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Charged => &mut self.charged,
            Outcome::Refunded => &mut self.refunded,
            Outcome::FailureRecorded => &mut self.failure_recorded,
            Outcome::Delivered => &mut self.delivered,
            Outcome::Reclaimed => &mut self.reclaimed,
            Outcome::Duplicate => &mut self.duplicate,
            Outcome::AlreadyDelivered => &mut self.already_delivered,
        } += 1;
    }
}

/// What moved, by the ledger's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Credits {
    pub(crate) charged: i64,
    pub(crate) refunded: i64,
    pub(crate) reclaimed: i64,
    /// The sum of all entries: what all accounts have together.
    pub(crate) balance: i128,
}

/// What the retry scheduler did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Retries {
    /// Attempts that were due and would have been handed to the workers.
    pub(crate) dispatched: u64,
    /// Jobs set aside for a person.
    pub(crate) dead_lettered: u64,
    /// Jobs that wait for their next attempt when the log ends.
    pub(crate) waiting: u64,
}

/// Credits that delivered jobs did not pay for, by design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct GivenAway {
    #[serde(flatten)]
    pub(crate) simpler: SimplerGivenAway,
    /// By the ledger that this replay made.
    pub(crate) recoup: i64,
}

impl Summary {
    /// Puts together what was counted on the way and what the ledger adds up to at the end.
    pub(crate) fn new(
        events: u64,
        outcomes: Outcomes,
        drains: &DrainCounts,
        totals: &Totals,
        simpler: SimplerGivenAway,
    ) -> Self {
        let (charged, refunded, reclaimed) = (totals.charged, totals.refunded, totals.reclaimed);
        Self {
            events,
            jobs: totals.jobs,
            accounts: totals.accounts,
            outcomes,
            credits: Credits {
                charged,
                refunded,
                reclaimed,
                balance: i128::from(refunded) - i128::from(charged) - i128::from(reclaimed),
            },
            retries: Retries {
                dispatched: drains.dispatched,
                dead_lettered: drains.dead_lettered,
                waiting: totals.waiting,
            },
            given_away: GivenAway { simpler, recoup: totals.given_away },
        }
    }
}
