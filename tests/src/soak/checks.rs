//! What must be true once everything has come to rest.
//!
//! The harness's books say what was charged and what was reported. From that alone follows what each job must have
//! come to: reported delivered at least once, it is delivered and paid for once; only failures, it is refunded once
//! and set aside; nothing at all, its silence was a failure. No rule of the ledger's inside is used, besides the
//! invariants that it shows to everybody.

use std::collections::BTreeMap;
use std::fmt;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use recoup::job::{EntryType, Job, Phase};
use recoup::ledger::LedgerReader;
use recoup::transition::NO_SIGNAL;
use serde_json::Value;

use super::books::{Book, Books};
use super::world::{MAX_ATTEMPTS, PREFIX, World};
use crate::servers;

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Invariants 1, 2, 3 or 6, as one document shows them.
    Invariant,
    /// An entry that was seen changed or went away.
    EntryChanged,
    /// Attempts went down, or a delivery was taken back.
    WentBack,
    /// A job that was charged is not there.
    JobLost,
    /// A success was reported, and the job is not delivered, or not paid for exactly once.
    DeliveryLost,
    /// Only failures were reported, or nothing, and the job is not refunded exactly once.
    NotRefunded,
    /// Something in the ledger or the queue has no reason that the books know.
    Unaccounted,
    /// An event or a charge was never taken.
    EventStuck,
    /// A retry waits for ever, or an attempt runs for ever.
    NotAtRest,
    /// An entry stands in the queue for ever.
    QueueNotEmpty,
    /// The sums do not agree.
    Sums,
    /// `recoup audit` found something.
    Audit,
    /// A function panicked.
    Panic,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// What was broken.
    pub rule: Rule,
    /// By whom, and how.
    pub what: String,
}

