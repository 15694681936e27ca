//! What three simpler designs would have given away on the same log.
//!
//! They see the signals of the log and nothing else: no ledger, no retries. What they give away counts only for jobs
//! that were delivered at some point, because only delivered work is worth its credits.
//!
//! A job takes 24 bytes here, its id kept as a 64-bit keyed hash: ten million jobs fit in half a gigabyte, and the
//! odds that any two of them share a hash, which would blur these three figures and nothing else, are one in
//! 370,000.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use recoup::job::{Cost, JobId};
use serde::Serialize;

/// One job under the three designs.
#[derive(Clone, Copy, Debug)]
struct Story {
    cost: Cost,
    failures: u32,
    delivered: bool,
    /// The flags of the third design.
    is_refunded: bool,
    is_reclaimed: bool,
}

/// Every job of the log under the three designs.
#[derive(Debug, Default)]
pub(crate) struct SimplerDesigns {
    hasher: RandomState,
    jobs: HashMap<u64, Story>,
}

/// Credits that delivered jobs did not pay for, by design.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct GivenAway {
    /// Each failure signal refunds, nothing is taken back.
    pub(crate) unguarded: i128,
    /// One refund a job, nothing is taken back.
    pub(crate) refund_guard: i128,
    /// Refund and reclaim guards that do not know that a job was delivered.
    pub(crate) two_flags: i128,
}

impl SimplerDesigns {
    /// Whether this job's cost is known here.
    pub(crate) fn know(&self, job: &JobId) -> bool {
        self.cost(job).is_some()
    }

    /// What this job costs, where that is known.
    pub(crate) fn cost(&self, job: &JobId) -> Option<Cost> {
        self.jobs.get(&self.key(job)).map(|story| story.cost)
    }

    /// How many jobs are known here.
    pub(crate) fn jobs(&self) -> u64 {
        self.jobs.len() as u64
    }

    /// The job costs so much; said again, it changes nothing.
    pub(crate) fn charged(&mut self, job: &JobId, cost: Cost) {
        let fresh = Story { cost, failures: 0, delivered: false, is_refunded: false, is_reclaimed: false };
        self.jobs.entry(self.key(job)).or_insert(fresh);
    }

    /// A failure signal of a job that is known.
    pub(crate) fn failed(&mut self, job: &JobId) {
        if let Some(story) = self.jobs.get_mut(&self.key(job)) {
            story.failures = story.failures.saturating_add(1);
            story.is_refunded = true;
        }
    }

    /// A success signal of a job that is known.
    pub(crate) fn succeeded(&mut self, job: &JobId) {
        if let Some(story) = self.jobs.get_mut(&self.key(job)) {
            story.delivered = true;
            story.is_reclaimed |= story.is_refunded;
        }
    }

    /// What each design has given away by now.
    pub(crate) fn given_away(&self) -> GivenAway {
        let mut sum = GivenAway::default();
        for story in self.jobs.values().filter(|story| story.delivered) {
            let cost = i128::from(story.cost.credits());
            sum.unguarded += i128::from(story.failures) * cost;
            sum.refund_guard += if story.failures > 0 { cost } else { 0 };
            sum.two_flags += if story.is_refunded && !story.is_reclaimed { cost } else { 0 };
        }
        sum
    }

    fn key(&self, job: &JobId) -> u64 {
        self.hasher.hash_one(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the designs give away on these signals of one job that costs 10: `f` failed, `s` succeeded.
    fn on(signals: &str) -> [i128; 3] {
        let job = JobId::new("j").unwrap();
        let mut designs = SimplerDesigns::default();
        designs.charged(&job, Cost::new(10).unwrap());
        for signal in signals.chars() {
            if signal == 'f' { designs.failed(&job) } else { designs.succeeded(&job) }
        }
        let sum = designs.given_away();
        [sum.unguarded, sum.refund_guard, sum.two_flags]
    }

    #[test]
    fn a_job_that_was_not_delivered_is_refunded_rightly() {
        assert_eq!(on(""), [0, 0, 0]);
        assert_eq!(on("fff"), [0, 0, 0]);
    }

    #[test]
    fn a_late_success_is_given_away_without_a_reclaim() {
        assert_eq!(on("fs"), [10, 10, 0]);
        assert_eq!(on("ffs"), [20, 10, 0]);
    }

    #[test]
    fn a_late_failure_is_given_away_by_flags_that_do_not_know_of_the_delivery() {
        assert_eq!(on("sf"), [10, 10, 10]);
        assert_eq!(on("sfs"), [10, 10, 0]);
        assert_eq!(on("fsf"), [20, 10, 0], "refunded once and reclaimed once, whatever comes after");
    }

    #[test]
    fn sums_do_not_overflow() {
        let mut designs = SimplerDesigns::default();
        for n in 0..2_000 {
            let job = JobId::new(format!("j{n}")).unwrap();
            designs.charged(&job, Cost::new(recoup::job::MAX_COST).unwrap());
            designs.failed(&job);
            designs.succeeded(&job);
        }
        assert_eq!(designs.given_away().unguarded, 2_000 * i128::from(recoup::job::MAX_COST));
    }
}
