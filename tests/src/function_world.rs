//! What a test of the function binaries needs: a ledger, a queue, and the environment that leads to both.

use std::collections::BTreeMap;

use recoup::clock::{Clock, SystemClock};
use recoup::job::{AccountId, Cost, Job, JobId};
use recoup::ledger::mongo::MongoLedger;
use recoup::ledger::{Ledger, LedgerReader};
use recoup::transition::Charge;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use crate::runtime_api::Function;
use crate::servers;

/// The password that stands in every address here: no output may hold it.
pub const PASSWORD: &str = "hunter2";

/// A ledger and a queue of a test's own.
pub struct FunctionWorld {
    /// The ledger.
    pub ledger: MongoLedger,
    redis_url: String,
    prefix: String,
    environment: BTreeMap<String, String>,
}

impl FunctionWorld {
    /// On the shared servers.
    pub async fn shared() -> Self {
        Self::on(&servers::fresh_database(), &servers::redis_url()).await
    }

    /// On these servers.
    pub async fn on(mongodb_uri: &str, redis_url: &str) -> Self {
        let ledger = MongoLedger::open(mongodb_uri).await.expect("the address is one");
        ledger.init().await.expect("the database can be laid out");
        let prefix = servers::unique("functions");
        let environment = [
            ("MONGODB_URI", mongodb_uri),
            ("REDIS_URL", redis_url),
            ("REDIS_KEY_PREFIX", &prefix),
            ("RETRY_BASE_DELAY", "100ms"),
            ("CLAIM_TIMEOUT", "1s"),
        ]
        .map(|(variable, value)| (variable.to_owned(), value.to_owned()))
        .into();
        Self { ledger, redis_url: redis_url.to_owned(), prefix, environment }
    }

    /// With this variable, or with another value for it.
    #[must_use]
    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.environment.insert(variable.to_owned(), value.to_owned());
        self
    }

    /// The environment, for a process.
    pub fn environment(&self) -> Vec<(&str, &str)> {
        self.environment.iter().map(|(variable, value)| (variable.as_str(), value.as_str())).collect()
    }

    /// Starts a function in it.
    pub async fn function(&self, name: &str) -> Function {
        Function::start(name, &self.environment()).await
    }

    /// Charges these jobs 100 credits each.
    pub async fn charge(&self, jobs: &[&str]) {
        for job in jobs {
            let charge = Charge {
                job_id: JobId::new(*job).expect("an id"),
                account_id: AccountId::new("account").expect("an id"),
                cost: Cost::new(100).expect("a cost"),
                max_attempts: 5,
                replayed: false,
            };
            self.ledger.charge(&charge, SystemClock.now()).await.expect("the ledger is there");
        }
    }

    /// The job as it stands.
    pub async fn job(&self, job: &str) -> Job {
        let id = JobId::new(job).expect("an id");
        self.ledger.job(&id).await.expect("the ledger is there").expect("the job is there")
    }

    /// The items of one of the queue's lists, such as `ready`.
    pub async fn list(&self, name: &str) -> Vec<String> {
        let key = format!("{}:{name}", self.prefix);
        let mut redis = self.redis().await;
        redis::cmd("LRANGE").arg(key).arg(0).arg(-1).query_async(&mut redis).await.expect("Redis is there")
    }

    async fn redis(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.redis_url.as_str()).expect("the address is one");
        client.get_multiplexed_async_connection().await.expect("Redis is there")
    }
}

/// An SQS batch of these bodies, as the records `m0`, `m1`, ….
pub fn sqs(bodies: &[String]) -> String {
    let records: Vec<Value> = bodies
        .iter()
        .enumerate()
        .map(|(number, body)| json!({ "messageId": format!("m{number}"), "body": body, "eventSource": "aws:sqs" }))
        .collect();
    json!({ "Records": records }).to_string()
}

/// The answer to a batch of which these records failed.
pub fn failures(ids: impl IntoIterator<Item = String>) -> Value {
    let items: Vec<Value> = ids.into_iter().map(|id| json!({ "itemIdentifier": id })).collect();
    json!({ "batchItemFailures": items })
}
