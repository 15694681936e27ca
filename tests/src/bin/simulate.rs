//! Plays the simulation by hand: one seed again, or all that fit into some hours.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use recoup::clock::Deadline;
use recoup_tests::simulation::{Bench, EmbeddedBench, OPS, ReferenceBench, ServerBench, generate, hunt};

/// Random lives of a few jobs, with faults, under an auditor.
///
/// The servers are those that RECOUP_TEST_MONGODB_URI and RECOUP_TEST_REDIS_URL name.
#[derive(Debug, Parser)]
struct Args {
    /// The seed, or the first of many.
    #[arg(long)]
    seed: Option<u64>,
    /// The longest list, in operations.
    #[arg(long, default_value_t = OPS, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    ops: u16,
    /// Where: each beside the reference.
    #[arg(long, value_enum, default_value_t = Store::Embedded)]
    store: Store,
    /// For how long, such as 30s, 15m or 1h; without it, the one seed.
    #[arg(long = "for", value_parser = humantime::parse_duration)]
    long: Option<Duration>,
    /// Print the list of the seed first.
    #[arg(long)]
    print: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Store {
    Reference,
    Embedded,
    Servers,
    All,
}

impl Store {
    fn benches(self) -> Vec<Box<dyn Bench>> {
        match self {
            Self::Reference => vec![Box::new(ReferenceBench::default())],
            Self::Embedded => vec![Box::new(EmbeddedBench::default())],
            Self::Servers => vec![Box::new(ServerBench::default())],
            Self::All => vec![Box::new(EmbeddedBench::default()), Box::new(ServerBench::default())],
        }
    }
}

/// So often a long run says how far it is.
const REPORT_EVERY: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args = Args::parse();
    let first = args.seed.unwrap_or(0);
    if args.print {
        println!("{:?}\n", generate::generate(first, args.ops.into()));
    }
    let seeds = args.long.map_or(1, |_| u64::MAX);
    let mut benches = args.store.benches();
    let share = args.long.map(|long| long / u32::try_from(benches.len()).unwrap_or(1));
    let mut good = true;
    for bench in &mut benches {
        let until = share.map_or(Deadline::NONE, Deadline::after);
        let mut next = Deadline::after(REPORT_EVERY);
        let store = bench.name();
        let seeds = (0..seeds).map(|at| first.wrapping_add(at));
        let done = hunt(bench.as_mut(), seeds, args.ops.into(), until, |figures| {
            if next.passed() {
                println!("{store}: {figures}");
                next = Deadline::after(REPORT_EVERY);
            }
        });
        match done {
            Ok(figures) => println!("{store}: {figures}; violations 0"),
            Err(found) => {
                println!("{store}: seed {}\n{found}", found.seed);
                good = false;
            }
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
