//! The soak: the real binaries against real servers, killed and cut off at random, and then counted.
//!
//! ```text
//!  platform ──charges──────────────> proxy ──> MongoDB-compatible server <──reads── observer
//!     │                                ^                                              (what stands stays)
//!     │ first work                     │
//!     v                                │
//!   Redis <── proxy <── functions: 2 job-failed, 2 job-succeeded, 2 retry-scheduler
//!     │                                ^
//!     v ready                          │ batches of 1 to 10
//!  workers ──────── events ─────────> source (at least once)
//! ```
//!
//! Functions and workers are processes of their own, the servers too. [`faults`] hurts them; [`source`] doubles,
//! delays and reorders what the workers report, and lets go of an event only where a function answered without
//! reporting it as failed. In the end the faults stop, everything outstanding is delivered again, drains run until
//! nothing is left to do, and [`checks`] compares the ledger with the harness's own books. The checks know what was
//! charged and what was reported, and nothing of how the ledger works.
//!
//! The seed decides what is done to whom and what the workers answer. It does not decide when the machine runs which
//! process, so a seed makes a like run and not the same one.
//!
//! That the soak can fail is shown by [`Sabotage`]: each breaks the setup or, on the wire, a guard, and is found.

use std::time::Duration;

use recoup::clock::{Clock, Deadline, SystemClock};
use recoup::queue::RetryQueue;
use recoup::queue::redis::RedisQueue;
use tokio::task::JoinSet;

use self::checks::{Rule, Violation};
pub use self::report::Report;
pub use self::sabotage::Sabotage;
pub use self::tally::Figures;
use self::world::{PREFIX, Stage, World};

pub mod books;
pub mod checks;
mod faults;
mod functions;
pub mod guardian;
mod observer;
mod operator;
mod platform;
pub mod proxy;
mod report;
mod sabotage;
pub mod source;
mod tally;
pub mod worker;
mod workers;
mod world;

/// How many processes of each function run at once: two, so that they race.
const OF_EACH: usize = 2;

/// What a soak that counts has seen each of, by the beginning of its figure's name.
pub const EACH_KIND: &[&str] = &[
    "killed: worker",
    "fault: MongoDB killed",
    "fault: Redis killed",
    "fault: Redis emptied",
    "fault: connections cut",
    "fault: replies lost",
    "operator: commands that did it",
];

/// What to do, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the random choices come from.
    pub seed: u64,
    /// Faults go on until so many functions were killed…
    pub kills: u64,
    /// …and each of these figures counts something…
    pub kinds: &'static [&'static str],
    /// …and at least so long…
    pub at_least: Duration,
    /// …but no longer than this.
    pub at_most: Duration,
    /// After the last fault, how long may pass without anything coming nearer to rest.
    pub patience: Duration,
    /// What is broken on purpose.
    pub sabotage: Option<Sabotage>,
    /// Whether figures are printed meanwhile.
    pub is_shown: bool,
}

impl Plan {
    /// What it asks for and the figures do not show.
    fn shortfalls(&self, figures: &Figures) -> Vec<String> {
        let kills = figures.kills();
        let too_few = (kills < self.kills).then(|| format!("{kills} functions killed, of {}", self.kills));
        let missing = self.kinds.iter().filter(|kind| figures.sum_of(kind) == 0);
        too_few.into_iter().chain(missing.map(|kind| format!("none of \"{kind}\""))).collect()
    }
}

/// Runs the soak. `stop`, once it is done, ends the faults early; the checks follow all the same.
///
/// # Panics
/// Where the harness itself cannot go on, such as without its servers' programs. Violations are no panic.
pub async fn run(plan: Plan, stop: impl Future<Output = ()>) -> Report {
    let began = SystemClock.now();
    let world = World::start(plan).await;
    let mut everything = JoinSet::new();
    platform::start(&world, &mut everything);
    observer::start(&world, &mut everything);
    functions::start(&world, &mut everything);
    workers::start(&world, &mut everything);
    let mut trouble = JoinSet::new();
    faults::start(&world, &mut trouble);
    operator::start(&world, &mut trouble);
    sabotage::start(&world, &mut trouble);

    let stopped = tokio::select! {
        () = until_hurt_enough(&world) => None,
        () = stop => Some("on request"),
        panicked = first_panic(&mut everything) => Some(panicked),
    };
    world.enter(Stage::Calm);
    while let Some(ended) = trouble.join_next().await {
        ended.expect("no fault panics");
    }
    world.heal().await;
    world.say(&format!("the faults end{}", stopped.map(|why| format!(" {why}")).unwrap_or_default()));
    let at_rest = rest(&world).await;
    world.enter(Stage::Over);
    while let Some(ended) = everything.join_next().await {
        ended.expect("no part of the soak panics");
    }
    if at_rest {
        functions::last_drain(&world).await;
    }
    let violations = checks::at_the_end(&world).await;
    let figures = world.tally.figures();
    Report::new(&world.plan, began, SystemClock.now(), figures, violations)
}

