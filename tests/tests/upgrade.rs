//! Upgrades: a database of the plain two-flag layout becomes one of ours, whatever happens meanwhile.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::{Client, Database};
use recoup::clock::{Clock, SystemClock};
use recoup::job::{JobId, Phase};
use recoup::ledger::mongo::{Mode, MongoLedger, Note, Upgrade, Upgraded};
use recoup::ledger::{Ledger, LedgerError, LedgerReader, Outstanding};
use recoup::transition::SilenceOutcome;
use recoup_tests::ledger_suite::commands::{Command, delays, failure_of};
use recoup_tests::ledger_suite::{account, at, job_id, stored};
use recoup_tests::servers;

/// A database that an earlier program used, and the ledger on it.
struct Old {
    database: Database,
    ledger: MongoLedger,
}

impl Old {
    async fn new() -> Self {
        let uri = servers::fresh_database();
        let database = Client::with_uri_str(&uri).await.unwrap().default_database().unwrap();
        Self { database, ledger: MongoLedger::open(&uri).await.unwrap() }
    }

    async fn with(jobs: &[Document], rows: &[Document]) -> Self {
        let old = Self::new().await;
        if !jobs.is_empty() {
            old.database.collection::<Document>("jobs").insert_many(jobs).await.unwrap();
        }
        if !rows.is_empty() {
            old.database.collection::<Document>("ledger").insert_many(rows).await.unwrap();
        }
        old
    }

    async fn upgrade(&self, mode: Mode) -> (Upgraded, Vec<Note>) {
        let mut notes = Vec::new();
        let upgrade = Upgrade { mode, max_attempts: 5 };
        let done = self.ledger.upgrade(upgrade, at(1_000), &mut |note| notes.push(note)).await.unwrap();
        (done, notes)
    }

    async fn all(&self, collection: &str) -> Vec<Document> {
        let collection = self.database.collection::<Document>(collection);
        collection.find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap().try_collect().await.unwrap()
    }

    async fn collections(&self) -> Vec<String> {
        let mut names = self.database.list_collection_names().await.unwrap();
        names.sort();
        names
    }

    async fn gone(self) {
        self.database.drop().await.unwrap();
    }
}

fn date(seconds: i64) -> DateTime {
    DateTime::from_millis(at(seconds).as_millis())
}

fn old_job(id: &str, is_refunded: bool, is_reclaimed: bool) -> Document {
    doc! {
        "_id": id, "account_id": "a", "cost": 40, "is_refunded": is_refunded, "is_reclaimed": is_reclaimed,
        "created_at": date(0),
    }
}

fn row(id: impl Into<Bson>, kind: &str, amount: impl Into<Bson>, seconds: i64) -> Document {
    doc! { "job_id": id.into(), "type": kind, "amount": amount.into(), "created_at": date(seconds) }
}

fn rows(id: &str, is_refunded: bool, is_reclaimed: bool) -> Vec<Document> {
    let mut rows = vec![row(id, "charge", -40, 0)];
    if is_refunded {
        rows.push(row(id, "refund", 40, 30));
    }
    if is_reclaimed {
        rows.push(row(id, "reclaim", -40, 32));
    }
    rows
}

/// `count` jobs in turn running, refunded and reclaimed, one of `apart` under an `_id` of its own.
fn many(count: usize, apart: usize) -> (Vec<Document>, Vec<Document>) {
    let mut jobs = Vec::new();
    let mut all_rows = Vec::new();
    for n in 0..count {
        let id = format!("job-{n:05}");
        let (is_refunded, is_reclaimed) = (n % 3 > 0, n % 3 == 2);
        let mut job = old_job(&id, is_refunded, is_reclaimed);
        job.insert("account_id", format!("a{}", n % 7));
        if n % apart == 1 {
            job.insert("_id", ObjectId::new());
            job.insert("job_id", &id);
        }
        jobs.push(job);
        all_rows.extend(rows(&id, is_refunded, is_reclaimed));
    }
    (jobs, all_rows)
}

