//! Counts by name.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What [`Tally::kills`] adds up begins with this.
pub(super) const KILL: &str = "killed: ";

/// Counts by name; the names are sorted and their first word groups them.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<BTreeMap<&'static str, u64>>);

impl Tally {
    pub(super) fn one(&self, name: &'static str) {
        self.add(name, 1);
    }

    pub(super) fn add(&self, name: &'static str, count: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += count;
    }

    /// Functions killed so far.
    pub(super) fn kills(&self) -> u64 {
        self.sum_of(&format!("{KILL}job-")) + self.sum_of(&format!("{KILL}retry-"))
    }

    /// The sum of the counts whose names begin so.
    pub(super) fn sum_of(&self, prefix: &str) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, count)| count).sum()
    }

    pub(super) fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
