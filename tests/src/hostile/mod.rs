//! Hostile input: random bytes, aimed at everything that parses, and what must be true whatever they are.
//!
//! Inputs are made from the grammar of what is attacked ([`json`]), from the files in `tests/corpus/`, and by spoiling
//! either ([`mutate`]). What must hold is said beside each target, and is more than "no panic": an id that is read stood
//! in the input as a string, nothing that is refused is lost, what has no fault is read as it was meant, every refusal is
//! one short line, and memory stays within a multiple of the input. Memory is counted, not timed: as bytes allocated in
//! all, which bounds the peak and, as every copy costs time, most of the time too.
//!
//! Each input comes from a seed of its own, so the seed of a finding plays it again:
//! `cargo run -p recoup-tests --bin hostile -- --target events --seed N`.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use clap::ValueEnum;
use fastrand::Rng;
use recoup::config::{Needs, Settings};
use recoup::event::{Signal, parse_payload};
use recoup::job::MAX_ID_CHARS;
use recoup::queue::entry::{malformed, parse_member};
use recoup::queue::parse_entry;
use recoup::sources::Sources;
use stats_alloc::INSTRUMENTED_SYSTEM;

pub mod entries;
pub mod events;
pub mod json;
mod mutate;
mod oracle;
pub mod processes;
pub mod settings;

/// What is attacked within this process. The event log and the arguments are attacked through the command, see
/// [`processes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// Completion events in all their envelopes.
    Events,
    /// Entries of the retry queue.
    Entries,
    /// The environment, with both addresses.
    Settings,
}

/// All of them.
pub const TARGETS: [Target; 3] = [Target::Events, Target::Entries, Target::Settings];

/// Bytes to parse.
#[derive(Clone, Debug)]
pub struct Input {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The job they are about, where they have no fault and must be read.
    pub meant: Option<String>,
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self { bytes: text.into_bytes(), meant: None }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Inputs.
    pub inputs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The most bytes that one of them had allocated, in all.
    pub most_allocated: usize,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inputs, bytes, most_allocated } = self;
        write!(
            f,
            "{inputs} inputs, {} MB, at most {} MB allocated for one",
            bytes >> 20,
            most_allocated >> 20
        )
    }
}

/// An input that broke a promise.
#[derive(Debug)]
pub struct Found {
    target: Target,
    /// A seed, or the name of a file.
    origin: String,
    problem: String,
    input: Vec<u8>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, origin, problem, input } = self;
        writeln!(f, "{target:?}, {origin}: {problem}")?;
        write!(f, "{} bytes: {}", input.len(), shown(input))
    }
}

/// The beginning of `bytes`, on one line.
fn shown(bytes: &[u8]) -> String {
    let cut = bytes.len().min(1_000);
    format!("{}{}", bytes[..cut].escape_ascii(), if cut < bytes.len() { "…" } else { "" })
}

impl Target {
    fn folder(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Entries => "entries",
            Self::Settings => "settings",
        }
    }

    /// The files that are kept for it: their names and bytes.
    pub fn corpus(self) -> Vec<(String, Vec<u8>)> {
        corpus(self.folder())
    }

    fn generate(self, rng: &mut Rng, corpus: &[(String, Vec<u8>)]) -> Input {
        let mut input = match self {
            Self::Events | Self::Entries if json::once_in(rng, 5) => {
                Input { bytes: corpus[rng.usize(..corpus.len())].1.clone(), meant: None }
            }
            Self::Events => events::generate(rng),
            Self::Entries => entries::generate(rng),
            // Its values are spoilt one by one, so that it stays known which are secrets.
            Self::Settings => return settings::generate(rng),
        };
        if input.meant.is_none() && json::once_in(rng, 2) {
            mutate::mutate(rng, &mut input.bytes);
        }
        input
    }

    fn parse(self, input: &Input) {
        let bytes = &input.bytes;
        match self {
            Self::Events => drop(parse_payload(Signal::Failed, &Sources::default(), bytes)),
            Self::Entries => drop((parse_entry(bytes), parse_member(bytes), malformed(bytes).to_json())),
            Self::Settings => {
                let variables = settings::variables(bytes);
                drop(Settings::read(Needs::Nothing, |name| variables.get(name).cloned()));
            }
        }
    }

    /// Bytes that parsing this input may allocate in all: some copies of it, and the records that it may hold.
    fn allowance(self, input: &Input) -> usize {
        let records =
            input.bytes.iter().filter(|byte| **byte == b',').count().min(recoup::event::MAX_RECORDS);
        let records = if self == Self::Events { records } else { 0 };
        (32 << 10) + 16 * input.bytes.len() + 1_024 * records
    }

    fn check(self, input: &Input) -> Result<(), String> {
        match self {
            Self::Events => events::check(input),
            Self::Entries => entries::check(input),
            Self::Settings => settings::check(input),
        }
    }
}

