//! The worker processes, from the harness's side: started, heard, killed, started again.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use recoup::clock::{Clock, SystemClock};
use recoup::event::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::worker::{ARGUMENT, Line};
use super::world::{Stage, World};
use crate::servers;

/// How many run at once.
const WORKERS: usize = 2;

pub(super) fn start(world: &Arc<World>, parts: &mut JoinSet<()>) {
    for number in 0..WORKERS {
        parts.spawn(keep_running(Arc::clone(world), world.rng("worker", number)));
    }
}

async fn keep_running(world: Arc<World>, mut rng: Rng) {
    while world.stage() < Stage::Over {
        let is_calm = world.stage() > Stage::Faults;
        let mut worker = spawn(&world, rng.u64(..), is_calm);
        let pid = worker.id().expect("it was not waited for");
        world.guardian.mind(pid);
        hear_out(&world, &mut worker, &mut rng, is_calm).await;
        world.guardian.forget(pid);
        // One that has ended by itself cannot be killed.
        let _ = worker.kill().await;
    }
}

fn spawn(world: &World, seed: u64, is_calm: bool) -> Child {
    let redis = format!("redis://127.0.0.1:{}", world.redis_proxy.port());
    Command::new(servers::binary("soak"))
        .args([ARGUMENT, &redis, &seed.to_string(), if is_calm { "calm" } else { "wild" }])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("our own binary starts")
}

/// Until it ends, is to be killed, or the stage is another.
async fn hear_out(world: &World, worker: &mut Child, rng: &mut Rng, is_calm: bool) {
    let mut lines = BufReader::new(worker.stdout.take().expect("stdout is a pipe")).lines();
    let mut killed = std::pin::pin!(SystemClock.sleep(Duration::from_millis(rng.u64(1_000..12_000))));
    let next = if is_calm { Stage::Over } else { Stage::Calm };
    let mut ended = std::pin::pin!(world.reached(next));
    loop {
        tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) => accept(world, &line),
                Ok(None) | Err(_) => return world.tally.one("killed: worker, by its own hand"),
            },
            () = &mut killed, if !is_calm => return world.tally.one("killed: worker"),
            () = &mut ended => return,
        }
    }
}

fn accept(world: &World, line: &str) {
    let report = |signal: Signal, body: &Value| {
        world.books().reported(signal, body);
        let copies = world.source().accept(signal, body, SystemClock.now());
        world.tally.add("event: accepted by the source", copies);
    };
    match serde_json::from_str(line).expect("a worker writes whole lines") {
        Line::Took(message) => {
            world.tally.one("worker: retries taken from ready");
            world.ready().push(message);
        }
        Line::Quietly(what) => world.tally.one(figure(&what)),
        Line::Succeeded(body) => report(Signal::Succeeded, &body),
        Line::Failed(body) => report(Signal::Failed, &body),
    }
}

fn figure(what: &str) -> &'static str {
    const FIGURES: [&str; 5] = [
        "worker: answered too late",
        "worker: failure, then success",
        "worker: success, then failure",
        "worker: one failure reported twice",
        "worker: died silently",
    ];
    FIGURES.into_iter().find(|figure| *figure == what).expect("a worker's figures are these")
}
