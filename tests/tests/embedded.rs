//! What only the embedded store has: a file that keeps the invariants against anybody's SQL, its layout, several
//! processes on it, and groups of commits. The suites that hold for every store are elsewhere.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use proptest::prelude::*;

use recoup::backoff::{RetryPolicy, Roll};
use recoup::clock::Timestamp;
use recoup::embedded::{APPLICATION_ID, Embedded, EmbeddedError, SCHEMA_VERSION};
use recoup::job::{AccountId, Cost, EntryType, Job, JobId, MAX_ATTEMPT, Phase};
use recoup::ledger::sqlite::SqliteLedger;
use recoup::ledger::{Found, Ledger, LedgerError, LedgerReader, Outstanding};
use recoup::queue::sqlite::SqliteQueue;
use recoup::queue::{List, QueueError, RetryEntry, RetryQueue};
use recoup::transition::{Charge, ChargeOutcome, Failure, FailureOutcome, SuccessOutcome};
use rusqlite::Connection;
use tempfile::TempDir;

const NOW: i64 = 1_768_471_200_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(NOW + ms)
}

fn job_id(id: &str) -> JobId {
    JobId::new(id).unwrap()
}

fn charge(id: &str) -> Charge {
    Charge {
        job_id: job_id(id),
        account_id: AccountId::new("a1").unwrap(),
        cost: Cost::new(40).unwrap(),
        max_attempts: 5,
        replayed: false,
    }
}

fn failure(attempt: u32) -> Failure {
    Failure {
        attempt: Some(attempt),
        retryable: true,
        reason: Some("worker timeout".to_owned()),
        event_id: None,
        trace: None,
        delays: RetryPolicy::default().delays(Roll::FULL),
    }
}

/// A file in a directory of its own, and a ledger on it.
struct Place {
    directory: TempDir,
    ledger: SqliteLedger,
    store: Arc<Embedded>,
}

impl Place {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let store = Arc::new(Embedded::open(directory.path().join("recoup.db")).unwrap());
        Self { directory, ledger: SqliteLedger::new(store.clone()), store }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("recoup.db")
    }

    /// What a person with `sqlite3` in hand has: a plain connection, with nothing of ours set on it.
    fn stranger(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    async fn job(&self, id: &str) -> Job {
        self.ledger.job(&job_id(id)).await.unwrap().unwrap()
    }

    /// One job in every phase, named by it, and `refunded`, which runs again.
    async fn fill(&self) {
        let ledger = &self.ledger;
        let ids =
            ["running", "refunded", "retry_waiting", "dead_lettered", "failed", "delivered", "reclaimed"];
        for id in ids {
            ledger.charge(&charge(id), at(0)).await.unwrap();
        }
        for id in ["refunded", "retry_waiting", "dead_lettered", "reclaimed"] {
            ledger.record_failure(&job_id(id), None, &failure(1), at(10)).await.unwrap();
        }
        ledger.record_failure(&job_id("retry_waiting"), None, &failure(3), at(12)).await.unwrap();
        ledger.dispatch(&job_id("refunded"), 1, false, at(20)).await.unwrap();
        ledger.claims_exhausted(&job_id("dead_lettered"), 1, at(15), at(20)).await.unwrap();
        let hopeless = Failure { retryable: false, ..failure(1) };
        ledger.record_failure(&job_id("failed"), None, &hopeless, at(10)).await.unwrap();
        for id in ["delivered", "reclaimed"] {
            ledger.record_success(&job_id(id), None, at(30)).await.unwrap();
        }
    }

    async fn all_jobs(&self) -> Vec<Job> {
        let page = self.ledger.jobs(None, None, 1000).await.unwrap();
        page.into_iter().map(|(_, job)| job.unwrap()).collect()
    }
}

