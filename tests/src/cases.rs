//! Plays the files in `tests/cases` through the real binaries, against real servers. What a file may say is in the
//! README beside them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use recoup::clock::{Clock, SystemClock};
use recoup::job::Job;
use recoup::ledger::LedgerReader;
use recoup::ledger::mongo::MongoLedger;
use redis::aio::MultiplexedConnection;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::runtime_api::{Answer, Function, Process};
use crate::servers;

/// What went wrong, for whoever reads the test's output.
type Outcome<T = ()> = Result<T, String>;

/// The prefix that stands in the files.
const PREFIX_IN_FILES: &str = "jobs:";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(rename = "story")]
    _story: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    steps: Vec<Value>,
    expect: Expect,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    #[serde(default)]
    jobs: BTreeMap<String, Value>,
    #[serde(default)]
    balances: BTreeMap<String, i64>,
    #[serde(default)]
    lists: BTreeMap<String, Value>,
    waiting: Option<u64>,
    #[serde(default)]
    delay_ms: BTreeMap<String, (i64, i64)>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Charge { job_id: String, account_id: String, cost: Value },
    Failed(Value),
    Succeeded(Value),
    Batch { to: String, bodies: Vec<Value> },
    Raw { to: String, payload: Value },
    Drain(Value),
    Push { value: Value },
    FlushRedis(bool),
    SleepMs(u64),
    Parallel(Vec<(String, Value)>),
}

/// Plays one file.
///
/// # Errors
/// What was not as the file expects, in words.
pub async fn play(file: &Path) -> Outcome {
    let text =
        std::fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
    let case: Case =
        serde_json::from_str(&text).map_err(|e| format!("{} is no case: {e}", file.display()))?;
    if file.file_stem().is_none_or(|stem| stem != case.name.as_str()) {
        return Err(format!("{} calls itself {:?}", file.display(), case.name));
    }
    let mut stage = Stage::new(&case).await?;
    for (number, step) in case.steps.iter().enumerate() {
        let in_step = |problem: String| format!("step {number}, {step}: {problem}");
        stage.step(step.clone()).await.map_err(in_step)?;
        stage.nothing_was_taken_back().await.map_err(in_step)?;
    }
    stage.check(&case.expect).await.map_err(|problem| format!("at the end: {problem}"))
}

/// A case's servers, processes, and what its ledger looked like last.
struct Stage {
    environment: BTreeMap<String, String>,
    prefix: String,
    ledger: MongoLedger,
    database: mongodb::Database,
    redis: MultiplexedConnection,
    functions: HashMap<String, Function>,
    seen: BTreeMap<String, Job>,
}

impl Stage {
    async fn new(case: &Case) -> Outcome<Self> {
        let name = servers::unique("case");
        let mongodb_uri = servers::with_database(&servers::required("RECOUP_TEST_MONGODB_URI"), &name);
        let mut environment: BTreeMap<String, String> = [
            ("MONGODB_URI", mongodb_uri.as_str()),
            ("REDIS_URL", &servers::redis_url()),
            ("REDIS_KEY_PREFIX", &name),
            ("RETRY_BASE_DELAY", "1s"),
            ("RETRY_MAX_DELAY", "15m"),
            ("SWEEP_GRACE", "1h"),
            ("CLAIM_TIMEOUT", "1s"),
        ]
        .map(|(variable, value)| (variable.to_owned(), value.to_owned()))
        .into();
        environment.extend(case.env.clone());
        let client = mongodb::Client::with_uri_str(&mongodb_uri).await.map_err(in_words)?;
        let stage = Self {
            ledger: MongoLedger::open(&mongodb_uri).await.map_err(in_words)?,
            database: client.database(&name),
            redis: redis::Client::open(servers::redis_url())
                .map_err(in_words)?
                .get_multiplexed_async_connection()
                .await
                .map_err(in_words)?,
            prefix: name,
            environment,
            functions: HashMap::new(),
            seen: BTreeMap::new(),
        };
        stage.recoup(&["init"]).await.map(|()| stage)
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        self.environment.iter().map(|(variable, value)| (variable.as_str(), value.as_str())).collect()
    }

