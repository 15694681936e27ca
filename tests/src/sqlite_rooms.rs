//! The rooms of the retry queue in an embedded file, for the suites of queue and drain.

use std::sync::Arc;

use recoup::embedded::Embedded;
use recoup::ledger::sqlite::SqliteLedger;
use recoup::queue::sqlite::SqliteQueue;
use rusqlite::{Connection, ToSql};
use tempfile::TempDir;

use crate::queue_rooms::Rooms;

/// The queue's tables in a file of its own, and a plain connection to it as the back door.
#[derive(Debug)]
pub struct SqliteRooms {
    directory: TempDir,
    store: Arc<Embedded>,
    queue: SqliteQueue,
}

impl SqliteRooms {
    /// In a directory of its own.
    pub fn fresh() -> Self {
        let directory = TempDir::new().unwrap();
        let store = Arc::new(Embedded::open(directory.path().join("recoup.db")).unwrap());
        Self { directory, queue: SqliteQueue::new(store.clone()), store }
    }

    /// The ledger in the same file.
    pub fn ledger(&self) -> SqliteLedger {
        SqliteLedger::new(self.store.clone())
    }

    fn stranger(&self) -> Connection {
        Connection::open(self.directory.path().join("recoup.db")).unwrap()
    }

    fn run(&self, sql: &str, params: &[&dyn ToSql]) {
        self.stranger().execute(sql, params).unwrap();
    }

    fn members(&self, sql: &str) -> Vec<(Vec<u8>, i64)> {
        let stranger = self.stranger();
        let mut statement = stranger.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    fn messages(&self, table: &str) -> Vec<Vec<u8>> {
        let sql = format!("SELECT CAST(message AS BLOB), id FROM {table} ORDER BY id");
        self.members(&sql).into_iter().map(|(message, _)| message).collect()
    }
}

impl Rooms for SqliteRooms {
    type Queue = SqliteQueue;

    fn queue(&self) -> &SqliteQueue {
        &self.queue
    }

    /// On a connection of its own, as another process has it.
    fn another(&self) -> SqliteQueue {
        SqliteQueue::new(Arc::new(Embedded::open(self.directory.path().join("recoup.db")).unwrap()))
    }

    async fn push_raw(&self, raw: &[u8]) {
        self.run("INSERT INTO retry (raw) VALUES (?1)", &[&raw]);
    }

    async fn park_raw(&self, member: &[u8], due: i64) {
        self.run("INSERT INTO parked (member, due) VALUES (?1, ?2)", &[&member, &due]);
    }

    async fn lose_cursor(&self) {
        self.run("DELETE FROM sweep", &[]);
    }

    async fn parked(&self) -> Vec<(Vec<u8>, i64)> {
        self.members("SELECT member, due FROM parked ORDER BY due, member")
    }

    async fn in_flight(&self) -> Vec<(Vec<u8>, i64)> {
        self.members("SELECT member, deadline FROM in_flight ORDER BY deadline, member")
    }

    async fn ready(&self) -> Vec<Vec<u8>> {
        self.messages("ready")
    }

    async fn dead_letters(&self) -> Vec<Vec<u8>> {
        self.messages("dead_letter")
    }
}
