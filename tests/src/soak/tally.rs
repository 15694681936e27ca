//! Counts by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the names of all kills begin with.
const KILL: &str = "killed: ";

/// Counts by name; the names are sorted and their first word groups them.
#[derive(Clone, Debug, Default)]
pub struct Figures(BTreeMap<&'static str, u64>);

impl Figures {
    /// The sum of the figures whose names begin so.
    pub fn sum_of(&self, prefix: &str) -> u64 {
        self.0.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, count)| count).sum()
    }

    /// Functions killed.
    pub fn kills(&self) -> u64 {
        self.sum_of(&format!("{KILL}job-")) + self.sum_of(&format!("{KILL}retry-"))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, count)| writeln!(f, "{count:>9}  {name}"))?;
        writeln!(f, "{:>9}  functions killed in all", self.kills())?;
        writeln!(f, "{:>9}  other faults in all", self.sum_of("fault: "))
    }
}

/// The figures while they grow.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Figures>);

impl Tally {
    pub(super) fn one(&self, name: &'static str) {
        self.add(name, 1);
    }

    pub(super) fn add(&self, name: &'static str, count: u64) {
        *self.lock().0.entry(name).or_default() += count;
    }

    pub(super) fn figures(&self) -> Figures {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
