//! The figures of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use recoup::clock::Timestamp;

use super::checks::{Rule, Violation};
use super::tally::Figures;
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
    pub figures: Figures,
    /// What was wrong.
    pub violations: Vec<Violation>,
    /// What the plan asked for and did not get.
    pub shortfalls: Vec<String>,
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        began: Timestamp,
        ended: Timestamp,
        figures: Figures,
        violations: Vec<Violation>,
    ) -> Self {
        let took = Duration::from_millis(ended.as_millis().saturating_sub(began.as_millis()).unsigned_abs());
        let shortfalls = plan.shortfalls(&figures);
        Self { seed: plan.seed, sabotage: plan.sabotage, took, figures, violations, shortfalls }
    }

    /// Whether nothing was wrong, and everything was done that should be.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.shortfalls.is_empty()
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
        write!(f, "{}{:>9}  violations", self.figures, self.violations.len())?;
        let mut shown: BTreeMap<Rule, usize> = BTreeMap::new();
        for violation in &self.violations {
            let count = shown.entry(violation.rule).or_default();
            *count += 1;
            if *count <= SHOWN {
                write!(f, "\n  {violation}")?;
            }
        }
        self.shortfalls.iter().try_for_each(|shortfall| write!(f, "\n  too little was done: {shortfall}"))
    }
}
