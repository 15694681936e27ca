//! Whose certificate is believed: that of an authority that is trusted, for the name that was asked for, and no other.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use recoup::config::{Needs, Settings};
use recoup::ledger::mongo::MongoLedger;
use recoup::ledger::{LedgerError, LedgerReader};
use recoup::queue::redis::{OpenError, RedisQueue};
use recoup::queue::{QueueError, RetryQueue};
use recoup_tests::function_world::FunctionWorld;
use recoup_tests::servers::Server;
use recoup_tests::tls::{Authority, TlsEnd};
use serde_json::json;

/// The name that certificates are for here, and one that they are not for.
const NAME: &str = "localhost";
const OTHER_NAME: &str = "db.example.com";

async fn ask_ledger(end: &TlsEnd, options: &str) -> Result<(), LedgerError> {
    let uri = format!("mongodb://{NAME}:{}/recoup?directConnection=true&tls=true{options}", end.port);
    let ledger = MongoLedger::open(&uri).await.unwrap();
    ledger.any_live_job().await.map(|_| ())
}

fn queue(end: &TlsEnd, authority: Option<&Path>) -> Result<RedisQueue, OpenError> {
    let authority = authority.map(|path| path.display().to_string());
    let settings =
        Settings::read(Needs::Nothing, |name| authority.clone().filter(|_| name == "REDIS_CA_FILE"));
    RedisQueue::with_settings(&format!("rediss://{NAME}:{}", end.port), &settings.unwrap())
}

async fn ask_queue(end: &TlsEnd, authority: Option<&Path>) -> Result<(), QueueError> {
    queue(end, authority).unwrap().depths().await.map(|_| ())
}

#[tokio::test]
async fn the_ledger_is_opened_behind_a_certificate_of_a_named_authority_only() {
    let mongodb = Server::mongodb(false);
    let (authority, stranger) = (Authority::new(), Authority::new());
    let end = authority.before(mongodb.port(), NAME).await;
    let trusting = |authority: &Authority| format!("&tlsCAFile={}", authority.file().display());

    ask_ledger(&end, &trusting(&authority)).await.unwrap();
    for options in [String::new(), trusting(&stranger)] {
        assert!(ask_ledger(&end, &options).await.unwrap_err().is_unavailable(), "{options}");
    }
    let elsewhere = authority.before(mongodb.port(), OTHER_NAME).await;
    assert!(ask_ledger(&elsewhere, &trusting(&authority)).await.unwrap_err().is_unavailable());
}

#[tokio::test]
async fn the_queue_is_opened_behind_a_certificate_of_a_named_authority_only() {
    let redis = Server::redis(&[]);
    let (authority, stranger) = (Authority::new(), Authority::new());
    let end = authority.before(redis.port(), NAME).await;

    ask_queue(&end, Some(&authority.file())).await.unwrap();
    for trusted in [None, Some(stranger.file())] {
        assert!(ask_queue(&end, trusted.as_deref()).await.unwrap_err().is_unavailable(), "{trusted:?}");
    }
    let elsewhere = authority.before(redis.port(), OTHER_NAME).await;
    assert!(ask_queue(&elsewhere, Some(&authority.file())).await.unwrap_err().is_unavailable());
}

#[tokio::test]
async fn an_authority_that_is_none_is_refused_before_anything_is_asked() {
    let authority = Authority::new();
    let end = authority.before(1, NAME).await;
    for (file, said) in [
        (Path::new("/nowhere/ca.pem").to_owned(), "cannot be read"),
        (authority.file_with("no certificate\n"), "holds no certificate"),
    ] {
        let refused = queue(&end, Some(&file)).unwrap_err().to_string();
        assert!(refused.starts_with("REDIS_CA_FILE is ") && refused.contains(said), "{refused}");
    }
    let broken = authority.file_with("-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n");
    let refused = queue(&end, Some(&broken)).unwrap_err().to_string();
    assert!(refused.contains("is no PEM"), "{refused}");
}

#[tokio::test]
async fn the_functions_work_through_tls() {
    let (mongodb, redis) = (Server::mongodb(false), Server::redis(&[]));
    let authority = Authority::new();
    let (ledger, queue) =
        (authority.before(mongodb.port(), NAME).await, authority.before(redis.port(), NAME).await);
    let file = authority.file().display().to_string();
    let uri =
        format!("mongodb://{NAME}:{}/recoup?directConnection=true&tls=true&tlsCAFile={file}", ledger.port);
    let world = FunctionWorld::on(&mongodb.mongodb_uri("recoup"), &redis.redis_url())
        .await
        .with("MONGODB_URI", &uri)
        .with("REDIS_URL", &format!("rediss://{NAME}:{}", queue.port))
        .with("REDIS_CA_FILE", &file);
    world.charge(&["j"]).await;
    let event = json!({ "job_id": "j", "attempt": 1 }).to_string();
    assert_eq!(world.function("job-failed").await.invoke(event).await.response()["outcome"], "refunded");
    assert_eq!(world.list("retry").await.len(), 1);
}
