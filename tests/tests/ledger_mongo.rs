//! The conformance suite on MongoDB.

use recoup::ledger::mongo::MongoLedger;
use recoup_tests::ledger_suite::Fresh;
use recoup_tests::{ledger_suite, servers};

async fn fresh() -> Fresh<MongoLedger> {
    let ledger = MongoLedger::open(&servers::fresh_database()).await.unwrap();
    ledger.init().await.unwrap();
    Fresh::new(ledger, ())
}

ledger_suite!(fresh, sequences = 64);
