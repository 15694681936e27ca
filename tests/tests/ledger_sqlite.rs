//! The ledger in the embedded file: the suite of every ledger.

use std::sync::Arc;

use recoup::embedded::Embedded;
use recoup::ledger::sqlite::SqliteLedger;
use recoup_tests::ledger_suite::Fresh;
use tempfile::TempDir;

async fn fresh() -> Fresh<SqliteLedger> {
    let directory = TempDir::new().expect("a temporary directory can be made");
    let store = Embedded::open(directory.path().join("recoup.db")).expect("a new file can be made");
    Fresh::new(SqliteLedger::new(Arc::new(store)), directory)
}

recoup_tests::ledger_suite!(fresh, sequences = 512);
