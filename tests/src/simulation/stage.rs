//! The stores that a list is played on, and their back doors: what stands in each room of the queue, what a worker
//! takes, what another program pushes, and Redis emptied.

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use recoup::embedded::Embedded;
use recoup::ledger::mongo::MongoLedger;
use recoup::ledger::sqlite::SqliteLedger;
use recoup::ledger::{Ledger, LedgerReader};
use recoup::queue::RetryQueue;
use recoup::queue::redis::RedisQueue;
use recoup::queue::sqlite::SqliteQueue;
use redis::cmd;
use rusqlite::{Connection, OptionalExtension};
use tempfile::TempDir;

use super::faulty::{FaultyLedger, FaultyQueue};
use super::gate::Process;
use super::reference::{MemoryLedger, MemoryQueue};
use crate::queue_rooms::{RedisRooms, Rooms};
use crate::servers::{fresh_database, required};

/// What stands in the rooms of the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InRooms {
    /// New entries, oldest first.
    pub new: Vec<Vec<u8>>,
    /// Parked members and their times.
    pub parked: Vec<(Vec<u8>, i64)>,
    /// Members in flight and their deadlines.
    pub in_flight: Vec<(Vec<u8>, i64)>,
    /// Messages for workers, oldest first.
    pub ready: Vec<Vec<u8>>,
    /// Dead letters, oldest first.
    pub dead_letters: Vec<Vec<u8>>,
}

/// A ledger and a queue, empty at first.
pub trait Stage: Sync {
    /// The ledger as this process sees it.
    fn ledger<'a>(&'a self, process: &'a Process<'a>) -> impl Ledger + 'a;

    /// The queue as this process sees it.
    fn queue<'a>(&'a self, process: &'a Process<'a>) -> impl RetryQueue + 'a;

    /// What people ask, past any gate.
    fn reader(&self) -> &impl LedgerReader;

    /// Whether only a fault of its own can make it fail: it has no network to blame.
    fn is_local(&self) -> bool;

    /// Everything that stands in the queue.
    fn rooms(&self) -> impl Future<Output = InRooms> + Send;

    /// Another program pushes these bytes.
    fn push_raw(&self, raw: &[u8]) -> impl Future<Output = ()> + Send;

    /// A worker takes the oldest message.
    fn take_ready(&self) -> impl Future<Output = Option<Vec<u8>>> + Send;

    /// The queue loses everything.
    fn empty(&self) -> impl Future<Output = ()> + Send;
}

/// The reference.
#[derive(Debug, Default)]
pub struct MemoryStage {
    pub(super) ledger: MemoryLedger,
    pub(super) queue: MemoryQueue,
}

impl Stage for MemoryStage {
    fn ledger<'a>(&'a self, process: &'a Process<'a>) -> impl Ledger + 'a {
        FaultyLedger::new(&self.ledger, process)
    }

    fn queue<'a>(&'a self, process: &'a Process<'a>) -> impl RetryQueue + 'a {
        FaultyQueue::new(&self.queue, process)
    }

    fn reader(&self) -> &impl LedgerReader {
        &self.ledger
    }

    fn is_local(&self) -> bool {
        true
    }

    async fn rooms(&self) -> InRooms {
        InRooms {
            new: self.queue.new_entries(),
            parked: self.queue.parked(),
            in_flight: self.queue.in_flight(),
            ready: self.queue.ready(),
            dead_letters: self.queue.dead_letters(),
        }
    }

    async fn push_raw(&self, raw: &[u8]) {
        self.queue.push_raw(raw);
    }

    async fn take_ready(&self) -> Option<Vec<u8>> {
        self.queue.take_ready()
    }

    async fn empty(&self) {
        self.queue.empty();
    }
}

/// Where embedded files for lists come from: a directory in memory where the system has one, since every commit is an
/// `fsync`, and one laid-out file to copy.
#[derive(Debug)]
pub struct EmbeddedFiles {
    directory: TempDir,
    template: PathBuf,
}

impl Default for EmbeddedFiles {
    fn default() -> Self {
        let in_memory = Path::new("/dev/shm");
        let directory = if in_memory.is_dir() { TempDir::new_in(in_memory) } else { TempDir::new() }.unwrap();
        let template = directory.path().join("template.db");
        drop(Embedded::open(&template).unwrap());
        Self { directory, template }
    }
}

impl EmbeddedFiles {
    /// An empty store, in the place of the one before.
    pub fn fresh(&self) -> EmbeddedStage {
        let path = self.directory.path().join("recoup.db");
        for left in ["recoup.db-wal", "recoup.db-shm"] {
            let _ = std::fs::remove_file(self.directory.path().join(left));
        }
        std::fs::copy(&self.template, &path).unwrap();
        let store = Arc::new(Embedded::open(&path).unwrap());
        let stranger = Mutex::new(Connection::open(&path).unwrap());
        let (ledger, queue) = (SqliteLedger::new(store.clone()), SqliteQueue::new(store));
        EmbeddedStage { ledger, queue, stranger }
    }
}