#[tokio::test]
async fn a_job_is_read_back_as_it_was_answered() {
    let place = Place::new();
    let ledger = &place.ledger;
    let charged = ledger.charge(&charge("j"), at(0)).await.unwrap();
    assert_eq!(charged.outcome, ChargeOutcome::Charged);
    assert_eq!(place.job("j").await, charged.job);
    let refunded = ledger.record_failure(&job_id("j"), None, &failure(1), at(10)).await.unwrap();
    assert_eq!(refunded.outcome, FailureOutcome::Refunded);
    assert_eq!(place.job("j").await, refunded.job);
    let reclaimed = ledger.record_success(&job_id("j"), None, at(5)).await.unwrap();
    assert_eq!(reclaimed.outcome, SuccessOutcome::Reclaimed);
    assert_eq!(place.job("j").await, reclaimed.job);
    assert_eq!(reclaimed.job.entries.len(), 3);
    assert_eq!(reclaimed.job.violations(), Vec::<String>::new());
    assert_eq!(ledger.balance(&AccountId::new("a1").unwrap()).await.unwrap(), -40);
}

/// Every way in which a statement can ask SQLite to go on after a conflict.
const ON_CONFLICT: [&str; 6] = ["", " OR ABORT", " OR FAIL", " OR IGNORE", " OR REPLACE", " OR ROLLBACK"];

