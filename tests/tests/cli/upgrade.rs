//! `recoup init` on a database that an earlier layout left.

use std::process::{Command, Stdio};
use std::time::Duration;

use mongodb::Database;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};
use recoup_tests::servers::{binary, pause};
use serde_json::json;

use crate::harness::Recoup;

async fn database(recoup: &Recoup) -> Database {
    let client = mongodb::Client::with_uri_str(recoup.variable("MONGODB_URI")).await.unwrap();
    client.default_database().unwrap()
}

fn job(id: &str, is_refunded: bool) -> Document {
    doc! { "_id": id, "account_id": "a1", "cost": 40, "is_refunded": is_refunded, "is_reclaimed": false }
}

fn row(id: &str, kind: &str, amount: i32) -> Document {
    let at = DateTime::from_millis(1_767_225_600_000 + i64::from(amount.max(0)));
    doc! { "job_id": id, "type": kind, "amount": amount, "created_at": at }
}

/// A refunded job, one that was charged, and one whose refund was lost between flag and row.
async fn old(recoup: &Recoup) -> Database {
    let database = database(recoup).await;
    let jobs = [job("j1", true), job("j2", false), job("lost", true)];
    database.collection::<Document>("jobs").insert_many(jobs).await.unwrap();
    let rows = [
        row("j1", "charge", -40),
        row("j1", "refund", 40),
        row("j2", "charge", -40),
        row("lost", "charge", -40),
    ];
    database.collection::<Document>("ledger").insert_many(rows).await.unwrap();
    database
}

#[tokio::test]
async fn contradictions_are_a_line_each_and_exit_1_until_they_are_repaired() {
    let recoup = Recoup::on_servers();
    let database = old(&recoup).await;
    let line = "job lost: is_refunded is true, but there is no refund row (--repair: a refund entry of +40 is written, \
                which moves +40)";

    let run = recoup.run(&["init", "--dry-run"]);
    assert_eq!(run.status, 1, "{run:?}");
    let said: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(
        said,
        [
            "the old collection ledger would be renamed to ledger_before_recoup, where it is kept",
            line,
            "the database on the servers: nothing was written. 2 jobs would be imported, 0 jobs in this layout already.",
        ]
    );
    assert!(run.stderr.contains("1 contradiction in the earlier layout"), "{run:?}");
    assert_eq!(database.collection::<Document>("ledger").count_documents(doc! {}).await.unwrap(), 4);

    let run = recoup.run(&["init"]);
    assert_eq!(run.status, 1, "{run:?}");
    assert!(run.stdout.contains(line) && run.stdout.contains("2 jobs imported"), "{run:?}");
    assert!(run.stderr.contains("`recoup init --repair`") && run.stderr.lines().count() == 1, "{run:?}");
    let run = recoup.run(&["succeeded", "lost"]);
    assert!(run.status == 1 && run.stderr.contains("`recoup init` imports it"), "{run:?}");

    let lines = recoup.lines(&["init", "--repair"]);
    assert_eq!(
        lines,
        [
            json!({"job_id": "lost", "contradiction": "is_refunded is true, but there is no refund row",
                   "repaired": "a refund entry of +40 is written", "moved": 40}),
            json!({"initialised": true, "store": "servers", "dry_run": false, "imported": 0, "already": 2,
                   "repaired": 1, "contradictions": 0}),
        ]
    );
    assert_eq!(recoup.json(&["balance", "a1"])["balance"], -40);
    assert_eq!(recoup.json(&["succeeded", "lost"])["outcome"], "reclaimed");
    assert!(recoup.ok(&["job", "j2"]).contains("taken over from an earlier layout"));
    recoup.ok(&["audit"]);
    assert!(recoup.ok(&["init"]).contains("no job was changed"));
    database.drop().await.unwrap();
}

#[test]
fn a_file_has_had_no_earlier_layout() {
    let recoup = Recoup::on_a_file();
    for option in ["--dry-run", "--repair"] {
        assert!(recoup.refused(2, &["init", option]).contains("MONGODB_URI"));
    }
    assert!(recoup.refused(2, &["init", "--dry-run", "--repair"]).contains("cannot be used with"));
}

#[tokio::test]
async fn an_import_killed_over_and_over_ends_with_every_row_counted_once() {
    let recoup = Recoup::on_servers();
    let database = database(&recoup).await;
    let ids: Vec<String> = (0..60).map(|n| format!("job-{n}")).collect();
    // Under an `_id` of their own, so that each import is three writes to die between.
    let jobs = ids.iter().map(|id| {
        let mut job = job(id, true);
        job.insert("_id", ObjectId::new());
        job.insert("job_id", id);
        job
    });
    database.collection::<Document>("jobs").insert_many(jobs).await.unwrap();
    let rows = ids.iter().flat_map(|id| [row(id, "charge", -40), row(id, "refund", 40)]);
    database.collection::<Document>("ledger").insert_many(rows).await.unwrap();
    let mut kills = 0;
    loop {
        let mut init = Command::new(binary("recoup"))
            .args(["--json", "init"])
            .env("MONGODB_URI", recoup.variable("MONGODB_URI"))
            .env("REDIS_URL", recoup.variable("REDIS_URL"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        pause(Duration::from_millis(60 + 40 * kills));
        if let Some(status) = init.try_wait().unwrap() {
            assert!(status.success());
            break;
        }
        init.kill().unwrap();
        init.wait().unwrap();
        kills += 1;
    }
    assert!(kills > 2, "{kills}");
    let counts = recoup.json(&["init"]);
    assert_eq!(
        (&counts["already"], &counts["contradictions"]),
        (&json!(60), &json!(0)),
        "after {kills} kills"
    );
    assert_eq!(recoup.json(&["balance", "a1"])["balance"], 0);
    assert_eq!(recoup.lines(&["export"]).len(), 120);
    recoup.ok(&["audit"]);
    let before =
        database.collection::<Document>("jobs_before_recoup").count_documents(doc! {}).await.unwrap();
    assert_eq!(before, 60);
    database.drop().await.unwrap();
}
