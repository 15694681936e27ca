//! What the parts of a soak share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use mongodb::bson::doc;
use recoup::clock::{Clock, SystemClock, Timestamp};
use recoup::ledger::mongo::MongoLedger;
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::books::Books;
use super::checks::Violation;
use super::guardian::Guardian;
use super::observer::Seen;
use super::proxy::Proxy;
use super::source::Source;
use super::tally::Tally;
use super::{Plan, sabotage};
use crate::servers::{Server, with_database};

/// The queue's key prefix.
pub(super) const PREFIX: &str = "jobs";
/// The list on which the platform puts the work of first attempts.
pub(super) const FIRST_WORK: &str = "soak:first";
/// The ledger's database.
pub(super) const DATABASE: &str = "soak";
/// Failures after which a job is dead-lettered.
pub(super) const MAX_ATTEMPTS: u32 = 4;

/// Answers of drains that are kept.
const DRAINS_KEPT: usize = 10;

/// How far the soak has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Everything is hurt.
    Faults,
    /// Nothing is hurt any more; what is outstanding comes to rest.
    Calm,
    /// All parts end.
    Over,
}

/// The soak's servers, books and counts.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) tally: Tally,
    pub(super) mongodb_proxy: Proxy,
    pub(super) redis_proxy: Proxy,
    /// The ledger, past the proxy and out of reach of the server's fail points.
    pub(super) ledger: MongoLedger,
    /// The same, for what the ledger's port does not offer.
    pub(super) database: mongodb::Database,
    pub(super) guardian: Arc<Guardian>,
    mongodb: AsyncMutex<Server>,
    redis: AsyncMutex<Server>,
    mongodb_uri: String,
    redis_url: String,
    stage: watch::Sender<Stage>,
    source: Mutex<Source>,
    books: Mutex<Books>,
    seen: Mutex<Seen>,
    ready: Mutex<Vec<String>>,
    drains: Mutex<VecDeque<String>>,
    violations: Mutex<Vec<Violation>>,
    open_jobs: AtomicUsize,
}

impl World {
    /// Starts the servers and lays out the database.
    pub(super) async fn start(plan: Plan) -> Arc<Self> {
        let guardian = Arc::new(Guardian::start());
        let mut mongodb = Server::mongodb_stopped(true);
        guardian.start_server(&mut mongodb);
        let mut redis = Server::redis_stopped(&[]);
        guardian.start_server(&mut redis);
        let mongodb_uri = mongodb.mongodb_uri(DATABASE);
        let own_uri = format!("{mongodb_uri}&appName=soak");
        let ledger = MongoLedger::open(&own_uri).await.expect("our own address is one");
        ledger.init().await.expect("the database can be laid out");
        let client = mongodb::Client::with_uri_str(&own_uri).await.expect("our own address is one");
        let rng = Rng::with_seed(plan.seed);
        let source = Source::new(rng, plan.sabotage == Some(super::Sabotage::LoseEvents));
        Arc::new(Self {
            mongodb_proxy: Proxy::start(mongodb.port(), sabotage::rewrite(plan.sabotage)).await,
            redis_proxy: Proxy::start(redis.port(), None).await,
            redis_url: redis.redis_url(),
            plan,
            tally: Tally::default(),
            ledger,
            database: client.database(DATABASE),
            guardian,
            mongodb: AsyncMutex::new(mongodb),
            redis: AsyncMutex::new(redis),
            mongodb_uri,
            stage: watch::Sender::new(Stage::Faults),
            source: Mutex::new(source),
            books: Mutex::default(),
            seen: Mutex::default(),
            ready: Mutex::default(),
            drains: Mutex::default(),
            violations: Mutex::default(),
            open_jobs: AtomicUsize::new(0),
        })
    }

    /// A random sequence of its own for the part `name`, number `n`.
    pub(super) fn rng(&self, name: &str, n: usize) -> Rng {
        let mut seed = self.plan.seed.rotate_left(17) ^ (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in name.bytes() {
            seed = seed.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte);
        }
        Rng::with_seed(seed)
    }

    pub(super) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    pub(super) fn enter(&self, stage: Stage) {
        self.stage.send_replace(stage);
        if stage == Stage::Calm {
            self.source().calm_down(SystemClock.now());
        }
    }

    /// Returns once the soak has come so far.
    pub(super) async fn reached(&self, stage: Stage) {
        let mut stages = self.stage.subscribe();
        stages.wait_for(|now| *now >= stage).await.expect("the sender lives as long as the world");
    }

    /// Waits so long, or until the soak is over; false where it is.
    pub(super) async fn pause(&self, ms: u64) -> bool {
        tokio::select! {
            () = SystemClock.sleep(std::time::Duration::from_millis(ms)) => {}
            () = self.reached(Stage::Over) => {}
        }
        self.stage() < Stage::Over
    }