/// Statements that would each break an invariant of a job that [`Place::fill`] made.
const ATTACKS: [&str; 63] = [
    // The flags go back, or their times move.
    "UPDATE jobs SET is_refunded = 0, refunded_at = NULL, attempts = 0 WHERE job_id = 'refunded'",
    "UPDATE jobs SET is_refunded = NULL, refunded_at = NULL, attempts = NULL WHERE job_id = 'refunded'",
    "UPDATE jobs SET is_reclaimed = 0, reclaimed_at = NULL WHERE job_id = 'reclaimed'",
    "UPDATE jobs SET is_reclaimed = 0, reclaimed_at = NULL, delivered_at = NULL, phase = 'running'
     WHERE job_id = 'reclaimed'",
    "UPDATE jobs SET refunded_at = refunded_at + 1 WHERE is_refunded",
    "UPDATE jobs SET reclaimed_at = reclaimed_at + 1 WHERE is_reclaimed",
    // What a job was charged with changes.
    "UPDATE jobs SET cost = 1 WHERE job_id = 'running'",
    "UPDATE jobs SET account_id = 'a2' WHERE job_id = 'running'",
    "UPDATE jobs SET job_id = 'other' WHERE job_id = 'running'",
    "UPDATE jobs SET job_id = 'delivered' WHERE job_id = 'running'",
    "UPDATE jobs SET created_at = created_at - 1 WHERE job_id = 'running'",
    "UPDATE jobs SET replayed = 1 WHERE job_id = 'running'",
    // Attempts go down, or part from the refund.
    "UPDATE jobs SET attempts = 2 WHERE job_id = 'retry_waiting'",
    "UPDATE jobs SET attempts = NULL WHERE job_id = 'retry_waiting'",
    "UPDATE jobs SET attempts = 1 WHERE job_id = 'running'",
    "UPDATE jobs SET attempts = 0 WHERE job_id = 'refunded'",
    "UPDATE jobs SET attempts = 2147483648 WHERE job_id = 'refunded'",
    // A flag without what belongs to it.
    "UPDATE jobs SET is_refunded = 1 WHERE job_id = 'running'",
    "UPDATE jobs SET is_refunded = 1, attempts = 1 WHERE job_id = 'running'",
    "UPDATE jobs SET is_refunded = 1, refunded_at = updated_at WHERE job_id = 'running'",
    "UPDATE jobs SET is_refunded = 1, attempts = 1, refunded_at = created_at - 1 WHERE job_id = 'running'",
    "UPDATE jobs SET is_refunded = 2, attempts = 1, refunded_at = updated_at WHERE job_id = 'running'",
    "UPDATE jobs SET refunded_at = updated_at WHERE job_id = 'running'",
    "UPDATE jobs SET is_refunded = 1, attempts = 1, refunded_at = updated_at WHERE job_id = 'delivered'",
    "UPDATE jobs SET is_reclaimed = 1, reclaimed_at = updated_at WHERE job_id = 'refunded'",
    "UPDATE jobs SET is_reclaimed = 1, reclaimed_at = updated_at WHERE job_id = 'delivered'",
    "UPDATE jobs SET reclaimed_at = updated_at WHERE job_id = 'refunded'",
    "UPDATE jobs SET is_reclaimed = 1, reclaimed_at = refunded_at - 1, phase = 'delivered', delivered_at = 1
     WHERE job_id = 'refunded'",
    // Phases that the flags do not allow.
    "UPDATE jobs SET phase = 'delivered', delivered_at = updated_at WHERE job_id = 'retry_waiting'",
    "UPDATE jobs SET phase = 'running', delivered_at = NULL WHERE phase = 'delivered'",
    "UPDATE jobs SET phase = 'retry_waiting', not_before = updated_at WHERE job_id = 'running'",
    "UPDATE jobs SET phase = 'dead_lettered' WHERE job_id = 'running'",
    "UPDATE jobs SET phase = 'failed' WHERE job_id = 'running'",
    "UPDATE jobs SET phase = 'lost' WHERE job_id = 'refunded'",
    "UPDATE jobs SET phase = NULL WHERE job_id = 'running'",
    "UPDATE jobs SET not_before = NULL WHERE job_id = 'retry_waiting'",
    "UPDATE jobs SET phase = 'delivered' WHERE job_id = 'running'",
    // What no reader could read.
    "UPDATE jobs SET max_attempts = -1 WHERE job_id = 'running'",
    "UPDATE jobs SET counted_events = '{}' WHERE job_id = 'running'",
    "UPDATE jobs SET counted_events = 'none' WHERE job_id = 'running'",
    "UPDATE jobs SET last_error_reason = 'no time' WHERE job_id = 'running'",
    "INSERT INTO jobs VALUES ('', 'a1', 40, 0, NULL, 0, NULL, NULL, 'running', 0, 5, NULL, NULL, NULL, NULL,
     '[]', NULL, 1, 1, 0)",
    "INSERT INTO jobs VALUES (hex(zeroblob(129)), 'a1', 40, 0, NULL, 0, NULL, NULL, 'running', 0, 5, NULL, NULL,
     NULL, NULL, '[]', NULL, 1, 1, 0)",
    "INSERT INTO jobs VALUES ('new', '', 40, 0, NULL, 0, NULL, NULL, 'running', 0, 5, NULL, NULL, NULL, NULL,
     '[]', NULL, 1, 1, 0)",
    "INSERT INTO jobs VALUES ('new', 'a1', 0, 0, NULL, 0, NULL, NULL, 'running', 0, 5, NULL, NULL, NULL, NULL,
     '[]', NULL, 1, 1, 0)",
    "INSERT INTO jobs VALUES ('new', 'a1', 9007199254740992, 0, NULL, 0, NULL, NULL, 'running', 0, 5, NULL, NULL,
     NULL, NULL, '[]', NULL, 1, 1, 0)",
    "INSERT INTO jobs VALUES ('new', 'a1', 40, 0, NULL, 0, NULL, NULL, 'running', 0, 5, NULL, NULL, NULL, NULL,
     '[]', NULL, 1, 1, 2)",
    // Jobs go away, come twice, or begin half way.
    "DELETE FROM jobs",
    "DELETE FROM jobs WHERE job_id = 'running'",
    "INSERT INTO jobs SELECT * FROM jobs WHERE job_id = 'retry_waiting'",
    "INSERT INTO jobs SELECT job_id, account_id, 1, 0, NULL, 0, NULL, NULL, 'running', 0, 5, NULL, NULL, NULL, NULL,
     '[]', NULL, created_at, updated_at, 0 FROM jobs WHERE job_id = 'retry_waiting'",
    "INSERT INTO jobs SELECT 'new', account_id, cost, is_refunded, refunded_at, is_reclaimed, reclaimed_at,
     delivered_at, phase, attempts, max_attempts, not_before, dispatched_at, last_error_reason, last_error_at,
     counted_events, redriven_at, created_at, updated_at, replayed FROM jobs WHERE job_id = 'retry_waiting'",
    // Entries change, go away, come twice, or come without being asked for.
    "UPDATE entries SET amount = 0",
    "UPDATE entries SET position = 2 WHERE position = 1",
    "DELETE FROM entries WHERE position > 0",
    "INSERT INTO entries SELECT * FROM entries WHERE job_id = 'retry_waiting'",
    "INSERT INTO entries SELECT job_id, position, account_id, type, 1, created_at FROM entries",
    "INSERT INTO entries SELECT job_id, 1, account_id, 'refund', cost, updated_at FROM jobs WHERE job_id = 'running'",
    "INSERT INTO entries SELECT job_id, 3, account_id, 'refund', cost, updated_at FROM jobs WHERE is_refunded",
    "INSERT INTO entries SELECT job_id, 2, account_id, 'reclaim', -cost, refunded_at FROM jobs WHERE is_refunded",
    "INSERT INTO entries VALUES ('nobody', 0, 'a1', 'charge', -40, 0)",
    "INSERT INTO jobs SELECT NULL, account_id, 1, 0, NULL, 0, NULL, NULL, 'running', 0, 5, NULL, NULL, NULL, NULL,
     '[]', NULL, created_at, updated_at, 0 FROM jobs WHERE job_id = 'retry_waiting'",
    "INSERT INTO entries VALUES (NULL, NULL, NULL, NULL, NULL, NULL)",
];