/// What the old rows say each account has, worked out from nothing but them and the jobs' accounts.
fn old_balances(jobs: &[Document], rows: &[Document]) -> BTreeMap<String, i64> {
    let owner: BTreeMap<&str, &str> = jobs
        .iter()
        .map(|job| {
            (
                job.get_str("job_id").or_else(|_| job.get_str("_id")).unwrap(),
                job.get_str("account_id").unwrap(),
            )
        })
        .collect();
    let mut balances = BTreeMap::new();
    for row in rows {
        let account = owner[row.get_str("job_id").unwrap()];
        *balances.entry(account.to_owned()).or_default() += i64::from(row.get_i32("amount").unwrap());
    }
    balances
}

async fn assert_balances(ledger: &MongoLedger, expected: &BTreeMap<String, i64>) {
    for (name, balance) in expected {
        assert_eq!(ledger.balance(&account(name)).await.unwrap(), *balance, "{name}");
    }
}

fn contradictions(notes: &[Note]) -> BTreeMap<String, (String, bool)> {
    let found = notes.iter().filter_map(|note| match note {
        Note::Contradiction { job, found, repair } => Some((job.clone(), (found.clone(), repair.is_some()))),
        Note::Validator
        | Note::SetAside { .. }
        | Note::View
        | Note::Indexes
        | Note::Progress(_)
        | Note::Repaired { .. } => None,
    });
    found.collect()
}

#[tokio::test]
async fn jobs_that_agree_with_themselves_are_imported_with_their_balances() {
    let (jobs, rows) = many(42, 2);
    let balances = old_balances(&jobs, &rows);
    let old = Old::with(&jobs, &rows).await;
    let (done, notes) = old.upgrade(Mode::Import).await;
    assert_eq!(done, Upgraded { imported: 42, ..Upgraded::default() }, "{notes:?}");
    assert!(notes.contains(&Note::SetAside { from: "ledger".into(), to: "ledger_before_recoup".into() }));
    assert_balances(&old.ledger, &balances).await;
    let expected = [(Phase::Running, -40), (Phase::Failed, 0), (Phase::Delivered, -40)];
    for n in 0..42 {
        let job = stored(&old.ledger, &job_id(&format!("job-{n:05}"))).await;
        assert_eq!((job.phase, job.net), expected[n % 3]);
        assert_eq!((job.attempts, job.max_attempts, job.imported), (u32::from(n % 3 > 0), 5, true));
    }
    assert_eq!(old.all("ledger_before_recoup").await.len(), rows.len());
    assert_eq!(old.all("ledger").await.len(), rows.len(), "the view has an entry for each row");
    assert_eq!(old.all("jobs").await.len(), 42);
    let mut moved: Vec<Document> = jobs.into_iter().skip(1).step_by(2).collect();
    moved.sort_by_key(|job| job.get_object_id("_id").unwrap());
    assert_eq!(old.all("jobs_before_recoup").await, moved);
    old.gone().await;
}

#[tokio::test]
async fn what_drivers_write_in_other_ways_is_read_all_the_same() {
    let id = ObjectId::new();
    let jobs = [
        doc! { "_id": id, "user_id": ObjectId::new(), "cost": 40.0, "is_refunded": true, "note": "kept" },
        doc! { "_id": "b", "user_id": "u", "cost": 40_i64, "status": "COMPLETED", "created_at": "2026-01-01T00:00:00Z",
        "attempts": "two", "last_error": "boom", "not_before": Bson::Null, "delivered_at": date(7) },
    ];
    let rows = [row(id, "charge", -40.0, 0), row(id, "refund", 40_i64, 1), row("b", "charge", -40, 0)];
    let old = Old::with(&jobs, &rows).await;
    let (done, notes) = old.upgrade(Mode::Import).await;
    assert_eq!(done.imported, 2, "{notes:?}");
    let job = stored(&old.ledger, &job_id(&id.to_hex())).await;
    assert_eq!((job.phase, job.created_at), (Phase::Failed, at(0)));
    let job = stored(&old.ledger, &job_id("b")).await;
    assert_eq!((job.phase, job.delivered_at, job.account_id.as_str()), (Phase::Delivered, Some(at(7)), "u"));
    let document = old.all("jobs").await.into_iter().find(|job| job.get("_id") == Some(&"b".into())).unwrap();
    let was = document.get_document("imported").unwrap().get_document("was").unwrap();
    assert_eq!(
        was,
        &doc! {
            "created_at": "2026-01-01T00:00:00Z", "attempts": "two", "last_error": "boom", "not_before": Bson::Null,
        }
    );
    assert_eq!(document.get_str("status").unwrap(), "COMPLETED");
    let moved = old.all("jobs").await.into_iter().find(|job| job.contains_key("note")).unwrap();
    assert_eq!(moved.get_str("note").unwrap(), "kept");
    old.gone().await;
}

