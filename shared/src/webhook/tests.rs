use std::sync::Mutex;

use super::*;
use crate::aws::Aws;
use crate::config::Secret;
use crate::job::JobId;
use crate::sources::Provider;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const BEFORE: &str = "fedcba9876543210fedcba9876543210";
const QUEUES: [(&str, &str); 2] =
    [("JOB_FAILED_QUEUE_URL", "https://h/1/failed"), ("JOB_SUCCEEDED_QUEUE_URL", "https://h/1/succeeded")];

/// Keeps what it is given, unless it is out of order.
#[derive(Default)]
struct Kept {
    events: Mutex<Vec<(Signal, Value, String)>>,
    is_out_of_order: bool,
}

impl Outbox for Kept {
    async fn put(&self, signal: Signal, event: &Value, id: &str) -> Result<(), String> {
        if self.is_out_of_order {
            return Err("no queue".to_owned());
        }
        self.events.lock().unwrap().push((signal, event.clone(), id.to_owned()));
        Ok(())
    }
}

async fn proofs(variables: &[(&str, &str)]) -> Result<Proofs, crate::config::ConfigError> {
    let variables = [QUEUES.as_slice(), variables].concat();
    let settings = WebhookSettings::read(|name| {
        variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
    })?;
    let aws = Aws::from_env(|_| Some("test".to_owned())).unwrap();
    settings.proofs(&aws).await
}

fn subject(provider: Provider) -> Subject {
    Subject { provider, job_id: JobId::new("job/1").unwrap(), attempt: 2 }
}

fn path(provider: Provider, secret: &str) -> String {
    let minter = Minter::new("https://h/stage/", &Secret::new(secret)).unwrap();
    minter.address(&subject(provider)).strip_prefix("https://h").unwrap().to_owned()
}

async fn answered(proofs: &Proofs, method: &str, path: &str, body: &[u8], outbox: &Kept) -> Reply {
    let headers = HashMap::new();
    let call = Call { method, path, headers: &headers, body };
    answer(&call, proofs, &Sources::default(), outbox, Timestamp::from_millis(1_000)).await
}