    /// Ends every fault: fail points, proxies.
    pub(super) async fn heal(&self) {
        self.fail_point(doc! { "configureFailPoint": "failCommand", "mode": "off" }).await;
        self.mongodb_proxy.heal();
        self.redis_proxy.heal();
    }

    /// Sets a fail point; false where the server is not to be reached.
    pub(super) async fn fail_point(&self, command: mongodb::bson::Document) -> bool {
        self.database.client().database("admin").run_command(command).await.is_ok()
    }

    /// What the functions and the command go by: short times, and addresses that lead through the proxies.
    pub(super) fn environment(&self) -> Vec<(&'static str, String)> {
        let mongodb = format!("mongodb://127.0.0.1:{}/?directConnection=true", self.mongodb_proxy.port());
        let redis = format!("redis://127.0.0.1:{}", self.redis_proxy.port());
        let mut variables = self.settings();
        variables.extend([("MONGODB_URI", with_database(&mongodb, DATABASE)), ("REDIS_URL", redis)]);
        variables
    }

    /// The same, past the proxies.
    pub(super) fn own_environment(&self) -> Vec<(&'static str, String)> {
        let mut variables = self.settings();
        variables.extend([("MONGODB_URI", self.mongodb_uri.clone()), ("REDIS_URL", self.redis_url.clone())]);
        variables
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut variables: BTreeMap<&'static str, String> = [
            ("REDIS_KEY_PREFIX", PREFIX),
            ("RETRY_BASE_DELAY", "20ms"),
            ("RETRY_MAX_DELAY", "1s"),
            ("RETRY_MAX_ATTEMPTS", "4"),
            ("RETRY_JITTER", "0.3"),
            ("CLAIM_TIMEOUT", "1s"),
            ("SWEEP_GRACE", "200ms"),
            ("ATTEMPT_TIMEOUT", "3s"),
            ("RUST_LOG", "warn"),
        ]
        .map(|(variable, value)| (variable, value.to_owned()))
        .into();
        variables.extend(sabotage::settings(self.plan.sabotage));
        variables.into_iter().collect()
    }

    pub(super) fn redis_url(&self) -> String {
        self.redis_url.clone()
    }

    /// A connection to Redis past the proxy; `None` while it is down.
    pub(super) async fn redis_connection(&self) -> Option<redis::aio::MultiplexedConnection> {
        let client = redis::Client::open(self.redis_url.as_str()).expect("our own address is one");
        client.get_multiplexed_async_connection().await.ok()
    }

    pub(super) fn mongodb(&self) -> &AsyncMutex<Server> {
        &self.mongodb
    }

    pub(super) fn redis(&self) -> &AsyncMutex<Server> {
        &self.redis
    }

    pub(super) fn source(&self) -> MutexGuard<'_, Source> {
        lock(&self.source)
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.books)
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// The messages that workers took from `ready`.
    pub(super) fn ready(&self) -> MutexGuard<'_, Vec<String>> {
        lock(&self.ready)
    }

    /// Keeps what the last drains answered, for the case that the soak does not come to rest.
    pub(super) fn note_drain(&self, answer: String) {
        let mut drains = lock(&self.drains);
        drains.push_back(answer);
        if drains.len() > DRAINS_KEPT {
            drains.pop_front();
        }
    }

    /// What the last drains answered.
    pub(super) fn last_drains(&self) -> Vec<String> {
        lock(&self.drains).iter().cloned().collect()
    }

    pub(super) fn violations(&self) -> MutexGuard<'_, Vec<Violation>> {
        lock(&self.violations)
    }

    /// Jobs that the observer last saw neither delivered nor set aside, and those that were charged since.
    pub(super) fn open_jobs(&self) -> usize {
        self.open_jobs.load(Ordering::Relaxed)
    }

    pub(super) fn set_open_jobs(&self, count: usize) {
        self.open_jobs.store(count, Ordering::Relaxed);
    }

    pub(super) fn say(&self, what: &str) {
        if self.plan.is_shown {
            let now: Timestamp = SystemClock.now();
            eprintln!("{now}  {what}");
        }
    }

    /// Where the soak stands, in one line.
    pub(super) fn progress(&self) -> String {
        let figures = self.tally.figures();
        format!(
            "{} jobs, {} open; {} events waiting; {} functions killed; {} faults; {} violations",
            self.books().jobs().len(),
            self.open_jobs(),
            self.source().waiting().len(),
            figures.kills(),
            figures.sum_of("fault: "),
            self.violations().len(),
        )
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
