//! The conformance suite on MongoDB, and what MongoDB alone must keep: validator, view, indexes, connection strings.
#![allow(clippy::unwrap_used)]

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, doc, oid::ObjectId};
use mongodb::error::{ErrorKind, WriteFailure};
use mongodb::options::IndexOptions;
use mongodb::{Client, Collection, Database, IndexModel};
use recoup::job::{Job, JobId, Phase};
use recoup::ledger::mongo::{MongoLedger, OpenError};
use recoup::ledger::{Found, Ledger, LedgerError, LedgerReader, Outstanding};
use recoup_tests::ledger_suite::commands::{Command, charge, failure_of, failure_with};
use recoup_tests::ledger_suite::{Fresh, at, job_id, stored};
use recoup_tests::{ledger_suite, servers};
use tokio::runtime::Handle;

async fn fresh() -> Fresh<MongoLedger> {
    let uri = servers::fresh_database();
    Fresh::new(ready(&uri).await, DroppedAtTheEnd(raw(&uri).await))
}

/// A database that goes with its test, so that a server that many tests share stays quick.
struct DroppedAtTheEnd(Database);

impl Drop for DroppedAtTheEnd {
    fn drop(&mut self) {
        let gone = tokio::task::block_in_place(|| Handle::current().block_on(async { self.0.drop().await }));
        if let Err(error) = gone {
            eprintln!("the test's database stays behind: {error}");
        }
    }
}

ledger_suite!(fresh, sequences = 64);

async fn ready(uri: &str) -> MongoLedger {
    let ledger = MongoLedger::open(uri).await.unwrap();
    ledger.init().await.unwrap();
    ledger
}

/// The driver as any other program would use it.
async fn raw(uri: &str) -> Database {
    Client::with_uri_str(uri).await.unwrap().default_database().unwrap()
}

fn jobs(database: &Database) -> Collection<Document> {
    database.collection("jobs")
}

/// A job that was refunded and reclaimed, and one whose retry waits, as documents.
async fn two_jobs(ledger: &MongoLedger, database: &Database) -> [Document; 2] {
    let (reclaimed, waiting) = (job_id("reclaimed"), job_id("waiting"));
    for id in [&reclaimed, &waiting] {
        ledger.charge(&charge(id, 40, 5), at(0)).await.unwrap();
        ledger.record_failure(id, None, &failure_of(1), at(1)).await.unwrap();
    }
    ledger.record_success(&reclaimed, None, at(2)).await.unwrap();
    [document(database, &reclaimed).await, document(database, &waiting).await]
}

async fn document(database: &Database, id: &JobId) -> Document {
    jobs(database).find_one(doc! { "_id": id.as_str() }).await.unwrap().unwrap()
}

fn entries(document: &mut Document) -> &mut Vec<Bson> {
    document.get_array_mut("entries").unwrap()
}

fn entry(document: &mut Document, position: usize) -> &mut Document {
    entries(document)[position].as_document_mut().unwrap()
}