#[tokio::test]
async fn amounts_without_a_sign_go_the_way_their_type_says() {
    let unsigned = [row("j", "charge", 40, 0), row("j", "refund", 40, 1), row("j", "reclaim", 40, 2)];
    let old = Old::with(&[old_job("j", true, true)], &unsigned).await;
    assert_eq!(old.upgrade(Mode::Import).await.0.imported, 1);
    assert_eq!(old.ledger.balance(&account("a")).await.unwrap(), -40);
    old.gone().await;
    // One negative amount, and a positive charge is a contradiction.
    let signed = [row("j", "charge", 40, 0), row("k", "charge", -40, 0)];
    let old = Old::with(&[old_job("j", false, false), old_job("k", false, false)], &signed).await;
    let (done, notes) = old.upgrade(Mode::Import).await;
    assert_eq!((done.imported, done.contradictions), (1, 1));
    assert_eq!(contradictions(&notes)["j"].0, "the charge row moves +40, but the cost asks for -40");
    old.gone().await;
}

/// A contradiction: the job's id, the job, its rows, what is said of it, and whether a repair can resolve it.
type Contradiction = (&'static str, Document, Vec<Document>, &'static str, bool);

fn every_contradiction() -> Vec<Contradiction> {
    let with = |id: &str, changes: Document| {
        let mut job = old_job(id, false, false);
        job.extend(changes);
        job
    };
    let without = |id: &str, field: &str| {
        let mut job = old_job(id, false, false);
        job.remove(field);
        job
    };
    let charged = |id: &str| rows(id, false, false);
    vec![
        (
            "flag",
            old_job("flag", true, false),
            charged("flag"),
            "is_refunded is true, but there is no refund row",
            true,
        ),
        (
            "flag-2",
            old_job("flag-2", true, true),
            rows("flag-2", true, false),
            "there is no reclaim row",
            true,
        ),
        ("row", old_job("row", false, false), rows("row", true, false), "is_refunded is not true", true),
        ("row-2", old_job("row-2", true, false), rows("row-2", true, true), "is_reclaimed is not true", true),
        (
            "twice",
            old_job("twice", true, false),
            [rows("twice", true, false), vec![row("twice", "refund", 40, 33)]].concat(),
            "there are 2 refund rows",
            true,
        ),
        ("uncharged", old_job("uncharged", false, false), vec![], "there is no charge row", true),
        (
            "amount",
            old_job("amount", true, false),
            [charged("amount"), vec![row("amount", "refund", 35, 30)]].concat(),
            "moves +35, but the cost asks for +40",
            true,
        ),
        (
            "fraction",
            old_job("fraction", false, false),
            vec![row("fraction", "charge", -40.5, 0)],
            "amount is -40.5, not whole credits",
            true,
        ),
        (
            "reclaim",
            old_job("reclaim", false, true),
            charged("reclaim"),
            "it is reclaimed, but was never refunded",
            true,
        ),
        (
            "gift",
            old_job("gift", false, false),
            [charged("gift"), vec![row("gift", "gift", 5, 1)]].concat(),
            "a row's type is \"gift\"",
            true,
        ),
        (
            "backwards",
            old_job("backwards", true, false),
            [charged("backwards"), vec![row("backwards", "refund", 40, -9)]].concat(),
            "older than the entry in front",
            true,
        ),
        (
            "timeless",
            old_job("timeless", false, false),
            vec![doc! { "job_id": "timeless", "type": "charge", "amount": -40 }],
            "has no time",
            true,
        ),
        (
            "done",
            {
                let mut job = old_job("done", true, false);
                job.insert("status", "completed");
                job
            },
            rows("done", true, false),
            "said to be \"completed\"",
            true,
        ),
        (
            "broken",
            with("broken", doc! { "state": "error" }),
            charged("broken"),
            "said to be \"error\"",
            true,
        ),
        ("no-cost", without("no-cost", "cost"), charged("no-cost"), "the cost is missing", true),
        (
            "big",
            with("big", doc! { "cost": 1_i64 << 53 }),
            vec![row("big", "charge", -(1_i64 << 53), 0)],
            "a cost is 1 to",
            false,
        ),
        (
            "nobody",
            without("nobody", "account_id"),
            charged("nobody"),
            "neither account_id nor user_id",
            false,
        ),
        (
            "flagged",
            with("flagged", doc! { "is_refunded": "yes" }),
            charged("flagged"),
            "not a boolean",
            false,
        ),
        ("newer", with("newer", doc! { "schema": 9 }), charged("newer"), "schema is 9", false),
        ("  ", old_job("  ", false, false), charged("  "), "consists of blanks only", false),
        ("17", doc! { "_id": 17, "account_id": "a", "cost": 40 }, vec![], "not a string", false),
        (
            "same",
            doc! { "_id": ObjectId::new(), "job_id": "same", "account_id": "a", "cost": 40 },
            charged("same"),
            "more than one document",
            false,
        ),
        (
            "same",
            doc! { "_id": ObjectId::new(), "job_id": "same", "account_id": "b", "cost": 40 },
            vec![],
            "more than one document",
            false,
        ),
        (
            "stuffed",
            old_job("stuffed", false, false),
            (0..17).map(|n| row("stuffed", "charge", -40, n)).collect(),
            "more than 16 rows",
            false,
        ),
    ]
}

