//! `recoup drain`: one pass of the retry scheduler, or one each so often where nothing else runs it.

use std::future::Future;
use std::io;
use std::time::Duration;

use recoup::clock::{Clock, Deadline};
use recoup::handlers::drain::DrainCounts;

use super::Desk;
use crate::args::DrainArgs;
use crate::output::{Grid, Output, grouped};
use crate::stop::{Stop, visible};
use crate::store::{Store, drain_settings};

/// What one of many passes may take. One that takes longer has stopped at its deadline, and the next goes on.
const LONGEST_PASS: Duration = Duration::from_secs(60);

pub(crate) async fn run<S: Store>(desk: Desk<'_, S>, args: DrainArgs) -> Result<(), Stop> {
    match args.every {
        None => once(desk).await,
        Some(every) => keep_on(desk, every).await,
    }
}

async fn once<S: Store>(desk: Desk<'_, S>) -> Result<(), Stop> {
    let settings = drain_settings(desk.settings);
    let counts = desk.store.drain(&settings, &desk.clock, Deadline::NONE).await?;
    if desk.out.is_json() {
        return desk.out.document(&counts);
    }
    let mut grid = Grid::bare().right(&[0]);
    for (count, name, meaning) in in_words(&counts) {
        grid.row([grouped(count), format!("{name:<13}  {meaning}")]);
    }
    desk.out.table(&grid)
}

/// Passes until it is told to stop; the one under way comes to its end first. A pass that fails is said and tried again: an
/// outage must not end what is there to outlive it.
async fn keep_on<S: Store>(desk: Desk<'_, S>, every: Duration) -> Result<(), Stop> {
    let settings = drain_settings(desk.settings);
    let told_to_stop = told_to_stop()?;
    tokio::pin!(told_to_stop);
    loop {
        let next = Deadline::after(every);
        match desk.store.drain(&settings, &desk.clock, Deadline::after(LONGEST_PASS)).await {
            Ok(counts) if counts == DrainCounts::default() => {}
            Ok(counts) => say(desk.out, &counts)?,
            Err(stop) => eprintln!("recoup: {}", visible(&stop.to_string())),
        }
        tokio::select! {
            () = &mut told_to_stop => return Ok(()),
            () = desk.clock.sleep(next.left()) => {}
        }
    }
}

/// At once, because nobody knows when the next pass has something to say.
fn say(out: &mut Output, counts: &DrainCounts) -> Result<(), Stop> {
    if out.is_json() {
        out.document(counts)?;
    } else {
        let said = in_words(counts).into_iter().filter(|(count, ..)| *count > 0);
        let said: Vec<String> = said.map(|(count, name, _)| format!("{name} {}", grouped(count))).collect();
        out.line(said.join(", "))?;
    }
    out.finish()
}

#[cfg(unix)]
fn told_to_stop() -> Result<impl Future<Output = ()>, Stop> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| signal(kind).map_err(not_listening);
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn told_to_stop() -> Result<impl Future<Output = ()>, Stop> {
    Ok(async { tokio::signal::ctrl_c().await.unwrap_or_default() })
}

fn not_listening(error: io::Error) -> Stop {
    Stop::Refused(format!("signals cannot be listened to: {error}; run `recoup drain` from a timer instead"))
}

fn in_words(counts: &DrainCounts) -> [(u64, &'static str, &'static str); 8] {
    [
        (counts.dispatched, "dispatched", "retries handed to the workers"),
        (counts.parked, "parked", "new retries that wait for their time"),
        (counts.dead_lettered, "dead_lettered", "jobs set aside for a person"),
        (counts.dropped, "dropped", "retries that were no longer wanted"),
        (counts.recovered, "recovered", "claims that ran out and were taken again"),
        (counts.malformed, "malformed", "entries that were none, kept in the dead-letter list"),
        (counts.swept, "swept", "jobs that were missing from the queue, put back"),
        (counts.timed_out, "timed_out", "attempts that gave no signal, counted as failed"),
    ]
}
