//! What the harness knows by itself: what it charged, and what was reported to the event source.
//!
//! Nothing here is read from the ledger, so that the two can be compared.

use std::collections::BTreeMap;

use recoup::event::Signal;
use serde_json::Value;

/// One job, as the platform knows it.
#[derive(Clone, Debug)]
pub struct Book {
    /// Who pays.
    pub account: String,
    /// Credits.
    pub cost: i64,
    /// Whether the ledger has confirmed the charge.
    pub is_charged: bool,
    /// Successes that the source accepted.
    pub successes: u64,
    /// Failures that the source accepted.
    pub failures: u64,
    /// Of these, the ones that no retry mends.
    pub final_failures: u64,
}

/// All jobs, by id.
#[derive(Clone, Debug, Default)]
pub struct Books {
    jobs: BTreeMap<String, Book>,
}

impl Books {
    /// A job is about to be charged.
    pub fn open(&mut self, job_id: &str, account: &str, cost: i64) {
        let book = Book {
            account: account.to_owned(),
            cost,
            is_charged: false,
            successes: 0,
            failures: 0,
            final_failures: 0,
        };
        self.jobs.insert(job_id.to_owned(), book);
    }

    /// The ledger confirmed the charge.
    pub fn charged(&mut self, job_id: &str) {
        self.book(job_id).is_charged = true;
    }

    /// The source accepted an event.
    ///
    /// # Panics
    /// Where it is about a job that nobody opened: the workers invent none.
    pub fn reported(&mut self, signal: Signal, body: &Value) {
        let book = self.book(body["job_id"].as_str().expect("a worker names the job"));
        match signal {
            Signal::Succeeded => book.successes += 1,
            Signal::Failed => {
                book.failures += 1;
                book.final_failures += u64::from(body["retryable"] == false);
            }
        }
    }

    /// How many charges are not confirmed.
    pub fn uncharged(&self) -> usize {
        self.jobs.values().filter(|book| !book.is_charged).count()
    }

    /// Every job whose id comes before this has been charged, now and for ever.
    pub fn all_charged_before(&self) -> String {
        let uncharged = self.jobs.iter().find(|(_, book)| !book.is_charged).map(|(id, _)| id.clone());
        // Ids go up, so that the next one comes after the last.
        uncharged.or_else(|| self.jobs.keys().next_back().map(|last| format!("{last}~"))).unwrap_or_default()
    }

    /// The jobs.
    pub fn jobs(&self) -> &BTreeMap<String, Book> {
        &self.jobs
    }

    fn book(&mut self, job_id: &str) -> &mut Book {
        self.jobs.get_mut(job_id).unwrap_or_else(|| panic!("{job_id} is no job of ours"))
    }
}
