//! What `docs/MODEL.md` says of the searches: two tables, written by a command and held by the tests.

use std::fmt::Write;
use std::ops::Range;

use crate::mutation::{Expected, Mutation};
use crate::reach::Reached;
use crate::scenario::Scenario;
use crate::search::{Searched, search};
use crate::tale::tell;

/// A part of the document between two marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The searches with every guard in place.
    Searches,
    /// The guards, each taken out once.
    Guards,
}

impl Part {
    fn marks(self) -> (&'static str, &'static str) {
        match self {
            Self::Searches => ("<!-- searches: written by the command -->\n", "<!-- searches end -->"),
            Self::Guards => ("<!-- guards: written by the command -->\n", "<!-- guards end -->"),
        }
    }

    fn range(self, document: &str) -> Option<Range<usize>> {
        let (begin, end) = self.marks();
        let from = document.find(begin)? + begin.len();
        let to = document[from..].find(end)? + from;
        Some(from..to)
    }

    /// This part of the document; `None` where its marks are missing.
    pub fn of(self, document: &str) -> Option<&str> {
        self.range(document).map(|range| &document[range])
    }

    /// The document with this part replaced; `None` where its marks are missing.
    pub fn put(self, document: &str, text: &str) -> Option<String> {
        let range = self.range(document)?;
        Some(format!("{}{text}{}", &document[..range.start], &document[range.end..]))
    }
}

/// The searches' table, and what went wrong.
#[derive(Debug, Default)]
pub struct Report {
    /// Markdown.
    pub text: String,
    /// What is not as it should be, a line each.
    pub wrong: Vec<String>,
}

/// Searches every scenario to its end. `say` is told of each.
pub fn searches(say: &mut dyn FnMut(&str)) -> Report {
    let mut report = Report::default();
    let reached = Reached::default();
    report.line("| search | asks | different states | steps | longest shortest way |");
    report.line("| --- | --- | ---: | ---: | ---: |");
    for scenario in Scenario::ALL {
        let searched = search(scenario, None, 1);
        say(&summary(scenario, &searched));
        reached.add(&searched.reached);
        let (name, asks) = (scenario.name, scenario.asks);
        let counts = [searched.states, searched.steps, searched.depth].map(grouped).join(" | ");
        report.line(&format!("| `{name}` | {asks} | {counts} |"));
        if let Some((fault, way)) = searched.found {
            let way = tell(scenario, None, fault, &way).join("; ");
            report.wrong.push(format!("{name}: {}: {way}", fault.text()));
        }
    }
    report.wrong.extend(reached.missing().iter().map(|what| format!("no search came across: {what}")));
    report
}

/// Takes every guard out once. `say` is told of each.
pub fn guards(say: &mut dyn FnMut(&str)) -> Report {
    let mut report = Report::default();
    report.line("| guard taken out | what breaks | shortest way there | search |");
    report.line("| --- | --- | --- | --- |");
    for mutation in Mutation::ALL {
        let (scenario, covered) = match mutation.expected() {
            Expected::Fails(scenario) => (scenario, None),
            Expected::Covered { within, by } => (within, Some(by)),
        };
        let searched = search(scenario, Some(*mutation), 1);
        let guard = mutation.guard();
        let (breaks, way) = match (searched.found, covered) {
            (Some((fault, way)), None) => {
                (fault.text().to_owned(), tell(scenario, Some(*mutation), fault, &way).join("; "))
            }
            (None, Some(by)) => ("nothing".to_owned(), by.to_owned()),
            (Some((fault, _)), Some(_)) => {
                report.wrong.push(format!("{guard}: should be covered, but {}", fault.text()));
                continue;
            }
            (None, None) => {
                report.wrong.push(format!("{guard}: taken out, and `{}` finds nothing", scenario.name));
                continue;
            }
        };
        say(&format!("without \"{guard}\": {breaks}"));
        report.line(&format!("| {guard} | {breaks} | {way} | `{}` |", scenario.name));
    }
    report
}

impl Report {
    fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("a String takes every line");
    }
}

/// What a search came to, in a line.
pub fn summary(scenario: Scenario, searched: &Searched) -> String {
    let found = searched.found.as_ref().map_or("nothing is broken", |(fault, _)| fault.text());
    let [states, steps] = [searched.states, searched.steps].map(grouped);
    format!("{}: {states} different states, {steps} steps: {found}", scenario.name)
}

/// A number with its thousands set apart.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = digits.as_bytes()[first..]
        .chunks(3)
        .map(|group| std::str::from_utf8(group).expect("digits are ASCII"))
        .collect();
    if first > 0 {
        groups.insert(0, &digits[..first]);
    }
    groups.join(",")
}
