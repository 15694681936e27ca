//! The functions, invoked and killed.
//!
//! A slot runs one process of one function, as Lambda does: it takes events, or a schedule, invokes the process, and
//! kills it where it does not answer in time. On top of that, processes are killed at random, most of them in the
//! middle of an invocation, or frozen for longer than their events stay away, so that another works on the same
//! ones and the first then goes on as if nothing had been.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use recoup::clock::{Clock, Deadline, SystemClock};
use recoup::event::Signal;
use serde_json::Value;
use tokio::task::JoinSet;

use super::OF_EACH;
use super::checks::{Rule, Violation};
use super::source::Batch;
use super::world::{Stage, World};
use crate::runtime_api::{Answer, Function};
use crate::servers;

/// What an invocation may take, as far as the function is told.
const TIMEOUT: Duration = Duration::from_secs(6);

/// The functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Failed,
    Succeeded,
    Scheduler,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Failed, Self::Succeeded, Self::Scheduler];

    fn binary(self) -> &'static str {
        match self {
            Self::Failed => "job-failed",
            Self::Succeeded => "job-succeeded",
            Self::Scheduler => "retry-scheduler",
        }
    }

    /// How a kill is counted, by whether it worked on an invocation.
    fn kill(self, worked: bool) -> &'static str {
        match (self, worked) {
            (Self::Failed, true) => "killed: job-failed, in an invocation",
            (Self::Failed, false) => "killed: job-failed, between invocations",
            (Self::Succeeded, true) => "killed: job-succeeded, in an invocation",
            (Self::Succeeded, false) => "killed: job-succeeded, between invocations",
            (Self::Scheduler, true) => "killed: retry-scheduler, in an invocation",
            (Self::Scheduler, false) => "killed: retry-scheduler, between invocations",
        }
    }
}

/// What is done to a process during an invocation.
#[derive(Clone, Copy, Debug)]
enum Injury {
    None,
    /// Killed so long after its beginning, or right after its end.
    Kill(Duration),
    /// Frozen so long after its beginning, for so long.
    Freeze(Duration, Duration),
}

impl Injury {
    /// A drain takes longer than a batch, so it is spared more often.
    fn random(kind: Kind, rng: &mut Rng) -> Self {
        let most = match kind {
            Kind::Failed | Kind::Succeeded => 70,
            Kind::Scheduler => 100,
        };
        match rng.u8(0..most) {
            0..20 => Self::Kill(Duration::from_millis(rng.u64(0..80))),
            20..26 => Self::Kill(Duration::from_millis(rng.u64(0..800))),
            26..29 => Self::Freeze(
                Duration::from_millis(rng.u64(0..60)),
                Duration::from_millis(rng.u64(200..4_500)),
            ),
            _ => Self::None,
        }
    }
}

/// Two slots for each function.
pub(super) fn start(world: &Arc<World>, parts: &mut JoinSet<()>) {
    for kind in Kind::ALL {
        for number in 0..OF_EACH {
            let slot = Slot {
                world: Arc::clone(world),
                kind,
                rng: world.rng(kind.binary(), number),
                function: None,
            };
            parts.spawn(slot.run());
        }
    }
}

/// With everything at rest, a drain finds nothing to do.
pub(super) async fn last_drain(world: &Arc<World>) {
    let rng = world.rng("last drain", 0);
    let mut slot = Slot { world: Arc::clone(world), kind: Kind::Scheduler, rng, function: None };
    let counts = match slot.invoke("{}".to_owned(), Injury::None).await {
        Some(Answer::Response(counts)) => counts,
        other => {
            let what = format!("the last drain was not answered: {other:?}");
            return world.violations().push(Violation::new(Rule::NotAtRest, what));
        }
    };
    if counts.as_object().is_none_or(|counts| counts.values().any(|count| count != 0)) {
        world.violations().push(Violation::new(Rule::NotAtRest, format!("the last drain did {counts}")));
    }
    slot.kill();
}

struct Slot {
    world: Arc<World>,
    kind: Kind,
    rng: Rng,
    function: Option<(Function, u32)>,
}

impl Slot {
    async fn run(mut self) {
        while self.world.stage() < Stage::Over {
            match self.kind {
                Kind::Failed => self.feed(Signal::Failed).await,
                Kind::Succeeded => self.feed(Signal::Succeeded).await,
                Kind::Scheduler => self.drain().await,
            }
        }
        self.kill();
    }

    async fn feed(&mut self, signal: Signal) {
        let batch = self.world.source().take(signal, SystemClock.now());
        if batch.is_empty() {
            self.world.pause(30).await;
            return;
        }
        self.world.tally.add("event: delivered to a function", batch.len() as u64);
        let injury = self.injury();
        let answer = self.invoke(batch.payload(), injury).await;
        self.settle(&batch, answer);
    }

