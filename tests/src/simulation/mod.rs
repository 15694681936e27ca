//! A simulation with faults: random lives of a few jobs, on every store, under an auditor.
//!
//! ```text
//!  seed ── generate ──> list of operations and faults ── shrink (where it fails) ──> a short list to paste
//!                            │
//!            ┌───────────────┼────────────────┐
//!            ▼               ▼                ▼
//!        reference       embedded         MongoDB and Redis       stage: the stores and their back doors
//!            └── world: the real handlers, each port call through the gate ──┘
//!                            │
//!                          audit after each operation, and at the end
//! ```
//!
//! [`ops`] is the language of the lists, [`gate`] where their faults strike, [`audit`] what must hold whatever
//! happened. Time is the list's, and the same seed is the same life, so a failure is replayed by its seed and the same
//! list must give the same answers and leave the same jobs and entries on every store.
//!
//! What is real here: the handlers, the transition rules and the stores. What is not: processes (a death is a future
//! that is dropped between two calls, so what the operating system and the drivers do then is not seen), and real
//! time.

use std::fmt;
use std::time::Duration;

use recoup::clock::Deadline;
use tokio::runtime::{Builder, Runtime};

pub mod audit;
pub mod faulty;
pub mod flaws;
pub mod gate;
pub mod generate;
pub mod ops;
mod props;
pub mod reference;
pub mod shrink;
pub mod stage;
pub mod world;

use audit::Violation;
use flaws::{Flaw, FlawedStage};
use ops::Scenario;
use stage::{EmbeddedFiles, MemoryStage, ServerStage};
use world::{Figures, Life, play};

/// Operations of a list, where nobody says otherwise.
pub const OPS: u16 = 40;

/// A way to play a list and compare what it did.
pub trait Bench {
    /// Plays it.
    ///
    /// # Errors
    /// The first [`Violation`].
    fn play(&mut self, scenario: &Scenario) -> Result<Figures, Violation>;

    /// Its name, which is what `simulate --store` calls it, but for the flawed one.
    fn name(&self) -> &'static str;
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime can be made")
}

fn on_reference(runtime: &Runtime, scenario: &Scenario) -> Result<Life, Violation> {
    runtime.block_on(play(&MemoryStage::default(), scenario))
}

/// The reference alone.
#[derive(Debug)]
pub struct ReferenceBench(Runtime);

impl Default for ReferenceBench {
    fn default() -> Self {
        Self(runtime())
    }
}

impl Bench for ReferenceBench {
    fn play(&mut self, scenario: &Scenario) -> Result<Figures, Violation> {
        Ok(on_reference(&self.0, scenario)?.figures)
    }

    fn name(&self) -> &'static str {
        "reference"
    }
}

/// The embedded store beside the reference.
#[derive(Debug)]
pub struct EmbeddedBench {
    runtime: Runtime,
    files: EmbeddedFiles,
}

impl Default for EmbeddedBench {
    fn default() -> Self {
        Self { runtime: runtime(), files: EmbeddedFiles::default() }
    }
}

impl Bench for EmbeddedBench {
    fn play(&mut self, scenario: &Scenario) -> Result<Figures, Violation> {
        let expected = on_reference(&self.runtime, scenario)?;
        let life = self.runtime.block_on(play(&self.files.fresh(), scenario))?;
        same(&expected, &life)?;
        Ok(life.figures)
    }

    fn name(&self) -> &'static str {
        "embedded"
    }
}

/// MongoDB and Redis beside the reference.
#[derive(Debug)]
pub struct ServerBench {
    runtime: Runtime,
    stage: Option<ServerStage>,
}

impl Default for ServerBench {
    fn default() -> Self {
        let runtime = runtime();
        let stage = Some(runtime.block_on(ServerStage::fresh()));
        Self { runtime, stage }
    }
}

impl Bench for ServerBench {
    fn play(&mut self, scenario: &Scenario) -> Result<Figures, Violation> {
        let expected = on_reference(&self.runtime, scenario)?;
        let stage = self.stage.as_ref().expect("it is there until the bench is dropped");
        self.runtime.block_on(stage.clear());
        let life = self.runtime.block_on(Box::pin(play(stage, scenario)))?;
        same(&expected, &life)?;
        Ok(life.figures)
    }

    fn name(&self) -> &'static str {
        "servers"
    }
}

impl Drop for ServerBench {
    fn drop(&mut self) {
        if let Some(stage) = self.stage.take() {
            self.runtime.block_on(stage.leave());
        }
    }
}

/// The name of a bench that only tests have.
const FLAWED: &str = "flawed";

