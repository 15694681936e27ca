//! What the environment may say, and what is said about it when it may not.

use std::collections::HashMap;

use super::*;
use crate::sources::Sources;

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
    let line = error.to_string();
    assert!(!line.contains('\n'), "more than one line: {line:?}");
    assert!(!line.contains("hunter2"), "a password: {line:?}");
    assert!(line.contains(&format!("for example {}=", error.variable)), "no example: {line:?}");
    line
}

fn with(variable: &str, value: &str) -> Settings {
    read(Needs::MongoDbAndRedis, &[MONGODB, REDIS, (variable, value)])
        .unwrap_or_else(|error| panic!("{variable}={value}: {error}"))
}

#[test]
fn without_variables_the_defaults_hold() {
    let settings = read(Needs::Nothing, &[]).unwrap();
    assert_eq!(
        settings,
        Settings {
            mongodb: None,
            redis: None,
            redis_cluster: false,
            redis_ca_file: None,
            redis_key_prefix: "jobs".to_owned(),
            retry: RetryPolicy {
                base_delay: Duration::from_secs(2),
                max_delay: Duration::from_secs(900),
                max_attempts: 5,
                jitter: 0.0,
            },
            attempt_timeout: Some(Duration::from_secs(86_400)),
            claim_timeout: Duration::from_secs(60),
            sweep_grace: Duration::from_secs(120),
            drain_for: Duration::ZERO,
            dispatch_target: DispatchTarget::Redis,
            event_sources: Sources::default(),
        }
    );
}

#[test]
fn the_sample_environment_is_read_and_says_the_defaults() {
    let sample: HashMap<&str, &str> = include_str!("../../../examples/functions.env")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once('=').expect("NAME=value"))
        .collect();
    let read_names = std::cell::RefCell::new(Vec::new());
    let settings = Settings::read(Needs::MongoDbAndRedis, |name| {
        read_names.borrow_mut().push(name.to_owned());
        sample.get(name).map(ToString::to_string)
    })
    .unwrap();
    let mut read_names = read_names.into_inner();
    let mut sampled: Vec<String> = sample.keys().map(ToString::to_string).collect();
    read_names.sort();
    sampled.sort();
    assert_eq!(read_names, sampled, "the sample names every variable and no other");
    assert!(matches!(&settings.mongodb, Some(Address::Direct(_))));
    assert!(matches!(&settings.redis, Some(Address::Stored(secret))
        if secret.key.as_deref() == Some("redis") && secret.region() == Some("eu-west-1")));
    let defaults = read(Needs::Nothing, &[]).unwrap();
    assert_eq!(Settings { mongodb: None, redis: None, ..settings }, defaults);
}

#[test]
fn only_what_a_program_needs_must_be_there() {
    assert!(read(Needs::MongoDb, &[MONGODB]).is_ok());
    for (needs, variables, missing) in [
        (Needs::MongoDb, vec![], "MONGODB_URI"),
        (Needs::MongoDb, vec![REDIS], "MONGODB_URI"),
        (Needs::MongoDbAndRedis, vec![REDIS], "MONGODB_URI"),
        (Needs::MongoDbAndRedis, vec![MONGODB], "REDIS_URL"),
    ] {
        let error = read(needs, &variables).unwrap_err();
        assert_eq!((error.variable, error.problem.as_str()), (missing, "is not set"));
    }
}