/// A way to break a job document: what is broken, whether on the reclaimed job (else the waiting one), and how.
type Break = (&'static str, bool, fn(&mut Document));

const BREAKS: [Break; 20] = [
    ("1: an entry is gone", true, |d| drop(entries(d).pop())),
    ("1: an entry stands twice", true, |d| {
        let last = entries(d)[2].clone();
        entries(d).push(last);
    }),
    ("1: no entries at all", false, |d| {
        entries(d).clear();
        d.insert("net", 0_i64);
    }),
    ("1: the entries stand in another order", true, |d| entries(d).swap(0, 1)),
    ("1: amounts other than the cost", false, |d| {
        entry(d, 0).insert("amount", -41_i64);
        entry(d, 1).insert("amount", 41_i64);
    }),
    ("1: another cost than the entries'", false, |d| drop(d.insert("cost", 41_i64))),
    ("1: an entry of an unknown type", false, |d| drop(entry(d, 1).insert("type", "gift"))),
    ("1: an entry older than the one in front", false, |d| {
        entry(d, 1).insert("created_at", DateTime::from_millis(0));
    }),
    ("1: an amount that is no integer", false, |d| {
        entry(d, 0).insert("amount", -40.0);
        entry(d, 1).insert("amount", 40.0);
    }),
    ("1: flagged as refunded without the row", false, |d| {
        entries(d).pop();
        d.insert("net", -40_i64);
    }),
    ("2: reclaimed and not delivered", true, |d| drop(d.insert("phase", "running"))),
    ("2: refunded, delivered and not reclaimed", false, |d| drop(d.insert("phase", "delivered"))),
    ("3: another net than the sum", false, |d| drop(d.insert("net", 40_i64))),
    ("3: no net", false, |d| drop(d.remove("net"))),
    ("6: refunded without an attempt that failed", false, |d| {
        d.insert("attempts", 0);
        d.insert("phase", "running");
    }),
    ("6: attempts that failed without a refund", false, |d| {
        d.insert("is_refunded", false);
        d.insert("phase", "running");
        d.insert("net", -40_i64);
        entries(d).pop();
    }),
    ("6: waiting for a retry without a refund", false, |d| {
        d.insert("is_refunded", false);
        d.insert("attempts", 0);
        d.insert("net", -40_i64);
        entries(d).pop();
    }),
    ("an unset time as null", false, |d| drop(d.insert("delivered_at", Bson::Null))),
    ("a time as text", false, |d| drop(d.insert("not_before", "2026-01-01T00:00:00Z"))),
    ("a phase that there is not", false, |d| drop(d.insert("phase", "paused"))),
];

// The driver's enum is open, and anything else is a failure here.
#[allow(clippy::wildcard_enum_match_arm)]
fn is_invalid(error: &mongodb::error::Error) -> bool {
    match error.kind.as_ref() {
        ErrorKind::Write(WriteFailure::WriteError(error)) => error.code == 121,
        ErrorKind::Command(error) => error.code == 121,
        other => panic!("not refused by the validator: {other}"),
    }
}

/// The update that makes `after` of `before`.
fn difference(before: &Document, after: &Document) -> Document {
    let set: Document =
        after.clone().into_iter().filter(|(name, value)| before.get(name) != Some(value)).collect();
    let unset: Document = before.clone().into_iter().filter(|(name, _)| !after.contains_key(name)).collect();
    let parts = [("$set", set), ("$unset", unset)];
    parts
        .into_iter()
        .filter(|(_, fields)| !fields.is_empty())
        .map(|(name, fields)| (name.to_owned(), Bson::from(fields)))
        .collect()
}

#[tokio::test]
async fn other_writers_cannot_break_an_invariant() {
    let uri = servers::fresh_database();
    let (ledger, database) = (ready(&uri).await, raw(&uri).await);
    let [reclaimed, waiting] = two_jobs(&ledger, &database).await;
    for (what, is_reclaimed, change) in BREAKS {
        let before = if is_reclaimed { &reclaimed } else { &waiting };
        let mut broken = before.clone();
        change(&mut broken);
        assert_ne!(&broken, before, "{what}");
        let key = doc! { "_id": before.get_str("_id").unwrap() };

        let replaced = jobs(&database).replace_one(key.clone(), &broken).await;
        assert!(replaced.is_err_and(|error| is_invalid(&error)), "{what}: replace");

        let update = difference(before, &broken);
        let updated = jobs(&database).update_one(key.clone(), update).await;
        assert!(updated.is_err_and(|error| is_invalid(&error)), "{what}: update");

        assert_eq!(&jobs(&database).find_one(key).await.unwrap().unwrap(), before, "{what}");
        broken.insert("_id", "another");
        let inserted = jobs(&database).insert_one(&broken).await;
        assert!(inserted.is_err_and(|error| is_invalid(&error)), "{what}: insert");
    }
    assert_eq!(jobs(&database).count_documents(doc! {}).await.unwrap(), 2);
}

#[tokio::test]
async fn other_writers_are_held_to_the_shape_of_an_id() {
    let uri = servers::fresh_database();
    let (ledger, database) = (ready(&uri).await, raw(&uri).await);
    let [_, waiting] = two_jobs(&ledger, &database).await;
    let long = |count| "é".repeat(count);
    let texts = [
        "",
        " ",
        "\u{2003} ",
        "\u{a0}",
        "\t",
        "a\n",
        "a\tb",
        "a\0b",
        "a\u{7f}",
        "a\u{9f}b",
        "a",
        " a",
        "$where",
    ];
    for text in texts.map(str::to_owned).into_iter().chain([long(256), long(257)]) {
        let is_id = JobId::new(text.as_str()).is_ok();
        let own_id = format!("{}'s", text.escape_debug().take(200).collect::<String>());
        for (field, fields) in [
            ("_id", doc! { "_id": &text }),
            ("account_id", doc! { "_id": format!("account {own_id}"), "account_id": &text }),
            ("counted_events", doc! { "_id": format!("event {own_id}"), "counted_events": [&text] }),
        ] {
            let document: Document = waiting.clone().into_iter().chain(fields).collect();
            let inserted = jobs(&database).insert_one(document).await;
            assert_eq!(inserted.is_ok(), is_id, "{field} {text:?}: {inserted:?}");
            assert!(inserted.err().is_none_or(|error| is_invalid(&error)), "{field} {text:?}");
        }
    }
}

#[tokio::test]
async fn other_writers_may_write_what_keeps_the_invariants() {
    let uri = servers::fresh_database();
    let (ledger, database) = (ready(&uri).await, raw(&uri).await);
    for mut document in two_jobs(&ledger, &database).await {
        // Other drivers choose an integer's width by its value, and other programs have fields of their own.
        let id = format!("another {}", document.get_str("_id").unwrap());
        document.extend(doc! { "_id": &id, "cost": 40, "attempts": 1_i64, "tenant": { "region": "eu" } });
        entry(&mut document, 0).insert("amount", -40);
        jobs(&database).insert_one(&document).await.unwrap();
        let job = stored(&ledger, &job_id(&id)).await;
        assert_eq!((job.cost.credits(), job.attempts), (40, 1));
    }
    let failed =
        ledger.record_failure(&job_id("another waiting"), None, &failure_of(2), at(9)).await.unwrap();
    assert_eq!(failed.job, stored(&ledger, &job_id("another waiting")).await);
}

#[tokio::test]
async fn fields_of_other_programs_survive_every_write() {
    let uri = servers::fresh_database();
    let (ledger, database) = (ready(&uri).await, raw(&uri).await);
    let id = job_id("job");
    ledger.charge(&charge(&id, 40, 1), at(0)).await.unwrap();
    let mut with_foreign = document(&database, &id).await;
    with_foreign.extend(doc! { "tenant": { "region": "eu" }, "notes": ["a", 1, Bson::Null] });
    jobs(&database).replace_one(doc! { "_id": "job" }, &with_foreign).await.unwrap();
    let fields = |document: &Document| (document.get("tenant").cloned(), document.get("notes").cloned());
    let expected = fields(&with_foreign);
    for (command, seconds) in [
        Command::Fail(failure_of(1)),
        Command::Redrive { allowance: 1 },
        Command::Dispatch { attempts: 1, ran_out: false },
        Command::Redrive { allowance: 1 },
        Command::Dispatch { attempts: 1, ran_out: false },
        Command::HandedOver { attempts: 1 },
        Command::Silent { k: 2, timeout: std::time::Duration::ZERO },
        Command::Exhausted { attempts: 2, first_claim: at(1_000) },
        Command::Succeed,
    ]
    .into_iter()
    .zip(1..)
    {
        let before = document(&database, &id).await;
        command.run(&ledger, &id, at(seconds)).await;
        let after = document(&database, &id).await;
        if command != (Command::Redrive { allowance: 1 }) {
            assert_ne!(after, before, "{command:?} wrote nothing");
        }
        assert_eq!(fields(&after), expected, "{command:?}");
    }
    assert_eq!(stored(&ledger, &id).await.phase, Phase::Delivered);
}

#[tokio::test]
async fn a_job_is_laid_out_as_the_contract_says() {
    let uri = servers::fresh_database();
    let (ledger, database) = (ready(&uri).await, raw(&uri).await);
    let id = job_id("job");
    let date = |seconds| DateTime::from_millis(at(seconds).as_millis());
    ledger.charge(&charge(&id, 40, 5), at(0)).await.unwrap();
    let charge_entry = doc! { "type": "charge", "amount": -40_i64, "created_at": date(0) };
    assert_eq!(
        document(&database, &id).await,
        doc! {
            "_id": "job", "schema": 1, "account_id": "a", "cost": 40_i64, "is_refunded": false, "is_reclaimed": false,
            "phase": "running", "attempts": 0, "max_attempts": 5, "entries": [charge_entry.clone()], "net": -40_i64,
            "created_at": date(0), "updated_at": date(0),
        }
    );
    ledger.record_failure(&id, None, &failure_with(Some("e")), at(1)).await.unwrap();
    let mut failed = document(&database, &id).await;
    let refund_entry = doc! { "type": "refund", "amount": 40_i64, "created_at": date(1) };
    assert_eq!(
        sorted(&mut failed),
        sorted(&mut doc! {
            "_id": "job", "schema": 1, "account_id": "a", "cost": 40_i64, "is_refunded": true, "refunded_at": date(1),
            "is_reclaimed": false, "phase": "retry_waiting", "attempts": 1, "max_attempts": 5, "not_before": date(5),
            "last_error": { "reason": "it broke", "at": date(1), "refunded": true }, "counted_events": ["e"],
            "entries": [charge_entry, refund_entry], "net": 0_i64, "created_at": date(0), "updated_at": date(1),
        })
    );
    ledger.redrive(&id, 1, at(2)).await.unwrap();
    ledger.record_failure(&id, None, &failure_of(2), at(2)).await.unwrap();
    let last_error = document(&database, &id).await.get_document("last_error").unwrap().clone();
    assert_eq!(last_error, doc! { "reason": "it broke", "at": date(2) });
}

fn sorted(document: &mut Document) -> Vec<(String, Bson)> {
    let mut fields: Vec<(String, Bson)> = std::mem::take(document).into_iter().collect();
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    fields
}

#[tokio::test]
async fn the_view_holds_one_document_an_entry() {
    let uri = servers::fresh_database();
    let (ledger, database) = (ready(&uri).await, raw(&uri).await);
    two_jobs(&ledger, &database).await;
    let rows: Vec<Document> = database
        .collection("ledger")
        .find(doc! {})
        .sort(doc! { "_id": 1 })
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let row = |job: &str, kind: &str, amount: i64, seconds| {
        sorted(&mut doc! {
            "_id": format!("{job}:{kind}"), "job_id": job, "account_id": "a", "type": kind, "amount": amount,
            "created_at": DateTime::from_millis(at(seconds).as_millis()),
        })
    };
    let found: Vec<_> = rows.into_iter().map(|mut row| sorted(&mut row)).collect();
    assert_eq!(
        found,
        [
            row("reclaimed", "charge", -40, 0),
            row("reclaimed", "reclaim", -40, 2),
            row("reclaimed", "refund", 40, 1),
            row("waiting", "charge", -40, 0),
            row("waiting", "refund", 40, 1),
        ]
    );
    let own = doc! { "account_id": "nobody" };
    assert_eq!(database.collection::<Document>("ledger").find_one(own).await.unwrap(), None);
}

#[tokio::test]
async fn init_may_run_again_and_on_a_live_database() {
    let uri = servers::fresh_database();
    let (ledger, database) = (MongoLedger::open(&uri).await.unwrap(), raw(&uri).await);
    assert!(!ledger.is_initialised().await.unwrap());
    // Somebody charged before anybody ran init, and an older version had another view.
    ledger.charge(&charge(&job_id("early"), 40, 5), at(0)).await.unwrap();
    database.create_collection("ledger").view_on("jobs").pipeline(vec![doc! { "$match": {} }]).await.unwrap();
    assert!(!ledger.is_initialised().await.unwrap(), "the collection is there, the validator is not");
    for _ in 0..2 {
        ledger.init().await.unwrap();
        assert!(ledger.is_initialised().await.unwrap());
        let row = database.collection::<Document>("ledger").find_one(doc! {}).await.unwrap().unwrap();
        assert_eq!(row.get_str("_id").unwrap(), "early:charge");
        let broken =
            jobs(&database).update_one(doc! { "_id": "early" }, doc! { "$set": { "net": 0_i64 } }).await;
        assert!(broken.is_err_and(|error| is_invalid(&error)));
        let mut names = jobs(&database).list_index_names().await.unwrap();
        names.sort();
        assert_eq!(
            names,
            [
                "_id_",
                "account",
                "dead_letters",
                "failed",
                "first_attempts_under_way",
                "overdue_retries",
                "retries_under_way",
            ]
        );
    }
    assert_eq!(stored(&ledger, &job_id("early")).await.net, -40);
}

#[tokio::test]
async fn init_builds_an_index_anew_that_an_earlier_version_had_otherwise() {
    let uri = servers::fresh_database();
    let (ledger, database) = (ready(&uri).await, raw(&uri).await);
    let indexes = || async {
        let found: Vec<IndexModel> =
            jobs(&database).list_indexes().await.unwrap().try_collect().await.unwrap();
        let plain = found.into_iter().map(|index| {
            let options = index.options.unwrap();
            (options.name.unwrap(), index.keys, options.partial_filter_expression)
        });
        let mut plain: Vec<_> = plain.collect();
        plain.sort_by(|one, other| one.0.cmp(&other.0));
        plain
    };
    let right = indexes().await;
    let other_filter = doc! { "phase": "delivered" };
    for (name, keys, only) in [
        ("overdue_retries", doc! { "_id": 1, "not_before": 1 }, Some(doc! { "phase": "retry_waiting" })),
        ("dead_letters", doc! { "phase": 1, "_id": 1 }, Some(other_filter)),
        ("account", doc! { "account_id": -1 }, None),
        ("of another program", doc! { "tenant": 1 }, None),
    ] {
        if right.iter().any(|(standing, _, _)| standing == name) {
            jobs(&database).drop_index(name).await.unwrap();
        }
        let options = IndexOptions::builder().name(name.to_owned()).partial_filter_expression(only).build();
        let model = IndexModel::builder().keys(keys).options(options).build();
        jobs(&database).create_index(model).await.unwrap();
    }
    ledger.init().await.unwrap();
    let mut after = indexes().await;
    after.retain(|(name, _, _)| name != "of another program");
    assert_eq!(after, right);
    assert_eq!(indexes().await.len(), right.len() + 1, "another program's index stays");
}

#[tokio::test]
async fn init_refuses_a_collection_where_the_view_belongs() {
    let uri = servers::fresh_database();
    raw(&uri).await.collection("ledger").insert_one(doc! { "_id": "old" }).await.unwrap();
    let refused = MongoLedger::open(&uri).await.unwrap().init().await;
    assert!(matches!(refused, Err(LedgerError::Refused { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_document_that_is_no_job_is_a_fault_and_stops_nobody() {
    let uri = servers::fresh_database();
    let (ledger, database) = (MongoLedger::open(&uri).await.unwrap(), raw(&uri).await);
    ledger.charge(&charge(&job_id("good"), 40, 5), at(0)).await.unwrap();
    let good = document(&database, &job_id("good")).await;
    let object_id = ObjectId::new();
    let with = |fields: Document| good.clone().into_iter().chain(fields).collect::<Document>();
    for broken in [
        with(doc! { "_id": object_id }),
        with(doc! { "_id": 7 }),
        with(doc! { "_id": "f1", "phase": "paused" }),
        with(doc! { "_id": "f2", "cost": 40.0 }),
        with(doc! { "_id": "f3", "entries": Bson::Null }),
        with(doc! { "_id": "f4", "schema": 2 }),
        with(doc! { "_id": "f5", "not_before": Bson::Null }),
        with(doc! { "_id": "f6", "attempts": -1 }),
        doc! { "_id": "f7" },
    ] {
        jobs(&database).insert_one(broken).await.unwrap();
    }
    let page: Vec<(String, Result<Job, LedgerError>)> = ledger.jobs(None, None, 100).await.unwrap();
    let ids: Vec<&str> = page.iter().map(|(id, _)| id.as_str()).collect();
    let object_id = format!("ObjectId({object_id})");
    assert_eq!(ids, ["7", &object_id, "f1", "f2", "f3", "f4", "f5", "f6", "f7", "good"]);
    for (id, job) in &page {
        assert_eq!(matches!(job, Err(LedgerError::Unreadable { .. })), id != "good", "{id}: {job:?}");
    }
    let later = document(&database, &job_id("f4")).await;
    let succeeded = ledger.record_success(&job_id("f4"), None, at(1)).await;
    assert!(matches!(succeeded, Err(LedgerError::Unreadable { .. })), "{succeeded:?}");
    assert_eq!(document(&database, &job_id("f4")).await, later, "a later layout is left alone");
}

#[tokio::test]
async fn a_first_page_keeps_to_its_limit_however_many_ids_are_no_text() {
    let uri = servers::fresh_database();
    let (ledger, database) = (MongoLedger::open(&uri).await.unwrap(), raw(&uri).await);
    jobs(&database).insert_many((0..7).map(|id| doc! { "_id": id })).await.unwrap();
    let ids = |page: Vec<(String, _)>| page.into_iter().map(|(id, _)| id).collect::<Vec<String>>();
    assert_eq!(ids(ledger.jobs(None, None, 4).await.unwrap()), ["0", "(6 documents more)"]);
    for id in ["a", "b", "c"] {
        ledger.charge(&charge(&job_id(id), 40, 5), at(0)).await.unwrap();
    }
    let first = ids(ledger.jobs(None, None, 4).await.unwrap());
    assert_eq!(first, ["0", "(6 documents more)", "a", "b"]);
    assert_eq!(ids(ledger.jobs(None, Some("b"), 4).await.unwrap()), ["c"]);
    assert_eq!(ids(ledger.jobs(None, None, 1).await.unwrap()), ["a"]);
    assert_eq!(ids(ledger.jobs(None, None, 14).await.unwrap()).len(), 10, "all of them where there is room");
}

#[tokio::test]
async fn a_job_that_cannot_be_read_hides_no_other_from_a_drain() {
    let uri = servers::fresh_database();
    // Without the validator, as another program's `bypassDocumentValidation`.
    let (ledger, database) = (MongoLedger::open(&uri).await.unwrap(), raw(&uri).await);
    for (id, seconds) in [("good 1", 0), ("good 2", 1), ("good 3", 2)] {
        ledger.charge(&charge(&job_id(id), 40, 5), at(seconds)).await.unwrap();
    }
    let good = document(&database, &job_id("good 1")).await;
    for fields in [
        doc! { "_id": ObjectId::new() },
        doc! { "_id": 7 },
        doc! { "_id": "a\tb" },
        doc! { "_id": " " },
        doc! { "_id": "f".repeat(257) },
        doc! { "_id": "no count", "attempts": 0.0 },
    ] {
        let odd: Document = good.clone().into_iter().chain(fields).collect();
        jobs(&database).insert_one(odd).await.unwrap();
    }
    for limit in [1, 2, 3, 100] {
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = ledger
                .outstanding(Outstanding::SilentFirstAttempt, at(9), after.as_ref(), limit)
                .await
                .unwrap();
            assert!(page.len() <= limit);
            ids.extend(page.iter().map(|found| found.job_id.as_str().to_owned()));
            after = page.last().map(Found::cursor);
            // As a drain reads on: a page that is not full is the last one.
            if page.len() < limit {
                break;
            }
        }
        assert_eq!(ids, ["good 1", "good 2", "good 3"], "in pages of {limit}");
    }
}

#[tokio::test]
async fn a_connection_string_that_asks_for_less_durability_is_refused_without_showing_it() {
    for option in
        ["w=0", "w=1", "w=2", "w=tag", "journal=false", "w=majority&journal=false", "w=1&journal=true"]
    {
        let uri = format!("mongodb://someone:s3cret@db.example:27017/recoup?{option}");
        let refused = MongoLedger::open(&uri).await.unwrap_err();
        assert!(matches!(refused, OpenError::WeakWriteConcern(_)), "{option}: {refused:?}");
        let shown = format!("{refused} {refused:?}");
        assert!(
            shown.contains("MONGODB_URI") && !shown.contains("s3cret") && !shown.contains("db.example"),
            "{shown}"
        );
    }
    for uri in ["", "s3cret", "redis://s3cret", "mongodb://user:s3/cret@host/db", "mongodb://a:1/s3cret@host"]
    {
        let shown = MongoLedger::open(uri).await.unwrap_err().to_string();
        assert!(shown.contains("MONGODB_URI") && !shown.contains("s3"), "{shown}");
    }
    for options in
        ["", "?w=majority", "?journal=true", "?w=majority&journal=true&wtimeoutMS=1&retryWrites=false"]
    {
        MongoLedger::open(&format!("mongodb://127.0.0.1:1/{options}")).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_is_down_is_an_error_that_shows_no_secret() {
    let port = servers::free_port();
    let uri = format!("mongodb://someone:s3cret@127.0.0.1:{port}/?directConnection=true");
    let ledger = MongoLedger::open(&uri).await.unwrap();
    let id = job_id("job");
    let error = ledger.record_success(&id, None, at(0)).await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    let shown = format!("{error} {error:?} {ledger:?}");
    assert!(!shown.contains("s3cret") && !shown.contains("someone"), "{shown}");
    let said = error.to_string();
    assert!(said.contains(&format!("no server could be selected: 127.0.0.1:{port}: ")), "{said}");
    assert!(said.ends_with("; try again") && !said.contains(['{', '}', '[']), "{said}");
}

#[tokio::test]
async fn the_database_is_the_paths_and_recoup_without_one() {
    let shared = servers::required("RECOUP_TEST_MONGODB_URI");
    let named = MongoLedger::open(&servers::with_database(&shared, "elsewhere")).await.unwrap();
    assert!(format!("{named:?}").contains("elsewhere"), "{named:?}");
    let unnamed = MongoLedger::open(&shared).await.unwrap();
    assert!(format!("{unnamed:?}").contains("recoup"), "{unnamed:?}");
}
