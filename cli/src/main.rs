//! `recoup`, the operator's command: over the same handlers as the functions, on the servers or on one embedded file.
//!
//! This file is wiring: what was typed, which store, which command, and the exit status at the end.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use recoup::clock::SystemClock;
use recoup::config::{Needs, Settings};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{Args, Command};
use crate::commands::{Desk, audit, dead_letters, drains, events, init, metrics, reads, sources, webhook};
use crate::output::Output;
use crate::replay::Log;
use crate::servers::ServerStore;
use crate::stop::{Stop, visible};
use crate::store::{Choice, FileStore, Store, choose};

mod args;
mod commands;
mod output;
mod progress;
mod replay;
mod servers;
mod stop;
mod store;
mod story;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(asked) if !asked.use_stderr() => {
            // Help and version; where nobody reads them, there is nobody to tell.
            let _ = asked.print();
            return ExitCode::SUCCESS;
        }
        Err(nothing) if nothing.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = nothing.print();
            return ExitCode::from(2);
        }
        Err(error) => return report(&Stop::Usage(one_line(&error))),
    };
    log_to_stderr(&args.command);
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => report(&stop),
    }
}

fn report(stop: &Stop) -> ExitCode {
    let status = match stop {
        Stop::OutputClosed => return ExitCode::SUCCESS,
        Stop::Refused(_) => 1,
        Stop::Usage(_) => 2,
    };
    eprintln!("recoup: {}", visible(&stop.to_string()));
    ExitCode::from(status)
}

/// What clap says, without its usage lines: what is wrong, and its tips.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut parts: Vec<String> = Vec::new();
    for paragraph in text.split("\n\n") {
        let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if !line.is_empty() && !line.starts_with("Usage:") && !line.starts_with("For more information") {
            parts.push(line);
        }
    }
    let said = parts.join("; ");
    format!("{}; `--help` shows how it is used", said.strip_prefix("error: ").unwrap_or(&said))
}

/// The handlers' warnings, but not those of a replay, which are about somebody's past. The line with which a drain
/// says what ended it, the one that carries `counts`, is left out too: this command says that itself.
fn log_to_stderr(command: &Command) {
    let level = if matches!(command, Command::Replay(_)) { LevelFilter::OFF } else { LevelFilter::WARN };
    let ours =
        filter_fn(|event| event.target().starts_with("recoup") && event.fields().field("counts").is_none());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .without_time();
    tracing_subscriber::registry().with(lines.with_filter(level).with_filter(ours)).init();
}

fn start(args: Args) -> Result<(), Stop> {
    let mut out = Output::new(args.json);
    if let Command::Completions(shell) = &args.command {
        clap_complete::generate(shell.shell, &mut Args::command(), "recoup", out.raw());
        return out.finish();
    }
    if matches!(&args.command, Command::Metrics) {
        metrics::run(&mut out)?;
        return out.finish();
    }
    let settings = Settings::read(Needs::Nothing, |name| std::env::var(name).ok())
        .map_err(|error| Stop::Usage(error.to_string()))?;
    if let Command::Sources = &args.command {
        sources::run(&settings, &mut out)?;
        return out.finish();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::Refused(format!("no runtime can be started: {error}; try again")))?;
    if let Command::WebhookUrl(args) = args.command {
        runtime.block_on(webhook::url(args, &mut out))?;
        return out.finish();
    }
    let choice = choose(args.db, &args.command, &settings, std::env::var_os("RECOUP_DB"))?;
    // Before a store: a mistyped name of a log must not leave an empty ledger behind.
    let log = if let Command::Replay(replay) = &args.command { Some(Log::open(&replay.log)?) } else { None };
    let done = runtime.block_on(async {
        match choice {
            Choice::File { path, by_default } => {
                let store = FileStore::open(&path, by_default, may_create(&args.command))?;
                run(&store, args.command, log, &settings, &mut out).await
            }
            Choice::Servers { mongodb, redis } => {
                let replays = matches!(args.command, Command::Replay(_));
                let store = ServerStore::open(&mongodb, &redis, &settings, replays).await?;
                run(&store, args.command, log, &settings, &mut out).await
            }
        }
    });
    // What was answered before an error is an answer all the same.
    let written = out.finish();
    done.and(written)
}

/// Commands that begin something. To any other one, a file that is not there is a mistake.
fn may_create(command: &Command) -> bool {
    match command {
        Command::Init(_) | Command::Charge(_) | Command::Replay(_) => true,
        Command::Failed(_)
        | Command::Succeeded(_)
        | Command::Drain(_)
        | Command::Job(_)
        | Command::Balance(_)
        | Command::Statement(_)
        | Command::Export(_)
        | Command::DeadLetters(_)
        | Command::Audit
        | Command::Metrics
        | Command::Sources
        | Command::WebhookUrl(_)
        | Command::Completions(_) => false,
    }
}

async fn run<S: Store>(
    store: &S,
    command: Command,
    log: Option<Log>,
    settings: &Settings,
    out: &mut Output,
) -> Result<(), Stop> {
    let desk = Desk { store, settings, clock: SystemClock, out };
    match command {
        Command::Init(args) => init::run(desk, &args).await,
        Command::Charge(args) => events::charge(desk, args).await,
        Command::Failed(args) => events::failed(desk, args).await,
        Command::Succeeded(args) => events::succeeded(desk, args).await,
        Command::Drain(args) => drains::run(desk, args).await,
        Command::Replay(args) => {
            let log = log.expect("the log of every replay was opened before the store");
            replay::run(desk, args, log).await
        }
        Command::Job(args) => reads::job(desk, args).await,
        Command::Balance(args) => reads::balance(desk, args).await,
        Command::Statement(args) => reads::statement(desk, args).await,
        Command::Export(args) => reads::export(desk, args).await,
        Command::DeadLetters(args) => dead_letters::run(desk, args).await,
        Command::Audit => audit::run(desk).await,
        // They need no store, and were served before one was opened.
        Command::Metrics | Command::Sources | Command::WebhookUrl(_) | Command::Completions(_) => Ok(()),
    }
}