    /// Runs the command; an error with what it said, where it fails.
    async fn recoup(&self, arguments: &[&str]) -> Outcome {
        let mut process = Process::start("recoup", arguments, &self.environment());
        let status = process.status().await;
        if status.success() { Ok(()) } else { Err(format!("recoup {arguments:?}: {}", process.output())) }
    }

    async fn function(&mut self, name: &str) -> &mut Function {
        if !self.functions.contains_key(name) {
            let function = Function::start(name, &self.environment()).await;
            self.functions.insert(name.to_owned(), function);
        }
        self.functions.get_mut(name).expect("it was just put there")
    }

    async fn step(&mut self, mut step: Value) -> Outcome {
        let fields = step.as_object_mut().ok_or("a step is an object")?;
        let times =
            fields.remove("times").map_or(Some(1), |times| times.as_u64()).ok_or("times is a number")?;
        let expect = fields.remove("expect");
        // The rest is one field, named after the action.
        let rest = step.to_string();
        for _ in 0..times {
            let action: Action = serde_json::from_str(&rest).map_err(in_words)?;
            self.act(action, expect.as_ref()).await?;
        }
        Ok(())
    }

    async fn act(&mut self, action: Action, expect: Option<&Value>) -> Outcome {
        match action {
            Action::Charge { job_id, account_id, cost } => {
                let arguments = ["charge", &job_id, "--account", &account_id, "--cost", &text(&cost)];
                let result = self.recoup(&arguments).await;
                match (expect.and_then(Value::as_str).unwrap_or("ok"), result) {
                    ("ok", result) => result,
                    ("error", Err(_)) => Ok(()),
                    (_, result) => Err(format!("the charge was answered with {result:?}")),
                }
            }
            Action::Failed(event) => self.invoke("job-failed", &event, expect).await,
            Action::Succeeded(event) => self.invoke("job-succeeded", &event, expect).await,
            Action::Batch { to, bodies } => self.invoke(&to, &sqs_event(&bodies), expect).await,
            Action::Raw { to, payload } => self.invoke(&to, &payload, expect).await,
            Action::Drain(payload) => self.invoke("retry-scheduler", &payload, expect).await,
            Action::Push { value } => {
                let key = self.key("jobs:retry");
                redis::cmd("RPUSH")
                    .arg(key)
                    .arg(text(&value))
                    .exec_async(&mut self.redis)
                    .await
                    .map_err(in_words)
            }
            Action::FlushRedis(true) => self.flush().await,
            Action::FlushRedis(false) => Ok(()),
            Action::SleepMs(ms) => {
                SystemClock.sleep(Duration::from_millis(ms)).await;
                Ok(())
            }
            Action::Parallel(pairs) => self.at_once(&pairs).await,
        }
    }

    async fn invoke(&mut self, name: &str, payload: &Value, expect: Option<&Value>) -> Outcome {
        let function = self.function(name).await;
        let answer = function.invoke(text(payload)).await;
        check_answer(&answer, expect).map_err(|problem| {
            format!("{problem}\n{name} answered {answer:?}\n{}", function.process().output())
        })
    }

    /// All payloads at the same moment, each to a process of its own that was waiting for it.
    async fn at_once(&mut self, pairs: &[(String, Value)]) -> Outcome {
        let environment = self.environment();
        let mut functions = join_all(pairs.iter().map(|(name, _)| Function::start(name, &environment))).await;
        join_all(functions.iter_mut().map(Function::ready)).await;
        let invocations =
            functions.iter_mut().zip(pairs).map(|(function, (_, payload))| function.invoke(text(payload)));
        for answer in join_all(invocations).await {
            if !matches!(answer, Answer::Response(_)) {
                return Err(format!("one of those at once was answered with {answer:?}"));
            }
        }
        Ok(())
    }

    /// The key that a file's key stands for.
    fn key(&self, key_in_file: &str) -> String {
        let rest = key_in_file.strip_prefix(PREFIX_IN_FILES);
        rest.map_or_else(|| key_in_file.to_owned(), |rest| format!("{}:{rest}", self.prefix))
    }

    async fn flush(&mut self) -> Outcome {
        let pattern = format!("{}:*", self.prefix);
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(pattern).query_async(&mut self.redis).await.map_err(in_words)?;
        for key in keys {
            redis::cmd("DEL").arg(key).exec_async(&mut self.redis).await.map_err(in_words)?;
        }
        Ok(())
    }