#[tokio::test]
async fn every_contradiction_is_reported_left_alone_and_repaired_only_on_demand() {
    let cases = every_contradiction();
    let jobs: Vec<Document> = cases.iter().map(|case| case.1.clone()).collect();
    let mut all_rows: Vec<Document> = cases.iter().flat_map(|case| case.2.clone()).collect();
    all_rows.push(row("nowhere", "charge", -40, 0));
    all_rows.push(doc! { "type": "charge", "amount": -40 });
    let old = Old::with(&jobs, &all_rows).await;
    let (jobs_before, rows_before) = (old.all("jobs").await, old.all("ledger").await);

    let (dry, dry_notes) = old.upgrade(Mode::DryRun).await;
    let (done, notes) = old.upgrade(Mode::Import).await;
    assert_eq!(dry, done);
    let mut would = contradictions(&dry_notes);
    would
        .values_mut()
        .for_each(|(found, _)| *found = found.replace("in ledger,", "in ledger_before_recoup,"));
    assert_eq!(would, contradictions(&notes));
    let found = contradictions(&notes);
    for (id, _, _, said, repairable) in &cases {
        assert!(found[*id].0.contains(said), "{id}: {:?}", found[*id]);
        assert_eq!(found[*id].1, *repairable, "{id}");
    }
    assert!(found["nowhere"].0.contains("no such job") && found["(none)"].0.contains("no such job"));
    assert_eq!((done.imported, done.contradictions), (0, cases.len() as u64 + 2));
    assert_eq!(old.all("jobs").await, jobs_before, "nothing of these jobs is touched");
    assert_eq!(old.all("ledger_before_recoup").await, rows_before);

    let (repaired, notes) = old.upgrade(Mode::Repair).await;
    let for_a_person = cases.iter().filter(|case| !case.4).count() as u64;
    assert_eq!(repaired.contradictions, for_a_person, "{:?}", contradictions(&notes));
    assert_eq!(repaired.repaired, cases.len() as u64 - for_a_person + 2);
    let mut moved_by_account = 0;
    for note in &notes {
        if let Note::Repaired { job, repair, .. } = note {
            moved_by_account += repair.moved;
            assert!(!repair.done.is_empty(), "{job}");
        }
    }
    for (id, before, ..) in cases.iter().filter(|case| case.4) {
        let job = stored(&old.ledger, &job_id(id)).await;
        let document =
            old.database.collection::<Document>("jobs").find_one(doc! { "_id": id }).await.unwrap().unwrap();
        let imported = document.get_document("imported").unwrap();
        assert!(
            !imported.get_array("found").unwrap().is_empty()
                && !imported.get_array("repaired").unwrap().is_empty()
        );
        let was = imported.get_document("was").ok();
        let kept = |name: &str| was.and_then(|was| was.get(name)).or_else(|| document.get(name)).cloned();
        for flag in ["is_refunded", "is_reclaimed"] {
            assert_eq!(kept(flag).as_ref(), before.get(flag), "{id}: {job:?}");
        }
    }
    let rows_of_repaired: i128 = cases
        .iter()
        .filter(|case| case.4)
        .flat_map(|case| &case.2)
        .filter_map(|row| row.get_i32("amount").ok())
        .map(i128::from)
        .sum();
    let balance = i128::from(old.ledger.balance(&account("a")).await.unwrap());
    assert_eq!(balance, rows_of_repaired + moved_by_account, "what moved is what was said to move");
    assert_eq!(old.all("ledger_before_recoup").await.len(), rows_before.len());

    let (again, notes) = old.upgrade(Mode::Import).await;
    assert_eq!(again.contradictions, for_a_person, "{:?}", contradictions(&notes));
    assert_eq!((again.imported, again.repaired), (0, 0));
    old.gone().await;
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let (jobs, rows) = many(12, 2);
    let old = Old::with(&jobs, &rows).await;
    old.upgrade(Mode::Import).await;
    let first = (old.all("jobs").await, old.all("ledger_before_recoup").await, old.collections().await);
    for mode in [Mode::Import, Mode::Repair, Mode::DryRun] {
        let (done, _) = old.upgrade(mode).await;
        assert_eq!(done, Upgraded { already: 12, ..Upgraded::default() });
        assert_eq!(
            (old.all("jobs").await, old.all("ledger_before_recoup").await, old.collections().await),
            first
        );
    }
    old.gone().await;
}

