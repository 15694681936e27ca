//! The servers: jobs and ledger in MongoDB, the retry queue in Redis.

use recoup::aws;
use recoup::clock::{Clock, Deadline, Timestamp};
use recoup::config::{Address, ConfigError, DispatchTarget, Secret, Server, Settings};
use recoup::dispatch;
use recoup::handlers::drain::{DrainCounts, DrainSettings, drain};
use recoup::ledger::LedgerReader;
use recoup::ledger::mongo::{MongoLedger, Note, Upgrade, Upgraded};
use recoup::queue::redis::RedisQueue;

use crate::stop::Stop;
use crate::store::Store;

/// Ledger and queue on the servers.
pub(crate) struct ServerStore {
    ledger: MongoLedger,
    queue: RedisQueue,
    dispatch_target: DispatchTarget,
}

impl ServerStore {
    /// Reads the addresses, from where they are kept if need be; connects with the first call. A replay gets a queue
    /// of its own beside today's: its keys start with `<prefix>-replay`, in the same hash slot.
    pub(crate) async fn open(
        mongodb: &Address,
        redis: &Address,
        settings: &Settings,
        replays: bool,
    ) -> Result<Self, Stop> {
        let mongodb = resolve(Server::MongoDb, mongodb).await?;
        let redis = resolve(Server::Redis, redis).await?;
        let ledger =
            MongoLedger::open(mongodb.reveal()).await.map_err(|error| Stop::Usage(error.to_string()))?;
        let suffix = if replays { "-replay" } else { "" };
        let redis_key_prefix = format!("{}{suffix}", settings.redis_key_prefix);
        let own = Settings { redis_key_prefix, ..settings.clone() };
        let queue = RedisQueue::with_settings(redis.reveal(), &own)
            .map_err(|error| Stop::Usage(error.to_string()))?;
        Ok(Self { ledger, queue, dispatch_target: settings.dispatch_target.clone() })
    }
}

async fn resolve(server: Server, address: &Address) -> Result<Secret, Stop> {
    aws::resolve(server, address, environment).await.map_err(unusable)
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn unusable(error: ConfigError) -> Stop {
    Stop::Refused(error.to_string())
}

impl Store for ServerStore {
    const KIND: &'static str = "servers";
    /// They stand in the queue of replays, which nobody drains after the replay.
    const QUEUES_REPLAYS: bool = false;
    type Ledger = MongoLedger;
    type Queue = RedisQueue;

    fn ledger(&self) -> &MongoLedger {
        &self.ledger
    }

    fn queue(&self) -> &RedisQueue {
        &self.queue
    }

    fn name(&self) -> String {
        "the database on the servers".to_owned()
    }

    fn hint(&self, command: &str) -> String {
        format!("recoup {command}")
    }

    async fn init(&self) -> Result<(), Stop> {
        Ok(self.ledger.init().await?)
    }

    async fn upgrade(
        &self,
        upgrade: Upgrade,
        now: Timestamp,
        listen: &mut (dyn FnMut(Note) + Send),
    ) -> Result<Option<Upgraded>, Stop> {
        Ok(Some(self.ledger.upgrade(upgrade, now, listen).await?))
    }

    async fn prepare_work(&self) -> Result<(), Stop> {
        if self.ledger.is_initialised().await? {
            return Ok(());
        }
        self.ledger.init().await?;
        eprintln!(
            "note: the database had no collection `jobs` with its validator; it was initialised first, as `recoup init` \
             does"
        );
        Ok(())
    }

    async fn prepare_replay(&self) -> Result<(), Stop> {
        if let Some(job) = self.ledger.any_live_job().await? {
            return Err(Stop::Refused(format!(
                "the database holds job {job:?}, which no replay put there, so nothing was replayed; name an empty \
                 database in MONGODB_URI, or leave --servers out to replay into a file"
            )));
        }
        self.init().await
    }

    async fn drain(
        &self,
        settings: &DrainSettings,
        clock: &impl Clock,
        deadline: Deadline,
    ) -> Result<DrainCounts, Stop> {
        let target = dispatch::aws::target(&self.dispatch_target, environment).map_err(unusable)?;
        Ok(drain(&self.ledger, &self.queue, &target, settings, clock, deadline).await?)
    }

    fn begin_group(&self) -> Result<(), Stop> {
        Ok(())
    }

    /// Every write was durable before it was answered.
    fn commit_group(&self) -> Result<(), Stop> {
        Ok(())
    }
}