/// The files of one folder of the corpus.
pub fn corpus(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.unwrap().path())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Attacks `target` with every file of its corpus, as it is.
///
/// # Errors
/// The first file that broke a promise.
pub fn replay_corpus(target: Target) -> Result<Figures, Box<Found>> {
    let mut figures = Figures::default();
    for (name, bytes) in target.corpus() {
        attack(target, &Input { bytes, meant: None }, name, &mut figures)?;
    }
    Ok(figures)
}

/// Attacks `target` with the inputs of these seeds.
///
/// # Errors
/// The first input that broke a promise.
pub fn hunt(
    target: Target,
    seeds: impl IntoIterator<Item = u64>,
    mut progress: impl FnMut(&Figures),
) -> Result<Figures, Box<Found>> {
    let corpus = target.corpus();
    let mut figures = Figures::default();
    for seed in seeds {
        let input = target.generate(&mut Rng::with_seed(seed), &corpus);
        attack(target, &input, format!("seed {seed}"), &mut figures)?;
        progress(&figures);
    }
    Ok(figures)
}

fn attack(target: Target, input: &Input, origin: String, figures: &mut Figures) -> Result<(), Box<Found>> {
    figures.inputs += 1;
    figures.bytes += input.bytes.len() as u64;
    let survived = catch_unwind(AssertUnwindSafe(|| {
        let allocated = allocated_by(|| target.parse(input));
        figures.most_allocated = figures.most_allocated.max(allocated);
        let allowance = target.allowance(input);
        if allocated > allowance {
            return Err(format!("it allocated {allocated} bytes of {allowance} allowed"));
        }
        target.check(input)
    }));
    let problem = match survived {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(problem)) => problem,
        Err(_) => "it panicked, see above".to_owned(),
    };
    Err(Box::new(Found { target, origin, problem, input: input.bytes.clone() }))
}

/// Bytes that `work` allocates in all, by every thread of this process. The program must have made
/// `stats_alloc`'s allocator its own.
fn allocated_by(work: impl FnOnce()) -> usize {
    let so_far = || INSTRUMENTED_SYSTEM.stats().bytes_allocated;
    let before = so_far();
    drop(std::hint::black_box(Box::new(0_u8)));
    assert!(so_far() > before, "the counting allocator is not in place");
    let before = so_far();
    work();
    so_far() - before
}

/// A refusal is one line, short, and steers no terminal.
fn check_line(line: &str) -> Result<(), String> {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if line.len() > 1_500 || line.contains(breaks) {
        return Err(format!("a refusal is not one short line: {}", shown(line.as_bytes())));
    }
    Ok(())
}

fn check_id(id: &str) -> Result<(), String> {
    let is_id = (1..=MAX_ID_CHARS).contains(&id.chars().count())
        && !id.chars().any(char::is_control)
        && !id.chars().all(char::is_whitespace);
    if is_id { Ok(()) } else { Err(format!("{id:?} was taken for an id")) }
}
