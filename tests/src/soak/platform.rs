//! The platform: charges jobs and hands their first attempts to the workers.
//!
//! It is at least once too: a charge is repeated until the ledger confirms it. The work may be out before its charge
//! is confirmed, so that an event can arrive for a job which the ledger does not know yet. Work that Redis loses is
//! lost; the ledger's attempt timeout is what finds it.

use std::sync::Arc;

use fastrand::Rng;
use recoup::clock::{Clock, SystemClock};
use recoup::job::{AccountId, Cost, JobId};
use recoup::ledger::Ledger;
use recoup::ledger::mongo::MongoLedger;
use recoup::transition::{Charge, ChargeOutcome};
use serde_json::json;
use tokio::task::JoinSet;

use super::checks::{Rule, Violation};
use super::world::{FIRST_WORK, MAX_ATTEMPTS, Stage, World};

/// Jobs that may be open at once: enough for races, few enough to come to rest soon.
const MOST_OPEN: usize = 200;
/// Jobs charged at once.
const AT_ONCE: usize = 6;
/// Accounts that share the jobs.
const ACCOUNTS: u64 = 25;

pub(super) fn start(world: &Arc<World>, parts: &mut JoinSet<()>) {
    parts.spawn(work(Arc::clone(world)));
}

async fn work(world: Arc<World>) {
    let mut rng = world.rng("platform", 0);
    let uri = &world.environment().into_iter().find(|(name, _)| *name == "MONGODB_URI").expect("it is set").1;
    let ledger = MongoLedger::open(uri).await.expect("our own address is one");
    let mut charges = JoinSet::new();
    let mut count = 0;
    while world.stage() == Stage::Faults {
        while charges.try_join_next().is_some() {}
        if charges.len() < AT_ONCE && world.open_jobs() + charges.len() < MOST_OPEN {
            count += 1;
            let charge = next_charge(count, &mut rng);
            charges.spawn(take_on(Arc::clone(&world), ledger.clone(), charge, rng.f64() < 0.1));
        }
        world.pause(rng.u64(1..25)).await;
    }
    while charges.join_next().await.is_some() {}
    world.reached(Stage::Over).await;
}

fn next_charge(count: u64, rng: &mut Rng) -> Charge {
    Charge {
        job_id: JobId::new(format!("job-{count:07}")).expect("an id"),
        account_id: AccountId::new(format!("account-{}", rng.u64(0..ACCOUNTS))).expect("an id"),
        cost: Cost::new(rng.i64(1..1_000)).expect("a cost"),
        max_attempts: MAX_ATTEMPTS,
        replayed: false,
    }
}

async fn take_on(world: Arc<World>, ledger: MongoLedger, charge: Charge, work_comes_first: bool) {
    let job_id = charge.job_id.as_str();
    world.books().open(job_id, charge.account_id.as_str(), charge.cost.credits());
    world.tally.one("job: taken on");
    if work_comes_first {
        hand_out(&world, &charge).await;
    }
    while world.stage() < Stage::Over {
        match ledger.charge(&charge, SystemClock.now()).await {
            Ok(applied) => {
                if applied.outcome == ChargeOutcome::Conflict {
                    let what = format!("{job_id} was charged by nobody else, and yet there is a conflict");
                    world.violations().push(Violation::new(Rule::Unaccounted, what));
                }
                world.books().charged(job_id);
                break;
            }
            Err(_) => {
                world.tally.one("job: charge repeated");
                world.pause(50).await;
            }
        }
    }
    if !work_comes_first {
        hand_out(&world, &charge).await;
    }
}

async fn hand_out(world: &World, charge: &Charge) {
    let message =
        json!({ "job_id": charge.job_id.as_str(), "account_id": charge.account_id.as_str(), "attempt": 1 });
    let Some(mut redis) = world.redis_connection().await else {
        world.tally.one("job: first work lost");
        return;
    };
    let pushed = redis::cmd("RPUSH").arg(FIRST_WORK).arg(message.to_string()).exec_async(&mut redis).await;
    if pushed.is_err() {
        world.tally.one("job: first work lost");
    }
}
