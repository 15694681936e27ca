//! The figures of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use recoup::clock::Timestamp;

use super::checks::{Rule, Violation};
use super::tally::KILL;
use super::{Plan, Sabotage};

/// What a soak did and found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed, for a like run.
    pub seed: u64,
    /// What was broken on purpose.
    pub sabotage: Option<Sabotage>,
    /// From the first server's start to the last check.
    pub took: Duration,
    /// Counts by name.
    pub figures: BTreeMap<&'static str, u64>,
    /// What was wrong.
    pub violations: Vec<Violation>,
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        began: Timestamp,
        ended: Timestamp,
        figures: BTreeMap<&'static str, u64>,
        violations: Vec<Violation>,
    ) -> Self {
        let took = Duration::from_millis(ended.as_millis().saturating_sub(began.as_millis()).unsigned_abs());
        Self { seed: plan.seed, sabotage: plan.sabotage, took, figures, violations }
    }

    /// The sum of the figures whose names begin so.
    pub fn sum_of(&self, prefix: &str) -> u64 {
        self.figures.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, count)| count).sum()
    }

    /// Functions killed.
    pub fn kills(&self) -> u64 {
        self.sum_of(&format!("{KILL}job-")) + self.sum_of(&format!("{KILL}retry-"))
    }

    /// Whether this rule was broken.
    pub fn found(&self, rule: Rule) -> bool {
        self.violations.iter().any(|violation| violation.rule == rule)
    }
}

/// How many violations of a rule are shown.
const SHOWN: usize = 20;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sabotage = self.sabotage.map(|it| format!(", sabotaged: {}", it.as_str())).unwrap_or_default();
        writeln!(f, "soak of {} s, seed {}{sabotage}", self.took.as_secs(), self.seed)?;
        for (name, count) in &self.figures {
            writeln!(f, "{count:>9}  {name}")?;
        }
        writeln!(f, "{:>9}  functions killed in all", self.kills())?;
        writeln!(f, "{:>9}  other faults in all", self.sum_of("fault: "))?;
        write!(f, "{:>9}  violations", self.violations.len())?;
        let mut shown: BTreeMap<Rule, usize> = BTreeMap::new();
        for violation in &self.violations {
            let count = shown.entry(violation.rule).or_default();
            *count += 1;
            if *count <= SHOWN {
                write!(f, "\n  {violation}")?;
            }
        }
        Ok(())
    }
}