#[tokio::test]
async fn a_dry_run_writes_nothing_and_counts_what_an_import_would_do() {
    let (jobs, rows) = many(12, 2);
    let old = Old::with(&jobs, &rows).await;
    let before = (old.all("jobs").await, old.all("ledger").await, old.collections().await);
    let (dry, notes) = old.upgrade(Mode::DryRun).await;
    assert_eq!(dry.imported, 12);
    assert!(notes.contains(&Note::SetAside { from: "ledger".into(), to: "ledger_before_recoup".into() }));
    assert_eq!((old.all("jobs").await, old.all("ledger").await, old.collections().await), before);
    // No index either, and no validator.
    assert_eq!(old.database.collection::<Document>("jobs").list_index_names().await.unwrap(), ["_id_"]);
    old.database.collection::<Document>("jobs").insert_one(doc! { "_id": "any" }).await.unwrap();
    old.gone().await;
}

#[tokio::test]
async fn an_import_that_dies_at_any_step_is_finished_by_the_next() {
    let (jobs, mut rows) = many(640, 40);
    let balances = old_balances(&jobs, &rows);
    let late = rows.pop().unwrap();
    let old = Old::with(&jobs, &rows).await;
    let mut deaths = 0;
    loop {
        let (ledger, die_at) = (old.ledger.clone(), deaths);
        let run = tokio::spawn(async move {
            let mut notes = 0;
            let upgrade = Upgrade { mode: Mode::Import, max_attempts: 5 };
            let mut listen = |note: Note| {
                assert!(notes < die_at, "dies at {note:?}");
                notes += 1;
            };
            ledger.upgrade(upgrade, at(1_000), &mut listen).await.unwrap()
        });
        match run.await {
            Ok(done) => {
                assert_eq!((done.contradictions, done.imported + done.already), (0, 640));
                break;
            }
            Err(death) => assert!(death.is_panic()),
        }
        deaths += 1;
        let names = old.collections().await;
        if !names.contains(&"ledger".to_owned()) && !names.contains(&"ledger_before_recoup_2".to_owned()) {
            // Between the renaming and the view, an earlier program that was not stopped writes its row.
            old.database.collection::<Document>("ledger").insert_one(&late).await.unwrap();
        }
    }
    assert!(deaths >= 5, "{deaths}");
    assert_eq!(old.all("ledger_before_recoup").await.len(), rows.len());
    assert_eq!(old.all("ledger_before_recoup_2").await.len(), 1);
    assert_eq!(old.all("ledger").await.len(), rows.len() + 1, "no row is lost");
    assert_balances(&old.ledger, &balances).await;
    old.gone().await;
}