#[tokio::test]
async fn no_statement_by_hand_breaks_an_invariant() {
    let place = Place::new();
    place.fill().await;
    let stranger = place.stranger();
    stranger.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF").unwrap();
    let before = place.all_jobs().await;
    for attack in ATTACKS {
        for on_conflict in ON_CONFLICT {
            let (verb, rest) = attack.split_at(6);
            let sql = if verb == "DELETE" { attack.to_owned() } else { format!("{verb}{on_conflict}{rest}") };
            let done = stranger.execute(&sql, []);
            assert!(done.is_err() || on_conflict == " OR IGNORE", "went through: {sql}");
            assert_eq!(place.all_jobs().await, before, "changed something: {sql}");
        }
    }
}

#[tokio::test]
async fn a_job_that_is_there_is_neither_replaced_nor_updated_by_an_insert() {
    let place = Place::new();
    place.fill().await;
    let before = place.all_jobs().await;
    let (copy, stranger) = ("INTO jobs SELECT * FROM jobs WHERE job_id = 'running'", place.stranger());
    let upsert = format!("INSERT {copy} ON CONFLICT (job_id) DO UPDATE SET max_attempts = 99");
    for insert in [format!("INSERT {copy}"), format!("REPLACE {copy}"), upsert] {
        let error = stranger.execute(&insert, []).unwrap_err().to_string();
        assert_eq!(error, "this job is there already; a job is charged once");
    }
    assert_eq!(place.all_jobs().await, before);
}

#[tokio::test]
async fn a_flag_set_by_hand_writes_its_entry() {
    let place = Place::new();
    place.fill().await;
    let stranger = place.stranger();
    let refund =
        "UPDATE jobs SET is_refunded = 1, attempts = 1, refunded_at = created_at + 5, phase = 'failed'
                  WHERE job_id = 'running'";
    assert_eq!(stranger.execute(refund, []), Ok(1));
    let reclaim = "UPDATE jobs SET is_reclaimed = 1, reclaimed_at = refunded_at + 5, phase = 'delivered',
                   delivered_at = 1 WHERE job_id = 'failed'";
    assert_eq!(stranger.execute(reclaim, []), Ok(1));
    let (refunded, reclaimed) = (place.job("running").await, place.job("failed").await);
    for (job, written) in [(&refunded, EntryType::Refund), (&reclaimed, EntryType::Reclaim)] {
        assert_eq!(job.entries.last().unwrap().kind, written);
        assert_eq!(job.violations(), Vec::<String>::new());
    }
    assert_eq!(reclaimed.entries.last().unwrap().created_at, reclaimed.reclaimed_at.unwrap());
    assert_eq!((refunded.net, reclaimed.net), (0, -40));
}

