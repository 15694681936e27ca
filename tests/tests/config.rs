//! What the manual says about an environment that is refused, held to what the programs say. What each variable may say
//! is held in `shared/src/config/tests.rs`.

use std::collections::HashMap;

use recoup::config::{ConfigError, DispatchTarget, Needs, Server, Settings};
use recoup::ledger::mongo::{MongoLedger, OpenError};
use recoup::queue::redis::{self as queue, RedisQueue};

const MONGODB: (&str, &str) = ("MONGODB_URI", "mongodb://user:hunter2@db:27017/recoup");
const REDIS: (&str, &str) = ("REDIS_URL", "redis://:hunter2@cache:6379");

fn read(needs: Needs, variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let environment: HashMap<&str, &str> = variables.iter().copied().collect();
    Settings::read(needs, |name| environment.get(name).map(ToString::to_string))
}

/// The complaint about one more variable beside two good addresses.
fn complaint(variable: &str, value: &str) -> String {
    let error = read(Needs::MongoDbAndRedis, &[MONGODB, REDIS, (variable, value)])
        .expect_err(&format!("{variable}={value} is taken"));
    error.to_string()
}

/// Whether a line begins as the manual says, `…` standing for anything.
fn begins(line: &str, with: &str) -> bool {
    match with.split_once('…') {
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|tail| tail.contains(rest)),
        None => line.starts_with(with),
    }
}

#[tokio::test]
async fn the_manual_says_how_the_lines_of_a_failed_start_begin() {
    let mut lines: Vec<String> = [
        ("MONGODB_URI", "postgres://db"),
        ("REDIS_URL", "http://cache"),
        ("MONGODB_URI", "secretsmanager:x"),
        ("REDIS_URL", "secretsmanager:x"),
        ("REDIS_CLUSTER", "yes"),
        ("REDIS_CLUSTER", "true"),
        ("REDIS_KEY_PREFIX", "my jobs"),
        ("RETRY_BASE_DELAY", "2"),
        ("RETRY_BASE_DELAY", "20m"),
        ("RETRY_MAX_DELAY", "0s"),
        ("RETRY_MAX_ATTEMPTS", "0"),
        ("RETRY_JITTER", "20%"),
        ("ATTEMPT_TIMEOUT", "2"),
        ("CLAIM_TIMEOUT", "0s"),
        ("SWEEP_GRACE", "2"),
        ("DRAIN_FOR", "2"),
        ("EVENT_SOURCES", "aws.ecs"),
        ("EVENT_SOURCES", "{"),
        ("EVENT_SOURCES", "{\"aws.esc\":{}}"),
        ("DISPATCH_TARGET", "kafka:x"),
        ("DISPATCH_TARGET", "sqs:x"),
        ("DISPATCH_TARGET", "eventbridge:"),
    ]
    .map(|(variable, value)| complaint(variable, value))
    .into();
    for variables in [vec![REDIS], vec![MONGODB]] {
        lines.push(read(Needs::MongoDbAndRedis, &variables).unwrap_err().to_string());
    }
    for uri in [
        "mongodb://u:p@ss@db",
        "mongodb://db/a.b",
        "mongodb://db/?w=1",
        "mongodb://db/?tlsInsecure=true",
        "mongodb://db/?tls=true&tlsCAFile=/x",
    ] {
        lines.push(MongoLedger::open(uri).await.unwrap_err().to_string());
    }
    lines.extend([OpenError::Unresolved, OpenError::NoNameServer].map(|error| error.to_string()));
    lines.push(RedisQueue::open("redis://cache:x", "jobs", false).unwrap_err().to_string());
    lines.push(queue::OpenError::AuthorityWithoutTls.to_string());
    lines.extend(["cannot be read: …", "holds no certificate in PEM", "is no PEM: …"].map(|problem| {
        queue::OpenError::Authority { path: "/x".to_owned(), problem: problem.to_owned() }.to_string()
    }));
    let target = DispatchTarget::EventBridge("jobs".to_owned());
    lines.push(recoup::dispatch::aws::target(&target, |_| None).unwrap_err().to_string());
    for (server, problem) in [
        (Server::MongoDb, "could not be fetched: …"),
        (Server::MongoDb, "leads to a secret that …"),
        (Server::Redis, "could not be fetched: …"),
        (Server::Redis, "leads to a secret that …"),
    ] {
        lines.push(server.error(problem).to_string());
    }
    lines.push("AWS_LAMBDA_RUNTIME_API is not what the Lambda runtime sets; for example …".to_owned());

    let (_, section) = include_str!("../../docs/OPERATIONS.md").split_once("## A failed start").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let beginnings: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| line.split('|').nth(1).unwrap().split('`').skip(1).step_by(2))
        .collect();
    for line in &lines {
        assert!(beginnings.iter().any(|with| begins(line, with)), "the manual does not have: {line}");
    }
    for with in beginnings {
        assert!(lines.iter().any(|line| begins(line, with)), "no line begins so: {with}");
    }
}
