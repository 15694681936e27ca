//! What is done to the servers and to the wire, one room for each: the MongoDB-compatible server, Redis, the proxies.
//!
//! Each room does one thing at a time and undoes it before the next, so that when it ends all is as it was; what
//! counts down in a proxy or a fail point is ended by [`World::heal`]. Now and then all of them hold their breath, so that
//! work gets done for the next fault to fall into; functions are killed all the while.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use mongodb::bson::{Document, doc};
use recoup::clock::{Clock, SystemClock};
use tokio::task::JoinSet;

use super::proxy::Proxy;
use super::world::{Stage, World};
use crate::servers::{self, Server};

pub(super) fn start(world: &Arc<World>, rooms: &mut JoinSet<()>) {
    rooms.spawn(hurt_mongodb(Arc::clone(world)));
    rooms.spawn(hurt_redis(Arc::clone(world)));
    rooms.spawn(hurt_the_wire(Arc::clone(world)));
}

/// The faults come and go in this time.
const ROUND_MS: i64 = 20_000;
/// For so long of it there are none.
const BREATH_MS: i64 = 7_000;

/// Waits so long and until no breath is held, unless the faults end before; true while they go on.
async fn next_fault(world: &World, ms: u64) -> bool {
    let next_round = ROUND_MS - SystemClock.now().as_millis().rem_euclid(ROUND_MS);
    let breath = if next_round <= BREATH_MS { next_round.unsigned_abs() } else { 0 };
    tokio::select! {
        () = SystemClock.sleep(Duration::from_millis(ms + breath)) => {}
        () = world.reached(Stage::Calm) => {}
    }
    world.stage() == Stage::Faults
}

async fn hurt_mongodb(world: Arc<World>) {
    let mut rng = world.rng("mongodb", 0);
    while next_fault(&world, rng.u64(400..2_500)).await {
        match rng.u8(0..100) {
            0..8 => {
                world.tally.one("fault: MongoDB killed and restarted");
                restart(&world, &mut *world.mongodb().lock().await, rng.u64(0..1_500)).await;
            }
            8..13 => {
                world.tally.one("fault: MongoDB frozen");
                freeze(&*world.mongodb().lock().await, rng.u64(200..5_500)).await;
            }
            _ => set_fail_point(&world, &mut rng).await,
        }
    }
}

async fn hurt_redis(world: Arc<World>) {
    let mut rng = world.rng("redis", 0);
    while next_fault(&world, rng.u64(300..2_500)).await {
        match rng.u8(0..100) {
            0..40 => {
                if let Some(mut redis) = world.redis_connection().await
                    && redis::cmd("FLUSHALL").exec_async(&mut redis).await.is_ok()
                {
                    world.tally.one("fault: Redis emptied");
                }
            }
            40..65 => {
                world.tally.one("fault: Redis killed and restarted, empty");
                restart(&world, &mut *world.redis().lock().await, rng.u64(0..2_000)).await;
            }
            65..85 => {
                world.tally.one("fault: Redis frozen");
                freeze(&*world.redis().lock().await, rng.u64(100..2_500)).await;
            }
            _ => {}
        }
    }
}

async fn restart(world: &World, server: &mut Server, down_ms: u64) {
    let id = server.id();
    tokio::task::block_in_place(|| server.kill());
    world.guardian.forget(id);
    SystemClock.sleep(Duration::from_millis(down_ms)).await;
    world.guardian.start_server(server);
}

async fn freeze(server: &Server, ms: u64) {
    servers::send_signal(server.id(), "-STOP");
    SystemClock.sleep(Duration::from_millis(ms)).await;
    servers::send_signal(server.id(), "-CONT");
}

/// The server's own faults, on what the functions and the platform send.
async fn set_fail_point(world: &World, rng: &mut Rng) {
    let (name, mut data) = match rng.u8(0..4) {
        0 => {
            let codes = [10_107, 11_602, 189, 91, 6, 89];
            ("fault: MongoDB not primary", doc! { "errorCode": codes[rng.usize(0..codes.len())] })
        }
        1 => ("fault: MongoDB write applied, not confirmed", unconfirmed(rng)),
        2 => ("fault: MongoDB closes the connection", doc! { "closeConnection": true }),
        _ => {
            let ms = rng.i32(50..5_500);
            ("fault: MongoDB blocks", doc! { "blockConnection": true, "blockTimeMS": ms })
        }
    };
    data.extend(doc! { "failCommands": commands(rng), "appName": "recoup" });
    let mode = doc! { "skip": rng.i32(0..10), "times": rng.i32(1..6) };
    let command = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
    if world.fail_point(command).await {
        world.tally.one(name);
    }
}

fn unconfirmed(rng: &mut Rng) -> Document {
    let (code, name) =
        [(64, "WriteConcernFailed"), (91, "ShutdownInProgress"), (100, "UnsatisfiableWriteConcern")]
            [rng.usize(0..3)];
    doc! { "writeConcernError": { "code": code, "codeName": name, "errmsg": "waiting for replication" } }
}

fn commands(rng: &mut Rng) -> Vec<&'static str> {
    match rng.u8(0..4) {
        0 => vec!["find", "aggregate"],
        1 => vec!["insert", "findAndModify"],
        _ => vec!["findAndModify"],
    }
}

async fn hurt_the_wire(world: Arc<World>) {
    let mut rng = world.rng("wire", 0);
    while next_fault(&world, rng.u64(200..1_500)).await {
        let proxy: &Proxy = if rng.bool() { &world.mongodb_proxy } else { &world.redis_proxy };
        match rng.u8(0..10) {
            0 | 1 => {
                world.tally.one("fault: connections cut");
                proxy.cut();
            }
            2..6 => {
                world.tally.one("fault: replies lost");
                proxy.lose_replies(rng.u32(1..4));
            }
            6 => {
                world.tally.one("fault: connections left hanging");
                proxy.hang(rng.u32(1..3));
            }
            7 | 8 => {
                world.tally.one("fault: replies late");
                proxy.slow_down(rng.u32(1..10), rng.u32(10..1_500));
            }
            _ => {
                world.tally.one("fault: connections refused");
                proxy.refuse(true);
                proxy.cut();
                SystemClock.sleep(Duration::from_millis(rng.u64(100..1_500))).await;
                proxy.refuse(false);
            }
        }
    }
}
