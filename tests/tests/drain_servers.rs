//! The drain over MongoDB and Redis.

use recoup::ledger::mongo::MongoLedger;
use recoup_tests::drain_suite::World;
use recoup_tests::queue_rooms::RedisRooms;
use recoup_tests::servers::fresh_database;

async fn world() -> World<MongoLedger, RedisRooms> {
    let ledger = MongoLedger::open(&fresh_database()).await.expect("the address is good");
    ledger.init().await.expect("the layout can be made");
    World::new(ledger, RedisRooms::fresh())
}

recoup_tests::drain_suite!(world);