/// Never returns while all is well: the parts end only when they are told to.
async fn first_panic(everything: &mut JoinSet<()>) -> &'static str {
    match everything.join_next().await {
        Some(Err(error)) => panic!("a part of the soak panicked: {error}"),
        Some(Ok(())) | None => "because a part of the soak ended",
    }
}

async fn until_hurt_enough(world: &World) {
    let (at_least, at_most) = (Deadline::after(world.plan.at_least), Deadline::after(world.plan.at_most));
    let mut shown = Deadline::after(SHOW_EACH);
    let is_enough = || at_least.passed() && world.plan.shortfalls(&world.tally.figures()).is_empty();
    while !at_most.passed() && !is_enough() {
        SystemClock.sleep(Duration::from_millis(200)).await;
        if shown.passed() {
            world.say(&world.progress());
            shown = Deadline::after(SHOW_EACH);
        }
    }
}

const SHOW_EACH: Duration = Duration::from_secs(15);

/// Waits until nothing is left to do. A slow machine gets its time, as long as ever less is left; where nothing comes
/// nearer to rest any more, what is left is a violation each.
async fn rest(world: &World) -> bool {
    let queue = RedisQueue::open(&world.redis_url(), PREFIX, false).expect("our own address is one");
    let mut patience = Deadline::after(world.plan.patience);
    let mut least = usize::MAX;
    let mut is_last_look = false;
    let mut shown = Deadline::after(SHOW_EACH);
    loop {
        let left = what_is_left(world, &queue).await;
        if left.is_empty() && is_last_look {
            return true;
        }
        if left.is_empty() {
            // A redrive whose command was killed may have come through after the observer's look at its job.
            world.seen().all_are_open_again();
            world.set_open_jobs(world.books().jobs().len());
            is_last_look = true;
        }
        let jobs_and_events = world.open_jobs() + world.source().waiting().len();
        if jobs_and_events < least {
            least = jobs_and_events;
            patience = Deadline::after(world.plan.patience);
        }
        if patience.passed() {
            world.violations().extend(left);
            let drains = world.last_drains().join("\n    ");
            world
                .violations()
                .push(Violation::new(Rule::NotAtRest, format!("the last drains:\n    {drains}")));
            return false;
        }
        if shown.passed() {
            let left: Vec<String> = left.into_iter().map(|violation| violation.what).collect();
            world.say(&format!("{}; left: {}", world.progress(), left.join(", ")));
            shown = Deadline::after(SHOW_EACH);
        }
        SystemClock.sleep(Duration::from_millis(300)).await;
    }
}

async fn what_is_left(world: &World, queue: &RedisQueue) -> Vec<Violation> {
    let mut left = Vec::new();
    let mut add = |rule, what: String| left.push(Violation::new(rule, what));
    let waiting = world.source().waiting();
    if !waiting.is_empty() {
        add(Rule::EventStuck, format!("{} events were never taken, such as {}", waiting.len(), waiting[0]));
    }
    let uncharged = world.books().uncharged();
    if uncharged > 0 {
        add(Rule::EventStuck, format!("{uncharged} charges were never confirmed"));
    }
    if world.open_jobs() > 0 {
        let what = format!("{} jobs neither delivered nor set aside", world.open_jobs());
        add(Rule::NotAtRest, what);
    }
    match queue.depths().await {
        Ok(depths) => {
            let rooms = [
                ("retry", depths.retry),
                ("parked", depths.parked),
                ("in flight", depths.in_flight),
                ("ready", depths.ready),
            ];
            for (room, count) in rooms.into_iter().filter(|(_, count)| *count > 0) {
                add(Rule::QueueNotEmpty, format!("{count} entries stand in {room}"));
            }
        }
        Err(error) => add(Rule::NotAtRest, format!("the queue cannot be read: {error}")),
    }
    left
}
