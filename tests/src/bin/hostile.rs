//! Feeds hostile input to everything that parses, for as long or as often as it is told to.
//!
//! ```text
//! cargo build --workspace --bins
//! cargo run -p recoup-tests --bin hostile -- --inputs 1000000
//! cargo run -p recoup-tests --bin hostile -- --target events --seed 42
//! ```
//!
//! Exit status 0: every promise held; 1: the input that broke one is printed, with its seed.
#![allow(clippy::print_stdout)]

use std::alloc::System;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use recoup::clock::Deadline;
use recoup_tests::hostile::processes::{self, LINES};
use recoup_tests::hostile::{TARGETS, Target, hunt, replay_corpus};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Random input, aimed at every parser. Each input has a seed of its own, counted from the first.
#[derive(Debug, Parser)]
struct Args {
    /// The seed of the first input.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Inputs in all; without it and without --for, one a target.
    #[arg(long)]
    inputs: Option<u64>,
    /// For how long, such as 30s, 15m or 1h.
    #[arg(long = "for", value_parser = humantime::parse_duration)]
    long: Option<Duration>,
    /// Only this target; without it, all, the event log and the arguments of the command too.
    #[arg(long, value_enum)]
    target: Option<Target>,
}

/// So often a long run says how far it is.
const REPORT_EVERY: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(found) => {
            println!("{found}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let targets = args.target.map_or_else(|| TARGETS.to_vec(), |target| vec![target]);
    // The last tenth of the inputs goes through the command, whose every argument list is a process.
    let parts = targets.len() as u32 + u32::from(args.target.is_none());
    let share = args.long.map(|long| long / parts);
    let total = args.inputs.unwrap_or(if args.long.is_some() { u64::MAX } else { 1 });
    let (within, through_command) =
        if args.target.is_some() { (total, 0) } else { (total - total / 10, total / 10) };
    for target in &targets {
        let each = within.div_ceil(targets.len() as u64);
        attack(*target, args.seed, each, share.map_or(Deadline::NONE, Deadline::after))?;
    }
    if args.target.is_none() {
        attack_command(args.seed, through_command, share.map_or(Deadline::NONE, Deadline::after))?;
    }
    Ok(())
}

fn attack(target: Target, first: u64, count: u64, until: Deadline) -> Result<(), String> {
    let mut next = Deadline::after(REPORT_EVERY);
    replay_corpus(target).map_err(|found| found.to_string())?;
    let seeds = (0..count).map(|at| first.wrapping_add(at)).take_while(|_| !until.passed());
    let figures = hunt(target, seeds, |figures| {
        if next.passed() {
            println!("{target:?}: {figures}");
            next = Deadline::after(REPORT_EVERY);
        }
    });
    println!("{target:?}: {}; broken promises 0", figures.map_err(|found| found.to_string())?);
    Ok(())
}

/// A log of [`LINES`] lines, and then an argument list for each hundred of them.
fn attack_command(first: u64, count: u64, until: Deadline) -> Result<(), String> {
    let logs = count.div_ceil(LINES as u64);
    let lists_each = LINES as u64 / 100;
    let mut done = 0;
    for at in (0..logs).take_while(|_| !until.passed()) {
        processes::log(first.wrapping_add(at))?;
        for list in 0..lists_each {
            processes::arguments_of(first.wrapping_add(at * lists_each + list))?;
        }
        done += 1;
    }
    println!("Log: {} lines; Arguments: {} lists; broken promises 0", done * LINES as u64, done * lists_each);
    Ok(())
}
