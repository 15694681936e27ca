//! The operator: redrives dead letters and asks about jobs with the command, while everything is hurt.
//!
//! A command is a process like any other: some are killed in the middle, and all of them meet the same faults on the
//! wire. Nothing they print is judged but a panic; what they leave behind is judged with the rest.

use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use recoup::clock::{Clock, SystemClock};
use recoup::job::Phase;
use recoup::ledger::LedgerReader;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::checks::{Rule, Violation};
use super::world::{Stage, World};
use crate::servers;

/// Dead letters that the operator looks at before choosing one.
const LOOKED_AT: usize = 50;

pub(super) fn start(world: &Arc<World>, rooms: &mut JoinSet<()>) {
    rooms.spawn(work(Arc::clone(world)));
}

async fn work(world: Arc<World>) {
    let mut rng = world.rng("operator", 0);
    while world.stage() == Stage::Faults {
        SystemClock.sleep(Duration::from_millis(rng.u64(300..3_000))).await;
        let phase = if rng.u8(0..4) > 0 { Phase::DeadLettered } else { Phase::Failed };
        let Some(job_id) = some_job(&world, phase, &mut rng).await else { continue };
        if rng.u8(0..4) > 0 {
            world.tally.one("operator: redrives");
            command(&world, &["dead-letters", "redrive", &job_id], &mut rng).await;
            world.seen().is_open_again(&job_id);
        } else {
            world.tally.one("operator: looks at a job");
            command(&world, &["job", &job_id], &mut rng).await;
        }
    }
}

async fn some_job(world: &World, phase: Phase, rng: &mut Rng) -> Option<String> {
    let page = world.ledger.jobs(Some(phase), None, LOOKED_AT).await.ok()?;
    let place = rng.usize(0..page.len().max(1));
    page.into_iter().nth(place).map(|(id, _)| id)
}

async fn command(world: &World, arguments: &[&str], rng: &mut Rng) {
    let child = Command::new(servers::binary("recoup"))
        .args(arguments)
        .env_clear()
        .envs(world.environment())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("our own binary starts");
    let patience = if rng.u8(0..3) == 0 { rng.u64(1..150) } else { 30_000 };
    match ended(child, Duration::from_millis(patience)).await {
        None => world.tally.one("killed: recoup"),
        Some(output) => judge(world, arguments, &output),
    }
}

/// What the process left; `None` where it was killed after so long.
async fn ended(child: Child, patience: Duration) -> Option<Output> {
    tokio::select! {
        output = child.wait_with_output() => Some(output.expect("the process was started")),
        () = SystemClock.sleep(patience) => None,
    }
}

fn judge(world: &World, arguments: &[&str], output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("panicked") || output.status.code().is_none() {
        let what = format!("recoup {}: {}, {}", arguments.join(" "), output.status, said.trim());
        world.violations().push(Violation::new(Rule::Panic, what));
    }
    if output.status.success() {
        world.tally.one("operator: commands that did it");
    } else {
        world.tally.one("operator: commands that were refused or met a fault");
    }
}
