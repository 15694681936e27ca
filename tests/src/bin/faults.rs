//! Makes the hand-made faults, one at a time, and sees that the tests notice each.
//!
//! In a copy of the tree under `target/faults`, with a build folder of its own, so that neither the working tree nor its
//! build is touched. First the named tests must pass on the copy as it is; then each must fail with its fault. A copy
//! that does not compile counts for nothing: a fault is noticed by a test or not at all.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use recoup::clock::{Clock, SystemClock};
use recoup_tests::faults::{Fault, all, root};

/// Makes each fault of tests/faults.toml in a copy of the tree and runs the test that must notice it.
///
/// The servers are those that `tests/run --only faults` starts.
#[derive(Debug, Parser)]
struct Args {
    /// Only the faults whose name contains this; may be repeated.
    #[arg(long)]
    only: Vec<String>,
    /// List them, and run nothing.
    #[arg(long)]
    list: bool,
}

/// What never belongs to the copy.
const LEFT_OUT: [&str; 4] = ["target", ".git", ".tools", ".aws-sam"];
/// Suites that start the programs of the workspace, which must then be built too.
const STARTS_PROGRAMS: [&str; 6] = ["audit", "cases", "cli", "functions", "functions_outages", "replay"];
/// cargo-nextest's exit status where a test failed, as opposed to a build.
const TESTS_FAILED: i32 = 100;

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Noticed,
    Survived,
    /// It did not compile, or no such test was run.
    Void,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let wanted =
        |fault: &Fault| args.only.is_empty() || args.only.iter().any(|part| fault.name.contains(part));
    let faults: Vec<Fault> = all().into_iter().filter(wanted).collect();
    if args.list {
        for fault in &faults {
            println!("{}\n  {}\n  {}: {}\n  {}", fault.name, fault.file, fault.suite, fault.test, fault.why);
        }
        return ExitCode::SUCCESS;
    }
    match run(&faults) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("faults: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(faults: &[Fault]) -> io::Result<bool> {
    let bench = Bench::new()?;
    if !bench.passes_without_faults(faults)? {
        return Ok(false);
    }
    let mut counts = [0; 3];
    for fault in faults {
        let began = SystemClock.now();
        let verdict = bench.try_out(fault)?;
        counts[verdict as usize] += 1;
        let seconds = (SystemClock.now().as_millis() - began.as_millis()) / 1000;
        let verdict = format!("{verdict:?}").to_uppercase();
        println!("{verdict:8} {seconds:4} s  {}  ({}::{})", fault.name, fault.suite, fault.test);
    }
    let [noticed, survived, void] = counts;
    println!("\n{} faults: {noticed} noticed, {survived} survived, {void} void", faults.len());
    Ok(noticed == faults.len())
}

/// The copy, and where it is built.
struct Bench {
    tree: PathBuf,
    build: PathBuf,
    logs: PathBuf,
}

impl Bench {
    fn new() -> io::Result<Self> {
        let place = root().join("target/faults");
        let bench = Self { tree: place.join("tree"), build: place.join("build"), logs: place.join("logs") };
        fs::create_dir_all(&bench.logs)?;
        mirror(&root(), &bench.tree)?;
        Ok(bench)
    }

    fn passes_without_faults(&self, faults: &[Fault]) -> io::Result<bool> {
        let mut filters: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for fault in faults {
            filters.entry(&fault.suite).or_default().push(format!("({})", fault.filter()));
        }
        for (suite, filters) in filters {
            let verdict = self.test(suite, &filters.join(" | "), &format!("without-faults-{suite}"))?;
            if verdict != Verdict::Survived {
                println!("the tests of {suite} do not pass without a fault, see {}", self.logs.display());
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn try_out(&self, fault: &Fault) -> io::Result<Verdict> {
        let file = self.tree.join(&fault.file);
        let right = fs::read_to_string(&file)?;
        let wrong = fault.made_in(&right).map_err(io::Error::other)?;
        fs::write(&file, wrong)?;
        let verdict = self.test(&fault.suite, &fault.filter(), &fault.name);
        fs::write(&file, right)?;
        verdict
    }

    fn test(&self, suite: &str, filter: &str, log: &str) -> io::Result<Verdict> {
        let log = File::create(self.logs.join(format!("{log}.log")))?;
        if STARTS_PROGRAMS.contains(&suite) {
            let built = self.cargo(&log)?.args(["build", "--workspace", "--bins", "--locked"]).status()?;
            if !built.success() {
                return Ok(Verdict::Void);
            }
        }
        let mut tests = self.cargo(&log)?;
        tests.args(["nextest", "run", "--workspace", "--locked", "--profile", "faults", "-E", filter]);
        // The whole workspace, so that its features are those of the usual build; of that, one test binary.
        if suite == "recoup" {
            tests.arg("--lib");
        } else {
            tests.args(["--test", suite]);
        }
        Ok(match tests.status()?.code() {
            Some(0) => Verdict::Survived,
            Some(TESTS_FAILED) => Verdict::Noticed,
            Some(_) | None => Verdict::Void,
        })
    }

    fn cargo(&self, log: &File) -> io::Result<Command> {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.build);
        cargo.stdout(log.try_clone()?).stderr(log.try_clone()?);
        Ok(cargo)
    }
}

/// Makes `to` what `from` is. What is the same already is left alone, and with it what was built from it.
fn mirror(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !from.join(entry.file_name()).exists() {
            let path = entry.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, copy) = (entry.path(), to.join(entry.file_name()));
        if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if source.is_dir() {
            mirror(&source, &copy)?;
        } else if fs::read(&copy).ok() != Some(fs::read(&source)?) {
            fs::copy(&source, &copy)?;
        }
    }
    Ok(())
}