impl Violation {
    /// A violation.
    pub fn new(rule: Rule, what: impl Into<String>) -> Self {
        Self { rule, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// All violations, those that were found on the way included, each once.
pub(super) async fn at_the_end(world: &World) -> Vec<Violation> {
    let jobs = all_jobs(world).await;
    let mut found = std::mem::take(&mut *world.violations());
    for job in jobs.values() {
        found.extend(world.seen().note(job.clone()));
    }
    for id in world.seen().missing_from(&jobs) {
        found.push(Violation::new(Rule::JobLost, format!("{id} was seen and is gone")));
    }
    found.extend(compare(&world.books(), &jobs));
    found.extend(world.ready().iter().filter_map(|message| stray(message, &jobs)));
    found.extend(dead_letters(world).await.iter().filter_map(|letter| stray_letter(letter, &jobs)));
    found.extend(sums(world, &jobs).await);
    found.extend(audit(world).await);
    count(world, &jobs);
    found.sort();
    found.dedup();
    found
}

/// # Panics
/// Where the server is not to be reached: no fault is on any more.
async fn all_jobs(world: &World) -> BTreeMap<String, Job> {
    let mut jobs = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = world.ledger.jobs(None, after.as_deref(), 500).await.expect("the server is well again");
        let Some((last, _)) = page.last() else { return jobs };
        after = Some(last.clone());
        for (id, job) in page {
            match job {
                Ok(job) => drop(jobs.insert(id, job)),
                Err(fault) => world
                    .violations()
                    .push(Violation::new(Rule::Invariant, format!("{id} cannot be read: {fault}"))),
            }
        }
    }
}

/// The books against the ledger.
pub fn compare(books: &Books, jobs: &BTreeMap<String, Job>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (id, book) in books.jobs() {
        match jobs.get(id) {
            Some(job) => found.extend(judge(book, job)),
            None if book.is_charged => found.push(Violation::new(Rule::JobLost, format!("{id} was charged"))),
            None => {}
        }
    }
    let unknown = jobs.keys().filter(|id| !books.jobs().contains_key(*id));
    found.extend(unknown.map(|id| Violation::new(Rule::Unaccounted, format!("{id} was never charged"))));
    found
}

/// One job against what is known of it.
fn judge(book: &Book, job: &Job) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut must = |holds: bool, rule: Rule, what: &str| {
        if !holds {
            let story = format!(
                "{} {what}: {} with attempts {} of {}, net {} of cost {}, {} successes, {} failures ({} final) reported",
                job.job_id,
                job.phase,
                job.attempts,
                job.max_attempts,
                job.net,
                book.cost,
                book.successes,
                book.failures,
                book.final_failures,
            );
            found.push(Violation::new(rule, story));
        }
    };
    let of = |kind: EntryType| job.entries.iter().filter(|entry| entry.kind == kind).count();
    let sum: i64 = job.entries.iter().map(|entry| entry.amount).sum();
    let is_delivered = job.phase == Phase::Delivered;
    let same_deal = job.account_id.as_str() == book.account && job.cost.credits() == book.cost;
    must(same_deal, Rule::Unaccounted, "was charged otherwise");
    must(of(EntryType::Charge) == 1, Rule::Invariant, "is not charged once");
    must(!matches!(job.phase, Phase::RetryWaiting | Phase::Running), Rule::NotAtRest, "is not at rest");
    if book.successes > 0 {
        must(is_delivered, Rule::DeliveryLost, "is not delivered");
        must(sum == -book.cost, Rule::DeliveryLost, "is not paid for once");
    } else {
        must(!is_delivered, Rule::Unaccounted, "is delivered, and nobody said so");
        must(sum == 0 && of(EntryType::Refund) == 1, Rule::NotRefunded, "is not refunded once");
    }
    let was_silent = job.last_error.as_ref().is_some_and(|error| error.reason == NO_SIGNAL);
    let has_failed = book.failures > 0 || was_silent;
    must(has_failed || !job.is_refunded, Rule::Unaccounted, "is refunded, and nobody reported a failure");
    must(
        job.phase != Phase::Failed || book.final_failures > 0,
        Rule::Unaccounted,
        "failed for good, and nobody said so",
    );
    found
}

/// A message that no dispatch accounts for: attempt k + 1 goes out after k failures.
fn stray(message: &str, jobs: &BTreeMap<String, Job>) -> Option<Violation> {
    let parsed: Value = serde_json::from_str(message).unwrap_or_default();
    let job = parsed["job_id"].as_str().and_then(|id| jobs.get(id));
    let is_known = job.is_some_and(|job| {
        parsed["account_id"] == job.account_id.as_str()
            && parsed["attempt"].as_u64().is_some_and(|k| (2..=u64::from(job.attempts) + 1).contains(&k))
    });
    (!is_known).then(|| Violation::new(Rule::Unaccounted, format!("no dispatch accounts for {message}")))
}

/// What stands in the dead-letter list, since Redis was emptied last.
async fn dead_letters(world: &World) -> Vec<String> {
    let mut redis = world.redis_connection().await.expect("Redis is well again");
    let mut command = redis::cmd("LRANGE");
    command.arg(format!("{PREFIX}:dead-letter")).arg(0).arg(-1);
    command.query_async(&mut redis).await.expect("Redis is well again")
}

/// A letter about no job, or about a job that was never at its first cap, which a redrive only raises. Nobody pushes
/// what is no entry.
fn stray_letter(letter: &str, jobs: &BTreeMap<String, Job>) -> Option<Violation> {
    let parsed: Value = serde_json::from_str(letter).unwrap_or_default();
    let job = parsed["job_id"].as_str().and_then(|id| jobs.get(id));
    let attempts = parsed["attempts"].as_u64().unwrap_or_default();
    let is_known = job.is_some_and(|job| match parsed["reason"].as_str() {
        Some("attempts_exhausted") => (u64::from(MAX_ATTEMPTS)..=u64::from(job.attempts)).contains(&attempts),
        Some("claims_exhausted") => (1..=u64::from(job.attempts)).contains(&attempts),
        Some(_) | None => false,
    });
    (!is_known).then(|| Violation::new(Rule::Unaccounted, format!("no job accounts for {letter}")))
}

/// The view `ledger`, the store's own totals and balances, against the books.
async fn sums(world: &World, jobs: &BTreeMap<String, Job>) -> Vec<Violation> {
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    for (id, book) in world.books().jobs() {
        if jobs.contains_key(id) {
            let paid = if book.successes > 0 { -book.cost } else { 0 };
            *expected.entry(book.account.clone()).or_default() += paid;
        }
    }
    let mut found = Vec::new();
    let mut must_be_equal = |what: &str, is: i64, should: i64| {
        if is != should {
            found.push(Violation::new(Rule::Sums, format!("{what} is {is}, and the books say {should}")));
        }
    };
    let group = doc! { "$group": {
        "_id": "$account_id", "sum": { "$sum": "$amount" }, "rows": { "$sum": 1_i64 },
    } };
    let view = world.database.collection::<Document>("ledger");
    let rows = view.aggregate([group]).await.expect("the server is well again");
    let rows: Vec<_> = rows.try_collect().await.expect("the server is well again");
    let entries: i64 = rows.iter().map(|row| whole(row, "rows")).sum();
    let held: usize = jobs.values().map(|job| job.entries.len()).sum();
    must_be_equal("the number of rows in the view", entries, i64::try_from(held).unwrap_or(i64::MAX));
    must_be_equal(
        "the number of accounts in the view",
        i64::try_from(rows.len()).unwrap_or(i64::MAX),
        i64::try_from(expected.len()).unwrap_or(i64::MAX),
    );
    for row in &rows {
        let account = row.get_str("_id").unwrap_or_default();
        let expected = *expected.get(account).unwrap_or(&0);
        must_be_equal(&format!("the view's sum of {account}"), whole(row, "sum"), expected);
    }
    let totals = world.ledger.totals().await.expect("the server is well again");
    must_be_equal("the credits given away", totals.given_away, 0);
    must_be_equal(
        "the balance",
        totals.refunded - totals.charged - totals.reclaimed,
        expected.values().sum(),
    );
    world.tally.add("end: entries", entries.unsigned_abs());
    found
}

/// A number, whichever of its integers the server answers with.
fn whole(row: &Document, field: &str) -> i64 {
    row.get_i64(field).or_else(|_| row.get_i32(field).map(i64::from)).expect("a sum of integers is one")
}

/// The command's own audit.
async fn audit(world: &World) -> Vec<Violation> {
    let output = tokio::process::Command::new(servers::binary("recoup"))
        .args(["audit", "--json"])
        .env_clear()
        .envs(world.own_environment())
        .kill_on_drop(true)
        .output()
        .await
        .expect("our own binary starts");
    if output.status.success() {
        return Vec::new();
    }
    let said = String::from_utf8_lossy(&output.stderr);
    vec![Violation::new(Rule::Audit, format!("{}, {}", output.status, said.trim()))]
}

fn count(world: &World, jobs: &BTreeMap<String, Job>) {
    let tally = &world.tally;
    for job in jobs.values() {
        tally.one("end: jobs");
        match job.phase {
            Phase::Delivered if job.is_reclaimed => tally.one("end: jobs delivered after a refund"),
            Phase::Delivered => tally.one("end: jobs delivered at once"),
            Phase::Failed => tally.one("end: jobs failed for good"),
            Phase::DeadLettered if job.attempts < job.max_attempts => {
                tally.one("end: jobs dead-lettered by claims that ran out");
            }
            Phase::DeadLettered => tally.one("end: jobs dead-lettered at their cap"),
            Phase::Running | Phase::RetryWaiting => tally.one("end: jobs not at rest"),
        }
    }
    let books = world.books();
    let (successes, failures) = books
        .jobs()
        .values()
        .fold((0, 0), |(successes, failures), book| (successes + book.successes, failures + book.failures));
    tally.add("event: reported success", successes);
    tally.add("event: reported failure", failures);
}

#[cfg(test)]
mod tests {
    use recoup::event::Signal;
    use recoup::transition;
    use serde_json::json;