    async fn jobs(&self) -> Outcome<BTreeMap<String, Job>> {
        let jobs = self.ledger.jobs(None, None, 10_000).await.map_err(in_words)?;
        jobs.into_iter().map(|(id, job)| job.map(|job| (id, job)).map_err(in_words)).collect()
    }

    /// Invariants 4 and 5, against what stood there after the step before.
    async fn nothing_was_taken_back(&mut self) -> Outcome {
        let now = self.jobs().await?;
        for (id, before) in &self.seen {
            let after = now.get(id).ok_or(format!("job {id} is gone"))?;
            if !after.entries.starts_with(&before.entries) {
                return Err(format!("entries of {id} were {:?} and are {:?}", before.entries, after.entries));
            }
            if after.attempts < before.attempts {
                return Err(format!("attempts of {id} went from {} to {}", before.attempts, after.attempts));
            }
        }
        self.seen = now;
        Ok(())
    }

    async fn check(&mut self, expect: &Expect) -> Outcome {
        self.check_invariants().await?;
        for (id, fields) in &expect.jobs {
            let job = self.document(id).await?.ok_or(format!("there is no job {id}"))?;
            contains(&job, fields).map_err(|problem| format!("job {id}: {problem} in {job}"))?;
        }
        for (account, balance) in &expect.balances {
            let sum: i64 = self.rows(doc! { "account_id": account }).await?.iter().map(amount).sum();
            equal(&format!("the balance of {account}"), sum, *balance)?;
        }
        for (list, items) in &expect.lists {
            self.check_list(list, items).await?;
        }
        if let Some(waiting) = expect.waiting {
            let mut stands = 0;
            for (command, key) in [("LLEN", "retry"), ("ZCARD", "retry:parked"), ("ZCARD", "retry:inflight")]
            {
                stands += self.count(command, &self.key(&format!("{PREFIX_IN_FILES}{key}"))).await?;
            }
            equal("waiting", stands, waiting)?;
        }
        for (id, (from, until)) in &expect.delay_ms {
            let not_before = self.jobs().await?.get(id).and_then(|job| job.not_before);
            let at = not_before.ok_or(format!("job {id} has no not_before"))?;
            let delay = at.as_millis() - SystemClock.now().as_millis();
            if !(*from..=*until).contains(&delay) {
                return Err(format!("job {id} is due in {delay} ms, not in {from} to {until} ms"));
            }
        }
        Ok(())
    }

    /// Invariants 1, 2, 3 and 6 on every job, and that the view shows the entries of each and no others.
    async fn check_invariants(&self) -> Outcome {
        let jobs = self.jobs().await?;
        let mut entries = 0;
        for (id, job) in &jobs {
            let violations = job.violations();
            if !violations.is_empty() {
                return Err(format!("job {id} breaks the invariants: {violations:?}"));
            }
            let rows = self.rows(doc! { "job_id": id }).await?;
            equal(&format!("the sum of the rows of {id}"), rows.iter().map(amount).sum(), job.net)?;
            let row_ids: Vec<&str> = rows.iter().filter_map(|row| row.get_str("_id").ok()).collect();
            let wanted: Vec<String> =
                job.entries.iter().map(|entry| format!("{id}:{}", entry.kind)).collect();
            if row_ids != wanted {
                return Err(format!("the rows of {id} are {row_ids:?}, not {wanted:?}"));
            }
            entries += rows.len();
        }
        equal("the number of rows", self.rows(doc! {}).await?.len(), entries)
    }

    async fn rows(&self, filter: Document) -> Outcome<Vec<Document>> {
        let rows = self.database.collection::<Document>("ledger").find(filter).await.map_err(in_words)?;
        rows.try_collect().await.map_err(in_words)
    }

    /// The job's document as JSON, with `types` and `amounts` of its entries.
    async fn document(&self, id: &str) -> Outcome<Option<Value>> {
        let jobs = self.database.collection::<Document>("jobs");
        let Some(found) = jobs.find_one(doc! { "_id": id }).await.map_err(in_words)? else { return Ok(None) };
        let mut job = serde_json::to_value(found).map_err(in_words)?;
        let entries = job["entries"].as_array().cloned().unwrap_or_default();
        job["types"] = entries.iter().map(|entry| entry["type"].clone()).collect();
        job["amounts"] = entries.iter().map(|entry| entry["amount"].clone()).collect();
        Ok(Some(job))
    }