/// A statement that sets some columns of some jobs to something.
fn any_update() -> impl Strategy<Value = String> {
    let values = [
        ("is_refunded", vec!["0", "1", "NULL"]),
        ("refunded_at", vec!["NULL", "created_at", "created_at + 10", "created_at - 1"]),
        ("is_reclaimed", vec!["0", "1", "NULL"]),
        ("reclaimed_at", vec!["NULL", "created_at", "created_at + 20"]),
        ("delivered_at", vec!["NULL", "updated_at"]),
        ("phase", vec!["'running'", "'retry_waiting'", "'dead_lettered'", "'failed'", "'delivered'", "NULL"]),
        ("attempts", vec!["0", "1", "2", "attempts + 1", "NULL"]),
        ("not_before", vec!["NULL", "updated_at"]),
        ("cost", vec!["1", "cost"]),
    ];
    let columns: Vec<_> = values
        .into_iter()
        .map(|(column, values)| {
            proptest::option::weighted(0.6, proptest::sample::select(values))
                .prop_map(move |value| value.map(|value| format!("{column} = {value}")))
        })
        .collect();
    (proptest::sample::select(ON_CONFLICT.to_vec()), columns).prop_map(|(on_conflict, columns)| {
        let set: Vec<String> = columns.into_iter().flatten().collect();
        let set = if set.is_empty() { "updated_at = updated_at".to_owned() } else { set.join(", ") };
        format!("UPDATE{on_conflict} jobs SET {set}")
    })
}

/// What must be true of a job that somebody changed by hand.
fn check_change(before: &Job, after: &Job) -> Result<(), TestCaseError> {
    prop_assert_eq!(after.violations(), Vec::<String>::new());
    prop_assert!(after.entries.starts_with(&before.entries), "an entry changed");
    prop_assert!(after.attempts >= before.attempts, "attempts went down");
    prop_assert!(
        before.phase != Phase::Delivered || after.phase == Phase::Delivered,
        "delivery was taken back"
    );
    prop_assert_eq!((&after.account_id, after.cost), (&before.account_id, before.cost));
    Ok(())
}

#[test]
fn no_sequence_of_updates_by_hand_breaks_an_invariant() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let updates = proptest::collection::vec((any_update(), 0_usize..7), 1..40);
    proptest!(ProptestConfig::with_cases(48), |(updates in updates)| {
        let place = Place::new();
        runtime.block_on(place.fill());
        let stranger = place.stranger();
        stranger.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF").unwrap();
        let mut before = runtime.block_on(place.all_jobs());
        for (update, job) in updates {
            // Refused or not, what stands afterwards is what counts.
            let _ = stranger.execute(&format!("{update} WHERE job_id = ?1"), [before[job].job_id.as_str()]);
            let after = runtime.block_on(place.all_jobs());
            for (before, after) in before.iter().zip(&after) {
                check_change(before, after)?;
            }
            before = after;
        }
    });
}

#[tokio::test]
async fn an_insert_by_hand_is_held_to_the_shape_of_an_id_and_to_the_most_attempts() {
    let place = Place::new();
    let file = place.stranger();
    let insert = |job_id: &str, account_id: &str, max_attempts: i64| {
        file.execute(
            "INSERT INTO jobs (job_id, account_id, cost, is_refunded, is_reclaimed, phase, attempts, max_attempts,
                               counted_events, created_at, updated_at, replayed)
             VALUES (?1, ?2, 1, 0, 0, 'running', 0, ?3, '[]', 0, 0, 0)",
            (job_id, account_id, max_attempts),
        )
    };
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
    for (number, text) in texts.map(str::to_owned).into_iter().chain([long(256), long(257)]).enumerate() {
        let is_id = JobId::new(text.as_str()).is_ok();
        let as_job = insert(&text, "a1", 5);
        assert_eq!(as_job.is_ok(), is_id, "job_id {text:?}: {as_job:?}");
        let as_account = insert(&format!("job {number}"), &text, 5);
        assert_eq!(as_account.is_ok(), is_id, "account_id {text:?}: {as_account:?}");
    }
    let most = i64::from(MAX_ATTEMPT);
    assert!(insert("at most", "a1", most).is_ok());
    assert!(insert("one more", "a1", most + 1).is_err());
}