/// The embedded store, with a plain connection for a back door.
#[derive(Debug)]
pub struct EmbeddedStage {
    ledger: SqliteLedger,
    queue: SqliteQueue,
    stranger: Mutex<Connection>,
}

impl EmbeddedStage {
    fn stranger(&self) -> MutexGuard<'_, Connection> {
        self.stranger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rows(file: &Connection, sql: &str) -> Vec<(Vec<u8>, i64)> {
    let mut statement = file.prepare_cached(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn texts(file: &Connection, sql: &str) -> Vec<Vec<u8>> {
    rows(file, sql).into_iter().map(|(text, _)| text).collect()
}

impl Stage for EmbeddedStage {
    fn ledger<'a>(&'a self, process: &'a Process<'a>) -> impl Ledger + 'a {
        FaultyLedger::new(&self.ledger, process)
    }

    fn queue<'a>(&'a self, process: &'a Process<'a>) -> impl RetryQueue + 'a {
        FaultyQueue::new(&self.queue, process)
    }

    fn reader(&self) -> &impl LedgerReader {
        &self.ledger
    }

    fn is_local(&self) -> bool {
        true
    }

    async fn rooms(&self) -> InRooms {
        let file = self.stranger();
        InRooms {
            new: texts(&file, "SELECT raw, id FROM retry ORDER BY id"),
            parked: rows(&file, "SELECT member, due FROM parked ORDER BY due, member"),
            in_flight: rows(&file, "SELECT member, deadline FROM in_flight ORDER BY deadline, member"),
            ready: texts(&file, "SELECT CAST(message AS BLOB), id FROM ready ORDER BY id"),
            dead_letters: texts(&file, "SELECT CAST(message AS BLOB), id FROM dead_letter ORDER BY id"),
        }
    }

    async fn push_raw(&self, raw: &[u8]) {
        self.stranger().execute("INSERT INTO retry (raw) VALUES (?1)", [raw]).unwrap();
    }

    async fn take_ready(&self) -> Option<Vec<u8>> {
        let take = "DELETE FROM ready WHERE id = (SELECT min(id) FROM ready) RETURNING CAST(message AS BLOB)";
        self.stranger().query_row(take, [], |row| row.get(0)).optional().unwrap()
    }

    async fn empty(&self) {
        let all = "DELETE FROM retry; DELETE FROM parked; DELETE FROM in_flight; DELETE FROM ready;
                   DELETE FROM dead_letter; DELETE FROM sweep;";
        self.stranger().execute_batch(all).unwrap();
    }
}

/// MongoDB and Redis, for one list after the other.
pub struct ServerStage {
    ledger: MongoLedger,
    rooms: RedisRooms,
    jobs: Collection<Document>,
}

impl fmt::Debug for ServerStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerStage").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

impl ServerStage {
    /// In a database and under a prefix of its own on the shared servers.
    ///
    /// # Panics
    /// Where they cannot be reached.
    pub async fn fresh() -> Self {
        let uri = fresh_database();
        let ledger = MongoLedger::open(&uri).await.expect("the address is good");
        ledger.init().await.expect("the layout can be made");
        let client = Client::with_uri_str(required("RECOUP_TEST_MONGODB_URI")).await.unwrap();
        let path = uri.split('?').next().and_then(|address| address.rsplit('/').next());
        let jobs = client.database(path.expect("a fresh database is in the path")).collection("jobs");
        Self { ledger, rooms: RedisRooms::fresh(), jobs }
    }

    /// Nothing is left of the list before.
    pub async fn clear(&self) {
        self.jobs.delete_many(doc! {}).await.unwrap();
        self.rooms.empty().await;
    }

    /// The database is dropped, too.
    pub async fn leave(self) {
        self.rooms.empty().await;
        self.jobs.client().database(&self.jobs.namespace().db).drop().await.unwrap();
    }
}

impl Stage for ServerStage {
    fn ledger<'a>(&'a self, process: &'a Process<'a>) -> impl Ledger + 'a {
        FaultyLedger::new(&self.ledger, process)
    }

    fn queue<'a>(&'a self, process: &'a Process<'a>) -> impl RetryQueue + 'a {
        FaultyQueue::<RedisQueue>::new(self.rooms.queue(), process)
    }

    fn reader(&self) -> &impl LedgerReader {
        &self.ledger
    }

    fn is_local(&self) -> bool {
        false
    }

    async fn rooms(&self) -> InRooms {
        InRooms {
            new: self.rooms.list("retry").await,
            parked: self.rooms.parked().await,
            in_flight: self.rooms.in_flight().await,
            ready: self.rooms.ready().await,
            dead_letters: self.rooms.dead_letters().await,
        }
    }

    async fn push_raw(&self, raw: &[u8]) {
        self.rooms.push_raw(raw).await;
    }

    async fn take_ready(&self) -> Option<Vec<u8>> {
        self.rooms.run(cmd("LPOP").arg(self.rooms.key("ready"))).await
    }

    async fn empty(&self) {
        self.rooms.empty().await;
    }
}