    async fn count(&self, command: &str, key: &str) -> Outcome<u64> {
        redis::cmd(command).arg(key).query_async(&mut self.redis.clone()).await.map_err(in_words)
    }

    async fn check_list(&self, list: &str, expect: &Value) -> Outcome {
        let key = self.key(list);
        if let Some(length) = expect.as_u64() {
            return equal(&format!("the length of {list}"), self.count("LLEN", &key).await?, length);
        }
        let items: Vec<String> = redis::cmd("LRANGE")
            .arg(&[key.as_str(), "0", "-1"])
            .query_async(&mut self.redis.clone())
            .await
            .map_err(in_words)?;
        // An item that is expected as text is compared as text.
        let expect = expect.as_array().ok_or(format!("{list} is expected as a length or as items"))?;
        let is_text = |place: usize| expect.get(place).is_some_and(Value::is_string);
        let parsed = |(place, item): (usize, &String)| match serde_json::from_str(item) {
            Ok(value) if !is_text(place) => value,
            Ok(_) | Err(_) => Value::from(item.as_str()),
        };
        let stands: Value = items.iter().enumerate().map(parsed).collect();
        contains(&stands, &Value::from(expect.clone()))
            .map_err(|problem| format!("{list}: {problem} in {stands}"))
    }
}

fn in_words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn equal<T: PartialEq + std::fmt::Display>(what: &str, stands: T, expected: T) -> Outcome {
    if stands == expected { Ok(()) } else { Err(format!("{what} is {stands}, not {expected}")) }
}

fn amount(row: &Document) -> i64 {
    row.get_i64("amount").expect("the amount of a row is a 64-bit integer")
}

/// A string as it stands, anything else as JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// What SQS hands to Lambda.
fn sqs_event(bodies: &[Value]) -> Value {
    let record = |(number, body): (usize, &Value)| {
        json!({
            "messageId": format!("m{number}"),
            "receiptHandle": "handle",
            "body": text(body),
            "attributes": {
                "ApproximateReceiveCount": "1",
                "SentTimestamp": "1768471200000",
                "SenderId": "AIDAEXAMPLE",
                "ApproximateFirstReceiveTimestamp": "1768471200001"
            },
            "messageAttributes": {},
            "md5OfBody": "00000000000000000000000000000000",
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:events",
            "awsRegion": "us-east-1"
        })
    };
    let records: Vec<Value> = bodies.iter().enumerate().map(record).collect();
    json!({ "Records": records })
}

fn check_answer(answer: &Answer, expect: Option<&Value>) -> Outcome {
    match (answer, expect) {
        (Answer::Died, _) => Err("the function died".to_owned()),
        (Answer::Response(_) | Answer::Error(_), None) => Ok(()),
        (Answer::Error(_), Some(expect)) if expect["kind"] == "error" => Ok(()),
        (Answer::Error(_), Some(_)) => Err("the invocation failed".to_owned()),
        (Answer::Response(_), Some(expect)) if expect["kind"] == "error" => {
            Err("the invocation did not fail".to_owned())
        }
        (Answer::Response(body), Some(expect)) if expect["kind"] == "response" => {
            contains(body, &expect["body"])
        }
        (Answer::Response(body), Some(expect)) => contains(body, expect),
    }
}

/// Whether `stands` has everything that is expected: of an object some fields, of a list every item.
fn contains(stands: &Value, expected: &Value) -> Outcome {
    match (stands, expected) {
        (Value::Object(_), Value::Object(fields)) => fields.iter().try_for_each(|(name, value)| {
            contains(&stands[name], value).map_err(|problem| format!("{name}: {problem}"))
        }),
        (Value::Array(items), Value::Array(wanted)) if items.len() == wanted.len() => {
            items.iter().zip(wanted).try_for_each(|(item, wanted)| contains(item, wanted))
        }
        (stands, expected) if stands == expected => Ok(()),
        (stands, expected) => Err(format!("{stands} instead of {expected}")),
    }
}