#[tokio::test]
async fn a_job_that_cannot_be_read_hides_no_other_from_a_drain() {
    let place = Place::new();
    for id in ["a", "b", "c"] {
        place.ledger.charge(&charge(id), at(0)).await.unwrap();
    }
    place
        .stranger()
        .execute_batch(
            "PRAGMA ignore_check_constraints = ON;
             INSERT INTO jobs SELECT char(9), account_id, cost, 0, NULL, 0, NULL, NULL, phase, 0, 5, NULL, NULL, NULL,
                                     NULL, '[]', NULL, created_at, updated_at, 0 FROM jobs WHERE job_id = 'a'",
        )
        .unwrap();
    let page = |after| place.ledger.outstanding(Outstanding::SilentFirstAttempt, at(9), after, 2);
    let ids = |page: &[Found]| page.iter().map(|found| found.job_id.as_str().to_owned()).collect::<Vec<_>>();
    let first = page(None).await.unwrap();
    assert_eq!(ids(&first), ["a", "b"]);
    let second = page(Some(&first[1].cursor())).await.unwrap();
    assert_eq!(ids(&second), ["c"]);
}

#[tokio::test]
async fn the_ledger_view_shows_each_entry_by_its_name() {
    let place = Place::new();
    place.fill().await;
    let stranger = place.stranger();
    let mut statement =
        stranger.prepare("SELECT _id, amount FROM ledger WHERE job_id = 'reclaimed' ORDER BY _id").unwrap();
    let rows: Vec<(String, i64)> =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    let expected = [("reclaimed:charge", -40), ("reclaimed:reclaim", -40), ("reclaimed:refund", 40)];
    assert_eq!(rows, expected.map(|(id, amount)| (id.to_owned(), amount)));
}

// ---------------------------------------------------------------- the file