#[tokio::test]
async fn no_write_meets_a_job_before_its_import() {
    // With and without a field that a guard asks for.
    let mut with_phase = old_job("phase", false, false);
    with_phase.extend(doc! { "phase": "running", "attempts": 0 });
    let mut waiting = old_job("waiting", true, false);
    waiting
        .extend(doc! { "phase": "retry_waiting", "attempts": 1, "not_before": date(0), "max_attempts": 1 });
    let jobs = [old_job("plain", true, false), with_phase, waiting];
    let old = Old::with(&jobs, &[]).await;
    for id in ["plain", "phase", "waiting"].map(job_id) {
        for command in [
            Command::Fail(failure_of(1)),
            Command::Fail(failure_of(2)),
            Command::Succeed,
            Command::Dispatch { attempts: 1, ran_out: false },
            Command::Exhausted { attempts: 1, first_claim: at(1) },
            Command::Silent { k: 1, timeout: Duration::ZERO },
            Command::HandedOver { attempts: 1 },
            Command::Redrive { allowance: 1 },
            Command::Charge { cost: 40, max_attempts: 5 },
        ] {
            let answer = command.try_run(&old.ledger, &id, at(2_000)).await;
            let Err(LedgerError::Unreadable { what, .. }) = answer else { panic!("{command:?}: {answer:?}") };
            assert!(what.contains("`recoup init` imports it"), "{what}");
        }
    }
    for kind in Outstanding::ALL {
        assert_eq!(old.ledger.outstanding(kind, at(9_000), None, 10).await.unwrap(), [], "{kind:?}");
    }
    assert!(old.ledger.at_cap(&[(job_id("waiting"), 1)]).await.unwrap().is_empty());
    let mut found = old.all("jobs").await;
    found.sort_by_key(|job| job.get_str("_id").unwrap().to_owned());
    let mut expected = jobs.to_vec();
    expected.sort_by_key(|job| job.get_str("_id").unwrap().to_owned());
    assert_eq!(found, expected);
    old.gone().await;
}

#[tokio::test]
async fn imported_jobs_answer_signals_by_the_contract() {
    let jobs =
        [old_job("running", false, false), old_job("failed", true, false), old_job("delivered", true, true)];
    let all_rows =
        [rows("running", false, false), rows("failed", true, false), rows("delivered", true, true)];
    let old = Old::with(&jobs, &all_rows.concat()).await;
    old.upgrade(Mode::Import).await;
    for (id, seconds) in ["running", "failed", "delivered"].map(job_id).into_iter().zip([2_000, 2_001, 2_002])
    {
        for command in [
            Command::Fail(failure_of(1)),
            Command::Fail(failure_of(2)),
            Command::Dispatch { attempts: 2, ran_out: false },
            Command::Succeed,
            Command::Fail(failure_of(3)),
        ] {
            let before = stored(&old.ledger, &id).await;
            let (expected, after) = command.by_the_rules(&id, Some(&before), at(seconds));
            assert_eq!(command.run(&old.ledger, &id, at(seconds)).await, expected, "{command:?} on {id}");
            assert_eq!(Some(stored(&old.ledger, &id).await), after);
        }
    }
    assert_eq!(old.ledger.balance(&account("a")).await.unwrap(), -120);
    old.gone().await;
}

