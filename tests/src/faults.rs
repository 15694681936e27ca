//! Hand-made faults: what the tests must notice.
//!
//! `tests/faults.toml` lists them as data: a text that stands once in a file, what stands there instead, and the test
//! that must then fail. `src/bin/faults.rs` makes them, one at a time, in a copy of the tree; `tests/tests/faults.rs`
//! sees in every run that each can still be made and that its test is still there.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// One fault.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What it is called.
    pub name: String,
    /// The file that it is in, from the root of the tree.
    pub file: String,
    /// The right text, which stands there once.
    pub text: String,
    /// The wrong one.
    pub becomes: String,
    /// The test binary that must notice it; `recoup` for the library's own unit tests.
    pub suite: String,
    /// The test in it.
    pub test: String,
    /// What goes wrong.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    fault: Vec<Fault>,
}

/// The root of the tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the tree").to_owned()
}

/// All faults, in the order of the list.
///
/// # Panics
/// Where the list cannot be read.
pub fn all() -> Vec<Fault> {
    let text = fs::read_to_string(root().join("tests/faults.toml")).expect("tests/faults.toml can be read");
    let list: List = toml::from_str(&text).unwrap_or_else(|error| panic!("tests/faults.toml: {error}"));
    list.fault
}

impl Fault {
    /// The file's text with the fault in it.
    ///
    /// # Errors
    /// Says how often the right text stands there, where that is not once.
    pub fn made_in(&self, right: &str) -> Result<String, String> {
        match right.matches(&self.text).count() {
            1 => Ok(right.replacen(&self.text, &self.becomes, 1)),
            count => Err(format!("{}: its text stands in {} {count} times", self.name, self.file)),
        }
    }

    /// The test, as cargo-nextest takes it.
    pub fn filter(&self) -> String {
        let binary = if self.suite == "recoup" { String::new() } else { format!("::{}", self.suite) };
        let package = if self.suite == "recoup" { "recoup" } else { "recoup-tests" };
        format!("binary_id({package}{binary}) & test(={})", self.test)
    }

    /// Whether the tree has the test.
    pub fn test_is_there(&self) -> bool {
        let name = self.test.rsplit("::").next().unwrap_or_default();
        let tests = root().join("tests");
        if self.suite == "cases" {
            return tests.join(format!("cases/{name}.json")).is_file();
        }
        if self.suite == "recoup" {
            return any_file(&root().join("shared/src"), &|text| text.contains(&format!("fn {name}(")));
        }
        let own = fs::read_to_string(tests.join(format!("tests/{}.rs", self.suite))).unwrap_or_default();
        own.contains(&format!("fn {name}(")) || suites_of(&own).any(|suite| names(&suite, name))
    }
}

/// The suites that a test binary makes tests of, by their macros.
fn suites_of(binary: &str) -> impl Iterator<Item = String> {
    ["ledger_suite", "queue_suite", "drain_suite"]
        .into_iter()
        .filter(|suite| binary.contains(&format!("{suite}!(")))
        .map(|suite| root().join(format!("tests/src/{suite}.rs")))
        .map(|path| fs::read_to_string(path).expect("a suite can be read"))
}

/// Whether a suite lists this claim in its macro.
fn names(suite: &str, claim: &str) -> bool {
    suite.contains(&format!(" {claim},\n"))
}

fn any_file(folder: &Path, is_it: &impl Fn(&str) -> bool) -> bool {
    let entries = fs::read_dir(folder).expect("a folder of the tree can be read");
    entries.map(|entry| entry.expect("its entries can be read").path()).any(|path| {
        if path.is_dir() {
            any_file(&path, is_it)
        } else {
            fs::read_to_string(&path).is_ok_and(|t| is_it(&t))
        }
    })
}