#[tokio::test]
async fn news_goes_to_the_queue_of_its_function_and_what_is_none_is_answered_at_once() {
    let proofs = proofs(&[("WEBHOOK_SECRET", SECRET)]).await.unwrap();
    let outbox = Kept::default();
    for (provider, body, status, said) in [
        (Provider::Replicate, r#"{"status":"succeeded"}"#, 202, "queued"),
        (Provider::Fal, r#"{"status":"ERROR","error":"no GPU"}"#, 202, "queued"),
        (Provider::RunPod, r#"{"status":"CANCELLED"}"#, 202, "queued"),
        (Provider::Replicate, r#"{"status":"processing"}"#, 200, "in_progress"),
        (Provider::Replicate, "{", 400, "body"),
        (Provider::Replicate, "[]", 400, "body"),
    ] {
        let reply = answered(&proofs, "POST", &path(provider, SECRET), body.as_bytes(), &outbox).await;
        assert_eq!(reply.status, status, "{body}: {reply:?}");
        assert!(reply.body.unwrap().to_string().contains(said), "{body}");
    }
    let events = outbox.events.into_inner().unwrap();
    let said = |place: usize| (events[place].0, &events[place].1["reason"], &events[place].1["retryable"]);
    assert_eq!(said(0), (Signal::Succeeded, &Value::Null, &json!(true)));
    assert_eq!(said(1), (Signal::Failed, &json!("no GPU"), &json!(true)));
    assert_eq!(said(2), (Signal::Failed, &json!("runpod CANCELLED"), &json!(false)));
    for (signal, event, id) in events {
        let payload = crate::event::parse_payload(signal, &Sources::default(), event.to_string().as_bytes());
        let crate::event::Payload::One(news) = payload.unwrap() else { panic!("{event}") };
        let crate::event::News::Event(read) = *news else { panic!("{event}") };
        assert_eq!((read.job_id.as_str(), read.attempt), ("job/1", Some(2)));
        assert_eq!(read.event_id.unwrap().as_str(), id);
    }
}

#[tokio::test]
async fn a_call_without_a_proof_is_told_nothing_whatever_else_is_wrong_with_it() {
    let proofs = proofs(&[("WEBHOOK_SECRET", SECRET), ("WEBHOOK_SECRET_PREVIOUS", BEFORE)]).await.unwrap();
    let outbox = Kept::default();
    let good = path(Provider::Fal, SECRET);
    let nothing = Reply { status: 401, body: None };
    for (method, path, body) in [
        ("POST", "/", "{}"),
        ("GET", "/favicon.ico", ""),
        ("POST", &good[1..good.len() - 1], r#"{"status":"OK"}"#),
        ("POST", &path(Provider::Fal, "0123456789abcdef0123456789abcdeX"), "{"),
    ] {
        assert_eq!(answered(&proofs, method, path, body.as_bytes(), &outbox).await, nothing, "{path}");
    }
    let former = path(Provider::Fal, BEFORE);
    assert_eq!(answered(&proofs, "POST", &former, br#"{"status":"OK"}"#, &outbox).await.status, 202);
    assert_eq!(answered(&proofs, "GET", &good, b"", &outbox).await.status, 405);
    assert_eq!(answered(&proofs, "POST", &good, &vec![b' '; MAX_BODY_BYTES + 1], &outbox).await.status, 413);
    assert_eq!(answered(&proofs, "POST", &good, b"\xff", &outbox).await.status, 400);
}

#[tokio::test]
async fn where_we_know_how_a_provider_signs_the_address_alone_is_no_proof() {
    let keys =
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}"#;
    let variables = [
        ("WEBHOOK_SECRET", SECRET),
        ("REPLICATE_WEBHOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("FAL_WEBHOOK_KEYS", keys),
    ];
    let proofs = proofs(&variables).await.unwrap();
    let outbox = Kept::default();
    for (provider, status) in [(Provider::Replicate, 401), (Provider::Fal, 401), (Provider::RunPod, 202)] {
        let body = br#"{"status":"COMPLETED"}"#;
        let reply = answered(&proofs, "POST", &path(provider, SECRET), body, &outbox).await;
        assert_eq!(reply.status, status, "{provider:?}");
    }
}

#[tokio::test]
async fn an_event_that_no_queue_took_is_asked_for_again() {
    let proofs = proofs(&[("WEBHOOK_SECRET", SECRET)]).await.unwrap();
    let outbox = Kept { is_out_of_order: true, ..Kept::default() };
    let reply = answered(&proofs, "POST", &path(Provider::Fal, SECRET), br#"{"status":"OK"}"#, &outbox).await;
    assert_eq!(reply.status, 503);
}

#[tokio::test]
async fn the_same_news_has_the_same_id_and_other_news_another() {
    let of = |subject: &Subject, signal| event_id(subject, signal);
    let first = subject(Provider::Fal);
    let others = [
        Subject { attempt: 3, ..first.clone() },
        Subject { provider: Provider::RunPod, ..first.clone() },
        Subject { job_id: JobId::new("job/2").unwrap(), ..first.clone() },
    ];
    assert_eq!(of(&first, Signal::Failed), of(&first.clone(), Signal::Failed));
    assert_ne!(of(&first, Signal::Failed), of(&first, Signal::Succeeded));
    for other in &others {
        assert_ne!(of(&first, Signal::Failed), of(other, Signal::Failed), "{other:?}");
    }
}

#[tokio::test]
async fn a_bad_environment_is_named_and_no_secret_repeated() {
    for (variables, said) in [
        (vec![], "WEBHOOK_SECRET is not set"),
        (vec![("WEBHOOK_SECRET", "hunter2")], "WEBHOOK_SECRET is shorter than 32 bytes"),
        (vec![("WEBHOOK_SECRET", "secretsmanager:hunter2")], "WEBHOOK_SECRET starts with secretsmanager:"),
        (
            vec![("WEBHOOK_SECRET", SECRET), ("WEBHOOK_SECRET_PREVIOUS", "hunter2")],
            "WEBHOOK_SECRET_PREVIOUS is shorter",
        ),
        (
            vec![("WEBHOOK_SECRET", SECRET), ("REPLICATE_WEBHOOK_SECRET", "hunter2")],
            "REPLICATE_WEBHOOK_SECRET holds no key",
        ),
        (vec![("WEBHOOK_SECRET", SECRET), ("FAL_WEBHOOK_KEYS", "hunter2")], "FAL_WEBHOOK_KEYS holds no key"),
        (vec![("WEBHOOK_SECRET", SECRET), ("EVENT_SOURCES", "x")], "EVENT_SOURCES "),
    ] {
        let line = proofs(&variables).await.err().unwrap().to_string();
        assert!(line.starts_with(said) && !line.contains("hunter2") && !line.contains(SECRET), "{line}");
    }
    let no_queue = WebhookSettings::read(|name| Some(SECRET.to_owned()).filter(|_| name == "WEBHOOK_SECRET"));
    assert!(no_queue.unwrap_err().to_string().starts_with("JOB_FAILED_QUEUE_URL is not set"));
    for (url, is_one) in [
        ("https://h", true),
        (" https://h/stage/ ", true),
        ("http://127.0.0.1:9000", true),
        ("http://h", false),
        ("https://", false),
        ("https://h/?x", false),
        ("https://user@h", false),
    ] {
        assert_eq!(Minter::new(url, &Secret::new(SECRET)).is_ok(), is_one, "{url}");
    }
}