#[tokio::test]
async fn a_file_is_opened_again_with_all_that_is_in_it() {
    let place = Place::new();
    place.fill().await;
    let again = SqliteLedger::new(Arc::new(Embedded::open(place.path()).unwrap()));
    assert_eq!(again.job(&job_id("reclaimed")).await.unwrap().unwrap(), place.job("reclaimed").await);
    let marks: (i32, i32, String) = place
        .stranger()
        .query_row(
            "SELECT a.*, u.*, j.* FROM pragma_application_id a, pragma_user_version u, pragma_journal_mode j",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!(marks, (APPLICATION_ID, SCHEMA_VERSION, "wal".to_owned()));
}

#[test]
fn a_file_with_a_newer_layout_is_refused() {
    let place = Place::new();
    place.stranger().pragma_update(None, "user_version", SCHEMA_VERSION + 1).unwrap();
    let error = Embedded::open(place.path()).unwrap_err();
    assert!(matches!(error, EmbeddedError::Newer { found, .. } if found == SCHEMA_VERSION + 1), "{error}");
}

#[test]
fn another_program_s_file_is_refused_and_left_as_it_was() {
    let directory = TempDir::new().unwrap();
    let tables = directory.path().join("tables.db");
    Connection::open(&tables).unwrap().execute_batch("CREATE TABLE notes (text)").unwrap();
    let marked = directory.path().join("marked.db");
    Connection::open(&marked).unwrap().pragma_update(None, "application_id", 7).unwrap();
    for path in [tables, marked] {
        let before = std::fs::read(&path).unwrap();
        let error = Embedded::open(&path).unwrap_err();
        assert!(matches!(error, EmbeddedError::Foreign { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_as_it_was() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("notes.txt");
    let text = "not a database ".repeat(100);
    std::fs::write(&path, &text).unwrap();
    let error = Embedded::open(&path).unwrap_err();
    assert!(matches!(error, EmbeddedError::NotSqlite { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_place_where_no_file_can_be_is_refused() {
    let directory = TempDir::new().unwrap();
    for path in [directory.path().join("missing/recoup.db"), directory.path().to_owned(), PathBuf::new()] {
        let error = Embedded::open(&path).unwrap_err();
        assert!(matches!(error, EmbeddedError::CannotOpen { .. }), "{error}");
    }
}

// ---------------------------------------------------------------- several processes

/// Runs `work` on as many threads, each with a connection of its own, all at once.
fn race<T: Send>(racers: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(racers);
    std::thread::scope(|scope| {
        let racer = |n| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(n)
            })
        };
        let threads: Vec<_> = (0..racers).map(racer).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

#[test]
fn a_new_file_may_be_opened_by_many_at_once() {
    for _ in 0..20 {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("recoup.db");
        for opened in race(8, |_| Embedded::open(&path).map(drop)) {
            opened.unwrap();
        }
    }
}

#[test]
fn of_many_connections_that_report_one_failure_one_refunds() {
    let place = Place::new();
    block_on(place.ledger.charge(&charge("j"), at(0))).unwrap();
    let path = place.path();
    let outcomes = race(16, |_| {
        let ledger = SqliteLedger::new(Arc::new(Embedded::open(&path).unwrap()));
        block_on(ledger.record_failure(&job_id("j"), None, &failure(1), at(10))).unwrap().outcome
    });
    let refunds = outcomes.iter().filter(|outcome| **outcome == FailureOutcome::Refunded).count();
    assert_eq!(refunds, 1, "{outcomes:?}");
    assert_eq!(block_on(place.job("j")).violations(), Vec::<String>::new());
}

#[test]
fn of_many_connections_that_charge_one_job_one_charges() {
    let place = Place::new();
    let path = place.path();
    let outcomes = race(16, |_| {
        let ledger = SqliteLedger::new(Arc::new(Embedded::open(&path).unwrap()));
        block_on(ledger.charge(&charge("j"), at(0))).unwrap().outcome
    });
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == ChargeOutcome::Charged).count(), 1);
    assert_eq!(block_on(place.job("j")).net, -40);
}

#[test]
fn of_many_connections_that_drain_each_entry_is_claimed_by_one() {
    let place = Place::new();
    let queue = SqliteQueue::new(place.store.clone());
    let entries: Vec<RetryEntry> = (0..50).map(|n| retry(&format!("j{n}"), 0)).collect();
    block_on(queue.park_missing(&entries, at(0))).unwrap();
    let path = place.path();
    let claims = race(8, |_| {
        let queue = SqliteQueue::new(Arc::new(Embedded::open(&path).unwrap()));
        block_on(queue.claim_due(at(10), Duration::from_secs(60), 10)).unwrap()
    });
    let claimed: HashSet<Vec<u8>> = claims.iter().flatten().map(|claim| claim.member.clone()).collect();
    assert_eq!(claims.iter().flatten().count(), 50);
    assert_eq!(claimed.len(), 50);
}

#[tokio::test]
async fn a_file_that_somebody_else_keeps_locked_is_unavailable_and_works_again_after() {
    let place = Place::new();
    let stranger = place.stranger();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = place.ledger.charge(&charge("j"), at(0)).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert_eq!(place.ledger.job(&job_id("j")).await.unwrap(), None, "readers do not wait");
    stranger.execute_batch("ROLLBACK").unwrap();
    place.ledger.charge(&charge("j"), at(0)).await.unwrap();
}

// ---------------------------------------------------------------- groups of commits

fn retry(id: &str, due: i64) -> RetryEntry {
    RetryEntry { job_id: job_id(id), attempts: 1, not_before: at(due) }
}

/// How many jobs another process sees.
fn seen_by(stranger: &Connection) -> i64 {
    stranger.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_group_is_seen_by_others_when_it_is_committed_and_as_a_whole() {
    let place = Place::new();
    let stranger = place.stranger();
    place.store.begin_group().unwrap();
    place.fill().await;
    assert_eq!(place.all_jobs().await.len(), 7, "the group sees itself");
    assert_eq!(seen_by(&stranger), 0);
    place.store.commit_group().unwrap();
    assert_eq!(seen_by(&stranger), 7);
}

#[tokio::test]
async fn a_file_can_be_opened_and_read_while_a_group_is_open() {
    let place = Place::new();
    place.ledger.charge(&charge("before"), at(0)).await.unwrap();
    place.store.begin_group().unwrap();
    place.ledger.charge(&charge("within"), at(0)).await.unwrap();
    let reader = SqliteLedger::new(Arc::new(Embedded::open(place.path()).unwrap()));
    assert!(reader.job(&job_id("before")).await.unwrap().is_some());
    assert!(reader.job(&job_id("within")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_group_that_is_not_committed_is_lost_with_its_process() {
    let Place { directory, ledger, store } = Place::new();
    store.begin_group().unwrap();
    ledger.charge(&charge("j"), at(0)).await.unwrap();
    drop((ledger, store));
    assert_eq!(seen_by(&Connection::open(directory.path().join("recoup.db")).unwrap()), 0);
}

#[tokio::test]
async fn a_refused_call_leaves_its_group_usable() {
    let place = Place::new();
    place.store.begin_group().unwrap();
    place.ledger.charge(&charge("j"), at(0)).await.unwrap();
    let unknown = place.ledger.record_success(&job_id("nobody"), None, at(1)).await;
    assert!(matches!(unknown, Err(LedgerError::UnknownJob(_))), "{unknown:?}");
    let other = AccountId::new("a2").unwrap();
    let mismatch = place.ledger.record_success(&job_id("j"), Some(&other), at(1)).await;
    assert!(matches!(mismatch, Err(LedgerError::AccountMismatch { .. })), "{mismatch:?}");
    place.ledger.record_success(&job_id("j"), None, at(1)).await.unwrap();
    place.store.commit_group().unwrap();
    assert_eq!(place.job("j").await.phase, Phase::Delivered);
}

#[tokio::test]
async fn a_call_that_fails_half_way_in_a_group_takes_back_what_it_did() {
    let place = Place::new();
    let fails = "CREATE TRIGGER fails BEFORE INSERT ON ready BEGIN SELECT RAISE(ABORT, 'no'); END";
    place.stranger().execute_batch(fails).unwrap();
    let queue = SqliteQueue::new(place.store.clone());
    place.store.begin_group().unwrap();
    queue.park_missing(&[retry("j", 0)], at(0)).await.unwrap();
    let claims = queue.claim_due(at(10), Duration::from_secs(60), 10).await.unwrap();
    let refused = queue.hand_over(&claims[0], List::Ready, "{}").await;
    assert!(matches!(refused, Err(QueueError::Refused { .. })), "{refused:?}");
    place.store.commit_group().unwrap();
    assert!(queue.acknowledge(&claims[0]).await.unwrap(), "the claim is still ours");
}

#[tokio::test]
async fn a_group_that_sqlite_rolled_back_answers_nothing_until_its_end_has_said_so() {
    let place = Place::new();
    let fails = "CREATE TRIGGER fails BEFORE INSERT ON retry BEGIN SELECT RAISE(ROLLBACK, 'as a full disk does'); END";
    place.stranger().execute_batch(fails).unwrap();
    let queue = SqliteQueue::new(place.store.clone());
    place.store.begin_group().unwrap();
    place.ledger.charge(&charge("j"), at(0)).await.unwrap();
    queue.push(&retry("j", 0)).await.unwrap_err();
    let error = place.ledger.charge(&charge("k"), at(0)).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(place.store.begin_group().is_err(), "a new group would hide that this one is lost");
    let error = place.store.commit_group().unwrap_err();
    assert!(matches!(error, EmbeddedError::Unavailable { .. }), "{error}");
    assert_eq!(seen_by(&place.stranger()), 0);
    place.ledger.charge(&charge("k"), at(0)).await.unwrap();
    assert_eq!(seen_by(&place.stranger()), 1, "without a group each call commits again");
}

#[test]
fn groups_do_not_nest_and_do_not_end_twice() {
    let place = Place::new();
    assert!(place.store.commit_group().is_err());
    place.store.begin_group().unwrap();
    assert!(place.store.begin_group().is_err());
    place.store.commit_group().unwrap();
    assert!(place.store.commit_group().is_err());
    place.store.begin_group().unwrap();
}