/// The reference with a flaw.
#[derive(Debug)]
pub struct FlawedBench {
    runtime: Runtime,
    flaw: Flaw,
}

impl FlawedBench {
    /// With this flaw.
    pub fn new(flaw: Flaw) -> Self {
        Self { runtime: runtime(), flaw }
    }
}

impl Bench for FlawedBench {
    fn play(&mut self, scenario: &Scenario) -> Result<Figures, Violation> {
        Ok(self.runtime.block_on(play(&FlawedStage::new(self.flaw), scenario))?.figures)
    }

    fn name(&self) -> &'static str {
        FLAWED
    }
}

/// Two lives of one list must be the same, but for one in which a server did not answer in time by itself.
fn same(expected: &Life, life: &Life) -> Result<(), Violation> {
    if life.figures.disturbed > 0 {
        return Ok(());
    }
    let differs = |seen: String| Err(Violation { claim: "a store does what the reference does", seen });
    for (at, (expected, seen)) in expected.seen.iter().zip(&life.seen).enumerate() {
        if expected != seen {
            return differs(format!("operation {at}:\n  reference {expected:?}\n  store     {seen:?}"));
        }
    }
    if expected.seen.len() != life.seen.len() {
        return differs(format!("{} operations, expected {}", life.seen.len(), expected.seen.len()));
    }
    Ok(())
}

/// A list that broke a claim.
#[derive(Clone, Debug)]
pub struct Found {
    /// The name of the bench.
    pub store: &'static str,
    /// The seed.
    pub seed: u64,
    /// The length that the list was generated for.
    pub ops: usize,
    /// What it broke, as the short list breaks it.
    pub violation: Violation,
    /// The short list.
    pub scenario: Scenario,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, seed, ops, violation, scenario } = self;
        writeln!(f, "{violation}\n")?;
        writeln!(f, "The shortest list that shows it:\n\n{scenario:?}\n")?;
        if *store == FLAWED {
            return write!(f, "Seed {seed}, {ops} operations.");
        }
        write!(
            f,
            "Play it again: cargo run -p recoup-tests --bin simulate -- --store {store} --seed {seed} --ops {ops}"
        )
    }
}

/// Plays the lists of these seeds, one after the other, until one breaks a claim or the time is up.
///
/// # Errors
/// [`Found`], the first, made short.
pub fn hunt(
    bench: &mut dyn Bench,
    seeds: impl IntoIterator<Item = u64>,
    ops: usize,
    until: Deadline,
    mut each: impl FnMut(&Figures),
) -> Result<Figures, Box<Found>> {
    let mut figures = Figures::default();
    for seed in seeds {
        if until.passed() {
            break;
        }
        let scenario = generate::generate(seed, ops);
        match bench.play(&scenario) {
            Ok(of_list) => figures += of_list,
            Err(violation) => return Err(Box::new(shortened(bench, seed, ops, scenario, violation))),
        }
        each(&figures);
    }
    Ok(figures)
}

/// How long a list is being made shorter: a servers' list takes a second to play.
const SHRINK_FOR: Duration = Duration::from_secs(120);

fn shortened(
    bench: &mut dyn Bench,
    seed: u64,
    ops: usize,
    scenario: Scenario,
    violation: Violation,
) -> Found {
    let mut last = violation;
    let until = Deadline::after(SHRINK_FOR);
    let scenario = shrink::shrink(scenario, |candidate| match bench.play(candidate) {
        Err(violation) if violation.claim == last.claim && !until.passed() => {
            last = violation;
            true
        }
        Err(_) | Ok(_) => false,
    });
    Found { store: bench.name(), seed, ops, violation: last, scenario }
}

/// Plays a list on the reference and the embedded store: what a named list in the tests does.
///
/// # Errors
/// [`Violation`].
pub fn regression(scenario: &Scenario) -> Result<Figures, Violation> {
    EmbeddedBench::default().play(scenario)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lists, {} operations, {} port calls, {} faults, {} deaths, {} times everything lost; {} dispatched, \
             {} set aside ({} as killers), {} swept, {} claims taken again, {} timed out; {} entries came, {} handed over, \
             {} dropped, {} malformed; {} lists not compared",
            self.lists,
            self.operations,
            self.calls,
            self.faults,
            self.deaths,
            self.passage.losses,
            self.dispatched,
            self.dead_lettered,
            self.passage.exhausted,
            self.swept,
            self.recovered,
            self.timed_out,
            self.passage.came,
            self.passage.handed_over,
            self.passage.dropped,
            self.passage.malformed,
            self.disturbed,
        )
    }
}