#[tokio::test]
async fn the_silence_of_a_job_that_may_have_been_delivered_long_ago_is_no_failure() {
    let old = Old::with(&[old_job("old", false, false)], &rows("old", false, false)).await;
    old.upgrade(Mode::Import).await;
    let id = job_id("old");
    let long_after = at(90 * 86_400);
    let silent = Outstanding::SilentFirstAttempt;
    assert_eq!(old.ledger.outstanding(silent, long_after, None, 10).await.unwrap(), []);
    let verdict =
        old.ledger.no_signal(&id, 1, Duration::from_secs(86_400), &delays(), long_after).await.unwrap();
    assert_eq!(verdict.outcome, SilenceOutcome::NotSilent);
    assert_eq!(stored(&old.ledger, &id).await.net, -40);
    // A failure that is reported counts, and the attempt after it is timed like any other.
    old.ledger.record_failure(&id, None, &failure_of(1), at(2_000)).await.unwrap();
    old.ledger.dispatch(&id, 1, false, at(2_010)).await.unwrap();
    old.ledger.hand_over_done(&id, 1, at(2_011)).await.unwrap();
    assert_eq!(
        old.ledger.outstanding(Outstanding::SilentRetry, long_after, None, 10).await.unwrap().len(),
        1
    );
    old.gone().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_jobs_are_imported_while_functions_run() {
    let (jobs, rows) = many(2_000, 100);
    let old = Old::with(&jobs, &rows).await;
    let (ledger, upgrading) = (old.ledger.clone(), old.ledger.clone());
    let import = tokio::spawn(async move {
        let upgrade = Upgrade { mode: Mode::Import, max_attempts: 5 };
        upgrading.upgrade(upgrade, at(1_000), &mut |_| {}).await
    });
    // A first failure and a success for every 40th job, redelivered until they are answered.
    let signalled: Vec<JobId> = (0..2_000).step_by(40).map(|n| job_id(&format!("job-{n:05}"))).collect();
    let redelivered: u32 = stream::iter(&signalled)
        .map(|id| async {
            let mut redelivered = 0;
            while let Err(error) = ledger.record_failure(id, None, &failure_of(1), at(2_000)).await {
                redelivered += 1;
                before_its_import(&error);
                SystemClock.sleep(Duration::from_millis(200)).await;
            }
            ledger.record_success(id, None, at(2_001)).await.unwrap();
            redelivered
        })
        .buffer_unordered(4)
        .fold(0, async |sum, redelivered| sum + redelivered)
        .await;
    let done = import.await.unwrap().unwrap();
    assert_eq!((done.imported, done.contradictions), (2_000, 0), "{done:?}");
    assert!(redelivered > 0, "no signal came before its job's import");
    for id in &signalled {
        let job = stored(&ledger, id).await;
        assert_eq!((job.phase, job.net), (Phase::Delivered, -40), "{job:?}");
    }
    let mut balances = old_balances(&jobs, &rows);
    // Each signalled job stands at its cost now; those that stood at nothing before took it with them.
    for n in (0..2_000).step_by(40).filter(|n| n % 3 == 1) {
        *balances.get_mut(&format!("a{}", n % 7)).unwrap() -= 40;
    }
    assert_balances(&ledger, &balances).await;
    assert_eq!(ledger.totals().await.unwrap().jobs, 2_000);
    old.gone().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_imports_at_once_import_each_job_once() {
    let (jobs, rows) = many(200, 10);
    let balances = old_balances(&jobs, &rows);
    let old = Old::with(&jobs, &rows).await;
    let runs = [1_000, 1_001].map(|seconds| {
        let ledger = old.ledger.clone();
        tokio::spawn(async move {
            let upgrade = Upgrade { mode: Mode::Import, max_attempts: 5 };
            ledger.upgrade(upgrade, at(seconds), &mut |_| {}).await.unwrap()
        })
    });
    let mut imported = 0;
    for run in runs {
        let done = run.await.unwrap();
        assert_eq!(done.contradictions, 0, "{done:?}");
        imported += done.imported;
    }
    assert_eq!(imported, 200);
    assert_eq!(old.all("ledger").await.len(), rows.len());
    assert_balances(&old.ledger, &balances).await;
    old.gone().await;
}

fn before_its_import(error: &LedgerError) {
    assert!(matches!(error, LedgerError::Unreadable { .. } | LedgerError::UnknownJob(_)), "{error:?}");
}

#[tokio::test]
async fn a_job_that_was_charged_again_under_its_id_is_left_to_a_person() {
    let job = doc! { "_id": ObjectId::new(), "job_id": "j", "account_id": "a", "cost": 40 };
    let old = Old::with(&[job], &rows("j", false, false)).await;
    Command::Charge { cost: 40, max_attempts: 5 }.run(&old.ledger, &job_id("j"), at(500)).await;
    let before = old.all("jobs").await;
    let (done, notes) = old.upgrade(Mode::Repair).await;
    assert_eq!(done.contradictions, 1);
    assert!(contradictions(&notes)["j"].0.contains("another document has its id"), "{notes:?}");
    assert_eq!(old.all("jobs").await, before);
    old.gone().await;
}

#[tokio::test]
async fn an_earlier_program_cannot_change_a_job_once_the_import_has_begun() {
    let mut broken = old_job("left", true, false);
    broken.insert("is_refunded", true);
    let old = Old::with(&[broken], &rows("left", false, false)).await;
    old.upgrade(Mode::Import).await;
    let jobs = old.database.collection::<Document>("jobs");
    let update = jobs.update_one(doc! { "_id": "left" }, doc! { "$set": { "is_reclaimed": true } }).await;
    assert!(update.is_err());
    assert!(jobs.insert_one(old_job("new", false, false)).await.is_err());
    old.gone().await;
}