#[test]
fn an_empty_variable_counts_as_unset_and_blanks_around_a_value_do_not_count() {
    assert_eq!(with("RETRY_MAX_ATTEMPTS", ""), with("RETRY_MAX_ATTEMPTS", " 5\n"));
    let error = read(Needs::MongoDb, &[("MONGODB_URI", " ")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "MONGODB_URI is not set; for example MONGODB_URI=mongodb://db.internal:27017/recoup"
    );
}

#[test]
fn durations_are_read_and_held_to_what_makes_sense() {
    assert_eq!(with("RETRY_BASE_DELAY", "500ms").retry.base_delay, Duration::from_millis(500));
    assert_eq!(with("RETRY_MAX_DELAY", "1h 30m").retry.max_delay, Duration::from_secs(5_400));
    assert_eq!(with("ATTEMPT_TIMEOUT", "0s").attempt_timeout, None);
    assert_eq!(with("SWEEP_GRACE", "0s").sweep_grace, Duration::ZERO);
    assert_eq!(with("DRAIN_FOR", "0s").drain_for, Duration::ZERO);
    assert_eq!(with("ATTEMPT_TIMEOUT", "365d").attempt_timeout, Some(Duration::from_secs(31_536_000)));
    for variable in [
        "RETRY_BASE_DELAY",
        "RETRY_MAX_DELAY",
        "ATTEMPT_TIMEOUT",
        "CLAIM_TIMEOUT",
        "SWEEP_GRACE",
        "DRAIN_FOR",
    ] {
        for bad in [
            "2",
            "-2s",
            "two",
            "2 parsecs",
            "1500us",
            "1ns",
            "366d",
            "99999999999999999999s",
            "2s\n\nx",
            "NaN",
        ] {
            assert!(complaint(variable, bad).starts_with(variable), "{variable}={bad}");
        }
    }
    for variable in ["RETRY_BASE_DELAY", "RETRY_MAX_DELAY", "CLAIM_TIMEOUT"] {
        assert!(complaint(variable, "0s").contains("no time at all"));
    }
}

#[test]
fn contradictory_retry_settings_are_refused() {
    assert_eq!(
        complaint("RETRY_MAX_DELAY", "1s"),
        "RETRY_MAX_DELAY is 1s, below RETRY_BASE_DELAY, which is 2s; for example RETRY_MAX_DELAY=15m"
    );
    for base in ["20m", "1h 30m 500ms", "365d"] {
        let line = complaint("RETRY_BASE_DELAY", base);
        let (_, example) = line.split_once("; for example RETRY_MAX_DELAY=").unwrap();
        let environment = [MONGODB, REDIS, ("RETRY_BASE_DELAY", base), ("RETRY_MAX_DELAY", example)];
        let policy = read(Needs::MongoDbAndRedis, &environment).unwrap().retry;
        assert_eq!(policy.max_delay, policy.base_delay, "{line}");
    }
    assert!(complaint("RETRY_BASE_DELAY", "20m").ends_with("RETRY_MAX_DELAY=20m"));
    assert_eq!(with("RETRY_MAX_DELAY", "2s").retry.max_delay, Duration::from_secs(2));
}

#[test]
fn attempts_and_jitter_are_numbers_in_their_range() {
    assert_eq!(with("RETRY_MAX_ATTEMPTS", "2147483647").retry.max_attempts, 2_147_483_647);
    assert_eq!(with("RETRY_JITTER", "0.25").retry.jitter, 0.25);
    assert_eq!(with("RETRY_JITTER", "1").retry.jitter, 1.0);
    for bad in ["0", "-1", "2147483648", "1.5", "five"] {
        complaint("RETRY_MAX_ATTEMPTS", bad);
    }
    for bad in ["NaN", "inf", "-0.1", "1.1", "20%"] {
        complaint("RETRY_JITTER", bad);
    }
}

#[test]
fn a_cluster_needs_a_hash_tag() {
    assert_eq!(
        complaint("REDIS_CLUSTER", "true"),
        r#"REDIS_KEY_PREFIX is "jobs", without a hash tag, while REDIS_CLUSTER is true and all keys must share a slot; for example REDIS_KEY_PREFIX={jobs}"#
    );
    complaint("REDIS_CLUSTER", "yes");
    complaint("REDIS_KEY_PREFIX", "my jobs");
    for (prefix, is_tagged) in [
        ("{jobs}", true),
        ("app:{a}b", true),
        ("{}jobs", false),
        ("}{", false),
        ("{jobs", false),
        ("{}{a}", false),
    ] {
        let environment = [MONGODB, REDIS, ("REDIS_CLUSTER", "true"), ("REDIS_KEY_PREFIX", prefix)];
        assert_eq!(read(Needs::MongoDbAndRedis, &environment).is_ok(), is_tagged, "{prefix}");
    }
}

#[test]
fn a_dispatch_target_is_one_of_three() {
    for (value, target) in [
        ("redis", DispatchTarget::Redis),
        ("eventbridge:jobs", DispatchTarget::EventBridge("jobs".to_owned())),
        (
            "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/q.fifo",
            DispatchTarget::Sqs("https://sqs.eu-west-1.amazonaws.com/123456789012/q.fifo".to_owned()),
        ),
        (
            "sqs:http://127.0.0.1:5000/123456789012/q",
            DispatchTarget::Sqs("http://127.0.0.1:5000/123456789012/q".to_owned()),
        ),
    ] {
        assert_eq!(with("DISPATCH_TARGET", value).dispatch_target, target);
    }
    for bad in [
        "Redis",
        "redis:",
        "kafka:x",
        "sqs:",
        "sqs:https://",
        "sqs:https://host",
        "sqs:https:///1/q",
        "sqs:https://host//",
        "sqs:http://example.com/1/q",
        "sqs:https://user:hunter2@host/1/q",
        "eventbridge:",
        "eventbridge:a b",
    ] {
        assert!(complaint("DISPATCH_TARGET", bad).starts_with("DISPATCH_TARGET"), "{bad}");
    }
}

#[test]
fn addresses_have_the_scheme_of_their_server() {
    for (variable, bad) in [
        ("MONGODB_URI", "redis://:hunter2@cache"),
        ("MONGODB_URI", "mongodb://"),
        ("MONGODB_URI", "postgres://hunter2"),
        ("REDIS_URL", "mongodb://user:hunter2@db"),
        ("REDIS_URL", "hunter2@cache:6379"),
        ("REDIS_URL", "http://hunter2"),
        ("REDIS_URL", "secretsmanager:hunter2"),
        ("REDIS_URL", "secretsmanager:arn:aws:secretsmanager:eu-west-1:1:secret:hunter2#"),
    ] {
        assert!(complaint(variable, bad).starts_with(variable), "{bad}");
    }
    assert!(matches!(with("MONGODB_URI", "mongodb+srv://h/d").mongodb, Some(Address::Direct(_))));
    assert!(matches!(with("REDIS_URL", "rediss://h").redis, Some(Address::Direct(_))));
    assert!(matches!(
        with("REDIS_URL", "secretsmanager:arn:aws:secretsmanager:eu-west-1:1:secret:r").redis,
        Some(Address::Stored(secret)) if secret.key.is_none()
    ));
    assert_eq!(Server::MongoDb.check(" mongodb://h\n").unwrap().reveal(), "mongodb://h");
}

#[test]
fn a_secret_is_never_printed() {
    let secret = Secret::new("hunter2");
    assert_eq!(format!("{secret} {secret:?}"), "<secret> <secret>");
    assert!(!format!("{:?}", with("RETRY_JITTER", "0")).contains("hunter2"));
}

#[test]
fn the_region_of_a_stored_address_is_its_arn_s() {
    for (arn, region) in [
        ("arn:aws:secretsmanager:eu-west-1:1:secret:r", Some("eu-west-1")),
        ("arn:aws:secretsmanager::1:secret:r", None),
        ("arn:aws", None),
    ] {
        assert_eq!(arn_region(arn), region);
        let stored = StoredSecret { arn: arn.to_owned(), key: None };
        assert_eq!(stored.region(), region);
    }
    for reference in ["aws:secretsmanager:eu-west-1:1:secret:r", "arn:aws:secretsmanager::1:secret:r"] {
        complaint("REDIS_URL", &format!("secretsmanager:{reference}"));
    }
}

#[test]
fn a_key_prefix_is_200_bytes_at_most() {
    assert_eq!(with("REDIS_KEY_PREFIX", &"p".repeat(200)).redis_key_prefix.len(), 200);
    for long in [201, 300] {
        complaint("REDIS_KEY_PREFIX", &"p".repeat(long));
    }
}

#[test]
fn a_wrong_value_is_repeated_up_to_60_characters() {
    let short = "x".repeat(60);
    assert!(complaint("REDIS_CLUSTER", &short).contains(&format!("is {short:?}, neither")));
    assert!(complaint("REDIS_CLUSTER", &format!("{short}y")).contains(&format!("is {short:?}…, neither")));
}

#[test]
fn overrides_of_event_sources_are_read_or_refused_with_what_is_wrong() {
    let off = with("EVENT_SOURCES", r#"{"aws.ecs":{"enabled":false}}"#).event_sources;
    assert!(!off.event("aws.ecs", "ECS Task State Change").unwrap().enabled);
    assert!(off.event("aws.batch", "Batch Job State Change").unwrap().enabled);
    assert_eq!(with("EVENT_SOURCES", " {} ").event_sources, Sources::default());
    for (bad, said) in [
        ("aws.ecs", "no JSON object"),
        ("{", "cannot be read"),
        (r#"{"aws.esc":{}}"#, "names aws.esc, which is none of aws.batch"),
        (r#"{"aws.ecs":{"job_id":["taskArn"]}}"#, "does not begin with detail"),
        ("{\"aws.ecs\":\n{\"a\\nb\":1}}", "unknown field"),
    ] {
        let line = complaint("EVENT_SOURCES", bad);
        assert!(line.starts_with("EVENT_SOURCES ") && line.contains(said), "{line}");
    }
    assert!(with("EVENT_SOURCES", crate::sources::EXAMPLE).event_sources != Sources::default());
}