    use super::*;
    use crate::ledger_suite::commands::{charge, failure_of};
    use crate::ledger_suite::{at, job_id};

    fn charged() -> Job {
        transition::charged(&charge(&job_id("j"), 40, 1), at(0))
    }

    fn refunded() -> Job {
        transition::failure(&charged(), &failure_of(1), at(1)).after.unwrap()
    }

    fn dead_lettered() -> Job {
        transition::dispatch(&refunded(), 1, false, at(2)).after.unwrap()
    }

    fn delivered(job: &Job) -> Job {
        transition::success(job, at(3)).after.unwrap()
    }

    fn books(signals: &[Signal]) -> Books {
        let mut books = Books::default();
        books.open("j", charged().account_id.as_str(), 40);
        books.charged("j");
        for signal in signals {
            books.reported(*signal, &json!({ "job_id": "j" }));
        }
        books
    }

    fn rules(signals: &[Signal], job: Option<Job>) -> Vec<Rule> {
        let jobs = job.map(|job| ("j".to_owned(), job)).into_iter().collect();
        compare(&books(signals), &jobs).into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_ledger_that_did_what_was_reported_has_no_violation() {
        use Signal::{Failed, Succeeded};
        assert_eq!(rules(&[Succeeded], Some(delivered(&charged()))), []);
        assert_eq!(rules(&[Failed, Succeeded], Some(delivered(&dead_lettered()))), []);
        assert_eq!(rules(&[Failed, Succeeded], Some(delivered(&charged()))), []);
        assert_eq!(rules(&[Failed], Some(dead_lettered())), []);
    }

    #[test]
    fn what_was_lost_or_made_up_is_found() {
        use Signal::{Failed, Succeeded};
        assert_eq!(rules(&[], None), [Rule::JobLost]);
        assert_eq!(rules(&[Succeeded], Some(dead_lettered()))[0], Rule::DeliveryLost);
        assert_eq!(rules(&[Failed], Some(charged())), [Rule::NotAtRest, Rule::NotRefunded]);
        assert_eq!(rules(&[Failed], Some(refunded())), [Rule::NotAtRest]);
        assert_eq!(rules(&[], Some(dead_lettered())), [Rule::Unaccounted]);
        assert!(rules(&[Failed], Some(delivered(&refunded()))).contains(&Rule::Unaccounted));
    }

    #[test]
    fn money_that_moved_twice_is_found() {
        let mut twice = delivered(&refunded());
        twice.entries.push(twice.entries[2]);
        assert_eq!(rules(&[Signal::Succeeded, Signal::Failed], Some(twice)), [Rule::DeliveryLost]);
        let mut twice = dead_lettered();
        twice.entries.push(twice.entries[1]);
        assert_eq!(rules(&[Signal::Failed], Some(twice)), [Rule::NotRefunded]);
    }

    #[test]
    fn a_dead_letter_is_known_by_its_job_and_attempts() {
        let mut job = dead_lettered();
        // Redriven after its first letter, and set aside again.
        (job.attempts, job.max_attempts) = (2 * MAX_ATTEMPTS, 2 * MAX_ATTEMPTS);
        let jobs = BTreeMap::from([("j".to_owned(), job)]);
        let letter = |reason: &str, job: &str, attempts: u32| {
            json!({"reason": reason, "job_id": job, "attempts": attempts}).to_string()
        };
        for attempts in [MAX_ATTEMPTS, 2 * MAX_ATTEMPTS] {
            assert_eq!(stray_letter(&letter("attempts_exhausted", "j", attempts), &jobs), None);
        }
        assert_eq!(stray_letter(&letter("claims_exhausted", "j", 1), &jobs), None);
        for bad in [
            letter("attempts_exhausted", "k", MAX_ATTEMPTS),
            letter("attempts_exhausted", "j", MAX_ATTEMPTS - 1),
            letter("attempts_exhausted", "j", 2 * MAX_ATTEMPTS + 1),
            letter("claims_exhausted", "j", 0),
            letter("malformed", "j", 1),
            "[]".to_owned(),
        ] {
            assert!(stray_letter(&bad, &jobs).is_some(), "{bad}");
        }
    }

    #[test]
    fn a_message_is_known_by_its_job_account_and_attempt() {
        let job = dead_lettered();
        let account = job.account_id.as_str().to_owned();
        let jobs = BTreeMap::from([("j".to_owned(), job)]);
        let message = |job: &str, attempt: u32| {
            json!({"job_id": job, "account_id": account, "attempt": attempt}).to_string()
        };
        assert_eq!(stray(&message("j", 2), &jobs), None);
        for bad in [message("j", 3), message("j", 1), message("k", 2), "{".to_owned()] {
            assert!(stray(&bad, &jobs).is_some(), "{bad}");
        }
    }
}
