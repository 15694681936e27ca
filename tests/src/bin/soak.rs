//! `soak`: kills the real binaries and their servers for as long as it is told to, and counts what came of it.
//!
//! ```text
//! cargo build --workspace --bins
//! cargo run -p recoup-tests --bin soak -- --for 10m --seed 1
//! ```
//!
//! `tests/run` does so in every run, with a number of kills; `tests/run --only kills -- ARGUMENTS` with others.
//!
//! Exit status 0: no violation, and as much was done as was asked for; 1: it is printed what was not right. Ctrl-C ends
//! the faults; what was done so far is checked all the same. Needs the programs of the servers, which `tests/run`
//! installs; see `recoup_tests::servers`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use recoup::clock::{Clock, SystemClock};
use recoup_tests::soak::{self, Plan, Sabotage, guardian, worker};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(about = "Kills the real binaries and their servers at random, and checks the ledger afterwards.")]
struct Arguments {
    /// How long the faults go on.
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Go on beyond that until so many functions were killed, and each kind of fault was there.
    #[arg(long, value_name = "N", default_value_t = 0)]
    kills: u64,
    /// But no longer than this; what is then missing is a failure.
    #[arg(long, value_name = "TIME", default_value = "1day", value_parser = humantime::parse_duration)]
    at_most: Duration,
    /// What the random choices come from; another one each time, if none is given.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Break something on purpose: lose-events, no-delivered-guard, no-attempt-guard, no-sweep,
    /// no-attempt-timeout, remove-entries, forge-work.
    #[arg(long, value_name = "WHAT")]
    sabotage: Option<Sabotage>,
    #[command(subcommand)]
    part: Option<Part>,
}

/// The soak's own processes.
#[derive(Subcommand)]
enum Part {
    #[command(name = worker::ARGUMENT, hide = true)]
    Worker { redis_url: String, seed: u64, manner: String },
    #[command(name = guardian::ARGUMENT, hide = true)]
    Guardian,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.part {
        Some(Part::Worker { redis_url, seed, manner }) => {
            runtime(1).block_on(worker::work(&redis_url, seed, manner == "calm"));
            ExitCode::SUCCESS
        }
        Some(Part::Guardian) => {
            guardian::keep_watch(std::io::stdin().lock());
            ExitCode::SUCCESS
        }
        None => run(&arguments),
    }
}

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("threads can be had")
}

#[allow(clippy::print_stdout)]
fn run(arguments: &Arguments) -> ExitCode {
    let plan = Plan {
        seed: arguments.seed.unwrap_or_else(|| SystemClock.now().as_millis().unsigned_abs()),
        kills: arguments.kills,
        kinds: if arguments.kills > 0 { soak::EACH_KIND } else { &[] },
        at_least: arguments.time,
        at_most: arguments.at_most,
        patience: Duration::from_secs(180),
        sabotage: arguments.sabotage,
        is_shown: true,
    };
    let report = runtime(4).block_on(soak::run(plan, asked_to_stop()));
    println!("{report}");
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn asked_to_stop() {
    let mut interrupt = signal(SignalKind::interrupt()).expect("signals can be listened for");
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be listened for");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