    fn settle(&self, batch: &Batch, answer: Option<Answer>) {
        let world = &self.world;
        let Some(Answer::Response(response)) = answer else {
            world.tally.add("event: left without an answer", batch.len() as u64);
            return world.source().unanswered(batch);
        };
        let failed: HashSet<String> = response["batchItemFailures"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|failure| failure["itemIdentifier"].as_str().map(ToOwned::to_owned))
            .collect();
        let settled = world.source().settle(batch, &failed, SystemClock.now());
        world.tally.add("event: done", settled.done);
        world.tally.add("event: done, and delivered once more all the same", settled.echoed);
        world.tally.add("event: reported as failed, delivered again", settled.failed);
    }

    async fn drain(&mut self) {
        let injury = self.injury();
        let answer = self.invoke("{}".to_owned(), injury).await;
        self.world.note_drain(format!("{answer:?}"));
        match answer {
            Some(Answer::Response(counts)) => {
                self.world.tally.one("drain: ended");
                for (name, figure) in [
                    ("dispatched", "drain: dispatched"),
                    ("dead_lettered", "drain: dead-lettered"),
                    ("dropped", "drain: dropped as stale"),
                    ("recovered", "drain: claims taken again"),
                    ("swept", "drain: swept"),
                    ("timed_out", "drain: attempts timed out"),
                ] {
                    self.world.tally.add(figure, counts[name].as_u64().unwrap_or_default());
                }
            }
            Some(Answer::Error(_)) => self.world.tally.one("drain: stopped short"),
            Some(Answer::Died) | None => self.world.tally.one("drain: died or killed"),
        }
        let wait = self.rng.u64(20..250);
        self.world.pause(wait).await;
    }

    fn injury(&mut self) -> Injury {
        let is_spared = self.world.stage() > Stage::Faults;
        if is_spared { Injury::None } else { Injury::random(self.kind, &mut self.rng) }
    }

    /// Invokes the process, which is started where none runs. `None`: it was killed.
    async fn invoke(&mut self, payload: String, injury: Injury) -> Option<Answer> {
        if self.function.is_none() {
            self.start().await;
        }
        let (function, pid) = self.function.as_mut().expect("it was started");
        let pid = *pid;
        let answer = {
            let limit = Deadline::after(TIMEOUT + Duration::from_secs(1));
            let mut answer = pin!(limit.bound(function.invoke_within(payload, TIMEOUT)));
            match injury {
                Injury::None => answer.await,
                Injury::Kill(after) => tokio::select! {
                    biased;
                    () = SystemClock.sleep(after) => None,
                    answer = &mut answer => answer,
                },
                Injury::Freeze(after, by) => tokio::select! {
                    biased;
                    () = SystemClock.sleep(after) => {
                        self.world.tally.one("fault: function frozen");
                        servers::send_signal(pid, "-STOP");
                        SystemClock.sleep(by).await;
                        servers::send_signal(pid, "-CONT");
                        answer.await
                    }
                    answer = &mut answer => answer,
                },
            }
        };
        self.end_where_due(&answer, injury);
        answer
    }

    /// Kills the process where that was meant, or where it did not answer in time.
    fn end_where_due(&mut self, answer: &Option<Answer>, injury: Injury) {
        match (answer, injury) {
            (Some(Answer::Died), _) => {
                let logs = self.kill().join("\n");
                let what = format!("{} ended by itself:\n{logs}", self.kind.binary());
                self.world.violations().push(Violation::new(Rule::Panic, what));
            }
            (_, Injury::Kill(_)) => {
                self.world.tally.one(self.kind.kill(answer.is_none()));
                self.kill();
            }
            (None, Injury::None | Injury::Freeze(..)) => {
                self.world.tally.one("fault: function ended at its deadline");
                self.kill();
            }
            (Some(Answer::Response(_) | Answer::Error(_)), Injury::None | Injury::Freeze(..)) => {}
        }
    }

    async fn start(&mut self) {
        let environment = self.world.environment();
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut function = Function::start(self.kind.binary(), &environment).await;
        let pid = function.process().id();
        self.world.guardian.mind(pid);
        self.function = Some((function, pid));
    }

    /// Kills the process, and looks through what it said.
    fn kill(&mut self) -> Vec<String> {
        let Some((function, pid)) = self.function.take() else { return Vec::new() };
        let logs = function.kill();
        self.world.guardian.forget(pid);
        let panics = logs.iter().filter(|line| is_panic(line));
        let found = panics.map(|line| Violation::new(Rule::Panic, format!("{}: {line}", self.kind.binary())));
        self.world.violations().extend(found);
        logs
    }
}

fn is_panic(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|line| line.get("panic").is_some())
}
