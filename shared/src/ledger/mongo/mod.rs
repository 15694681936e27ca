//! The ledger in MongoDB: one document a job, flags and entries in it together.
//!
//! A flag and its row change in one single-document write, so no crash can fall between them and no transaction is
//! needed. [`guards`] holds the writes, [`document`] the layout of a job, [`layout`] what the database itself
//! enforces, [`reader`] what people ask, [`import`] takes over what an earlier layout left.
//!
//! Cost: a write whose guard holds is one round trip, acknowledged by the journals of a majority. One whose guard
//! refuses is two, since a read then explains; it reads what a majority holds, so that `duplicate` is never answered
//! on the strength of a write that may yet be rolled back. Between the two another writer may have made room for the
//! write that was refused (a charge arrives just after its failure); it is then tried again, until the bound.
//!
//! A guarded write answers with the document as it stands after it, and outcome and job are read from that: nothing
//! is worked out a second time. The document before would serve on MongoDB, but not every server that speaks its
//! protocol hands out the very one that the write found; the one after is the write's own. What it does not show by
//! itself, whether this failure or an earlier one was refunded, stands in it as `last_error.refunded`.
//!
//! The driver repeats a write once by itself where the connection broke (unless the URI says `retryWrites=false`);
//! the server recognises the repetition by its transaction number and answers as before.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use mongodb::{Collection, Database};

use self::errors::{STORE, from_driver, is_duplicate_key, unavailable};
use super::{Applied, Cursor, Found, Ledger, LedgerError, Outstanding, check_account};
use crate::backoff::Delays;
use crate::clock::{Clock, Deadline, Stopwatch, SystemClock, Timestamp};
use crate::job::{AccountId, Job, JobId, Phase};
use crate::metrics::store_latency;
use crate::transition::{
    self, Charge, ChargeOutcome, DispatchOutcome, ExhaustedOutcome, Failure, FailureOutcome, RedriveOutcome,
    SilenceOutcome, Step, SuccessOutcome,
};

mod connect;
mod document;
mod errors;
mod guards;
mod import;
mod layout;
mod reader;

pub use connect::OpenError;
pub use import::{Mode, Note, Repair, Upgrade, Upgraded};

/// The collection of job documents.
const JOBS: &str = "jobs";
/// What any one call may take: MongoDB out of reach is an error within five seconds.
const CALL_BOUND: Duration = Duration::from_millis(4_500);
/// The first wait before a write is tried again that another writer has made room for; each further one is double.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest of these waits.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// How often a page of outstanding jobs is filled up where some of them cannot be read.
const EXTRA_PAGES: usize = 10;

/// The ledger in a MongoDB database. Cheap to clone; clones share one pool of connections.
#[derive(Clone)]
pub struct MongoLedger {
    database: Database,
    jobs: Collection<Document>,
}

impl fmt::Debug for MongoLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoLedger").field("database", &self.database.name()).finish_non_exhaustive()
    }
}

impl MongoLedger {
    /// Takes a connection string. Connects with the first operation only, so a server that is down is no error here;
    /// the name of a `mongodb+srv` address is resolved.
    ///
    /// # Errors
    /// [`OpenError`], whose message names `MONGODB_URI` and never shows it.
    pub async fn open(uri: &str) -> Result<Self, OpenError> {
        let database = connect::connect(uri).await?;
        let jobs = database.collection(JOBS);
        Ok(Self { database, jobs })
    }

    /// The job as a majority holds it.
    async fn read(&self, job_id: &JobId) -> Result<Option<Job>, LedgerError> {
        let found = self.jobs.find_one(doc! { "_id": job_id.as_str() }).await.map_err(|e| from_driver(&e))?;
        found.as_ref().map(document::read_job).transpose().map_err(LedgerError::from)
    }

    /// One guarded write. `None`: no such job. `guard` and `effect` are the rule in the database's words, `written`
    /// reads the outcome where the guard held, and `rule` is the rule itself, for where it did not.
    async fn write<O>(
        &self,
        who: Who<'_>,
        guard: Document,
        effect: Vec<Document>,
        written: impl Fn(&Document, &Job) -> O + Send + Sync,
        rule: impl Fn(&Job) -> Step<O> + Send + Sync,
    ) -> Result<Option<Applied<O>>, LedgerError>
    where
        O: Send,
    {
        bounded(async {
            let mut pauses = Pauses::default();
            loop {
                let write = self.jobs.find_one_and_update(guard.clone(), effect.clone());
                let after =
                    write.return_document(ReturnDocument::After).await.map_err(|e| from_driver(&e))?;
                if let Some(after) = after {
                    let job = document::read_job(&after)?;
                    return Ok(Some(Applied { outcome: written(&after, &job), job }));
                }
                let Some(job) = self.read(who.job_id).await? else { return Ok(None) };
                check_account(&job, who.account_id)?;
                let step = rule(&job);
                if step.after.is_none() {
                    return Ok(Some(Applied { outcome: step.outcome, job }));
                }
                pauses.next().await;
            }
        })
        .await
    }

    /// A row whose guard cannot hold for these arguments: only the read that explains.
    async fn explain<O>(
        &self,
        job_id: &JobId,
        rule: impl Fn(&Job) -> Step<O> + Send + Sync,
    ) -> Result<Option<Applied<O>>, LedgerError>
    where
        O: Send,
    {
        let found = bounded(self.read(job_id)).await?;
        Ok(found.map(|job| Applied { outcome: rule(&job).outcome, job }))
    }
}

/// Whose job a command is about.
#[derive(Clone, Copy)]
struct Who<'a> {
    job_id: &'a JobId,
    account_id: Option<&'a AccountId>,
}

impl<'a> Who<'a> {
    fn job(job_id: &'a JobId) -> Self {
        Self { job_id, account_id: None }
    }
}

/// Runs one call within [`CALL_BOUND`].
async fn bounded<T>(call: impl Future<Output = Result<T, LedgerError>> + Send) -> Result<T, LedgerError> {
    let watch = Stopwatch::start();
    let answer = Deadline::after(CALL_BOUND).bound(call).await;
    store_latency(STORE, watch.elapsed());
    answer.unwrap_or_else(|| Err(unavailable(format!("no answer within {} ms", CALL_BOUND.as_millis()))))
}

/// The waits between tries; what ends them is [`CALL_BOUND`].
struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Pauses {
    /// Waits in real time: what it waits for is the server, which no virtual clock moves.
    async fn next(&mut self) {
        SystemClock.sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

fn known<T>(found: Option<T>, job_id: &JobId) -> Result<T, LedgerError> {
    found.ok_or_else(|| LedgerError::UnknownJob(job_id.clone()))
}

impl Ledger for MongoLedger {
    async fn charge(&self, charge: &Charge, now: Timestamp) -> Result<Applied<ChargeOutcome>, LedgerError> {
        let job = transition::charged(charge, now);
        let document = document::write_job(&job);
        bounded(async {
            let mut pauses = Pauses::default();
            loop {
                match self.jobs.insert_one(&document).await {
                    Ok(_) => return Ok(Applied { outcome: ChargeOutcome::Charged, job }),
                    Err(error) if is_duplicate_key(&error) => {}
                    Err(error) => return Err(from_driver(&error)),
                }
                if let Some(job) = self.read(&charge.job_id).await? {
                    return Ok(Applied { outcome: transition::charged_before(&job, charge), job });
                }
                // The other charge is written and not yet held by a majority.
                pauses.next().await;
            }
        })
        .await
    }

    async fn record_failure(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        failure: &Failure,
        now: Timestamp,
    ) -> Result<Applied<FailureOutcome>, LedgerError> {
        let guard = guards::failure_guard(job_id, account_id, failure);
        let effect = guards::failure_effect(failure, now);
        let rule = |job: &Job| transition::failure(job, failure, now);
        let written = |document: &Document, _: &Job| {
            if document::refunded_last(document) {
                FailureOutcome::Refunded
            } else {
                FailureOutcome::FailureRecorded
            }
        };
        known(self.write(Who { job_id, account_id }, guard, effect, written, rule).await?, job_id)
    }

    async fn record_success(
        &self,
        job_id: &JobId,
        account_id: Option<&AccountId>,
        now: Timestamp,
    ) -> Result<Applied<SuccessOutcome>, LedgerError> {
        let guard = guards::success_guard(job_id, account_id);
        let effect = guards::success_effect(now);
        let rule = |job: &Job| transition::success(job, now);
        let written = |_: &Document, job: &Job| {
            if job.is_reclaimed { SuccessOutcome::Reclaimed } else { SuccessOutcome::Delivered }
        };
        known(self.write(Who { job_id, account_id }, guard, effect, written, rule).await?, job_id)
    }

    async fn dispatch(
        &self,
        job_id: &JobId,
        attempts: u32,
        ran_out: bool,
        now: Timestamp,
    ) -> Result<Option<Applied<DispatchOutcome>>, LedgerError> {
        let rule = |job: &Job| transition::dispatch(job, attempts, ran_out, now);
        if attempts == 0 {
            return self.explain(job_id, rule).await;
        }
        let guard = guards::dispatch_guard(job_id, attempts);
        let written = |_: &Document, job: &Job| {
            let set_aside = job.phase == Phase::DeadLettered;
            if set_aside { DispatchOutcome::DeadLettered } else { DispatchOutcome::Dispatched }
        };
        self.write(Who::job(job_id), guard, guards::dispatch_effect(now), written, rule).await
    }

    async fn hand_over_done(
        &self,
        job_id: &JobId,
        attempts: u32,
        now: Timestamp,
    ) -> Result<bool, LedgerError> {
        let guard = guards::hand_over_guard(job_id, attempts);
        let rule = |job: &Job| transition::hand_over_done(job, attempts, now);
        let effect = guards::hand_over_effect(now);
        let done = self.write(Who::job(job_id), guard, effect, |_, _| true, rule).await?;
        Ok(done.is_some_and(|done| done.outcome))
    }

    async fn claims_exhausted(
        &self,
        job_id: &JobId,
        attempts: u32,
        first_claim: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Applied<ExhaustedOutcome>>, LedgerError> {
        let rule = |job: &Job| transition::claims_exhausted(job, attempts, first_claim, now);
        if attempts == 0 {
            return self.explain(job_id, rule).await;
        }
        let guard = guards::exhausted_guard(job_id, attempts, first_claim);
        let effect = guards::exhausted_effect(now);
        self.write(Who::job(job_id), guard, effect, |_, _| ExhaustedOutcome::DeadLettered, rule).await
    }

    async fn no_signal(
        &self,
        job_id: &JobId,
        k: u32,
        timeout: Duration,
        delays: &Delays,
        now: Timestamp,
    ) -> Result<Applied<SilenceOutcome>, LedgerError> {
        let rule = |job: &Job| transition::no_signal(job, k, timeout, delays, now);
        if k == 0 {
            return known(self.explain(job_id, rule).await?, job_id);
        }
        let guard = guards::silence_guard(job_id, k, now.minus(timeout));
        let effect = guards::failure_effect(&transition::silence(k, delays), now);
        let written = |document: &Document, _: &Job| {
            if document::refunded_last(document) {
                SilenceOutcome::Refunded
            } else {
                SilenceOutcome::FailureRecorded
            }
        };
        known(self.write(Who::job(job_id), guard, effect, written, rule).await?, job_id)
    }

    async fn redrive(
        &self,
        job_id: &JobId,
        allowance: u32,
        now: Timestamp,
    ) -> Result<Applied<RedriveOutcome>, LedgerError> {
        let rule = |job: &Job| transition::redrive(job, allowance, now);
        let guard = guards::redrive_guard(job_id);
        let effect = guards::redrive_effect(allowance, now);
        let written = |_: &Document, _: &Job| RedriveOutcome::Redriven;
        known(self.write(Who::job(job_id), guard, effect, written, rule).await?, job_id)
    }

    /// One query on `_id`, however many retries: the caller's page bounds it.
    async fn at_cap(&self, retries: &[(JobId, u32)]) -> Result<HashSet<(JobId, u32)>, LedgerError> {
        if retries.is_empty() {
            return Ok(HashSet::new());
        }
        let ids: Vec<&str> = retries.iter().map(|(job_id, _)| job_id.as_str()).collect();
        let filter = doc! {
            "_id": { "$in": ids }, "schema": document::SCHEMA, "phase": Phase::RetryWaiting.as_str(),
        };
        let fields = doc! { "attempts": 1, "max_attempts": 1 };
        let found: Vec<Document> = bounded(async {
            let cursor = self.jobs.find(filter).projection(fields).await.map_err(|e| from_driver(&e))?;
            cursor.try_collect().await.map_err(|e| from_driver(&e))
        })
        .await?;
        // A document that cannot be read is at no cap: dispatching it will say what is wrong.
        let at_cap: HashSet<(&str, u32)> = found
            .iter()
            .filter_map(|document| {
                let attempts = document::count(document, "attempts").ok()?;
                let max_attempts = document::count(document, "max_attempts").ok()?;
                (attempts >= max_attempts).then_some((document.get_str("_id").ok()?, attempts))
            })
            .collect();
        let stands = |(job_id, attempts): &&(JobId, u32)| at_cap.contains(&(job_id.as_str(), *attempts));
        Ok(retries.iter().filter(stands).cloned().collect())
    }

    async fn outstanding(
        &self,
        kind: Outstanding,
        until: Timestamp,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Vec<Found>, LedgerError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        let mut after = after.cloned();
        for _ in 0..=EXTRA_PAGES {
            let missing = limit - found.len();
            let Page { filter, sort, by } = outstanding_page(kind, until, after.as_ref());
            let page = self.outstanding_documents(filter, sort, by, missing).await?;
            found.extend(page.iter().filter_map(|document| found_or_logged(document, by)));
            after = page.last().and_then(|document| raw_place(document, by));
            if page.len() < missing || found.len() == limit || after.is_none() {
                break;
            }
        }
        Ok(found)
    }
}

impl MongoLedger {
    async fn outstanding_documents(
        &self,
        filter: Document,
        sort: Document,
        by: &str,
        limit: usize,
    ) -> Result<Vec<Document>, LedgerError> {
        bounded(async {
            let find = self.jobs.find(filter).projection(doc! { "attempts": 1, by: 1 }).sort(sort);
            let cursor = find.limit(page_limit(limit)).await.map_err(|e| from_driver(&e))?;
            cursor.try_collect().await.map_err(|e| from_driver(&e))
        })
        .await
    }
}

/// A bounded page of one index.
struct Page {
    filter: Document,
    sort: Document,
    by: &'static str,
}

/// The page of jobs of this kind after a place in their index; the indexes are [`layout`]'s. Documents of an earlier
/// layout are passed over: they can be neither read nor written before they are imported. So are documents whose
/// `_id` is no string, which no place in the index could go on from.
///
/// A job that runs with `dispatched_at` set was last written when its hand-over was recorded, so its `updated_at` is
/// the same time, and the order of index (dispatched_at, updated_at, _id) is that of (dispatched_at, _id).
fn outstanding_page(kind: Outstanding, until: Timestamp, after: Option<&Cursor>) -> Page {
    let running = Phase::Running.as_str();
    let retried = doc! { "$gt": 0 };
    let (mut filter, sort, by) = match kind {
        Outstanding::OverdueRetry => {
            (doc! { "phase": Phase::RetryWaiting.as_str() }, doc! { "not_before": 1, "_id": 1 }, "not_before")
        }
        Outstanding::OpenHandOver => (
            doc! { "phase": running, "attempts": retried, "dispatched_at": { "$exists": false } },
            doc! { "updated_at": 1, "_id": 1 },
            "updated_at",
        ),
        Outstanding::SilentFirstAttempt => {
            let imported = doc! { "$exists": false };
            (
                doc! { "phase": running, "attempts": 0, "imported.at": imported },
                doc! { "created_at": 1, "_id": 1 },
                "created_at",
            )
        }
        Outstanding::SilentRetry => (
            doc! { "phase": running, "attempts": retried },
            doc! { "dispatched_at": 1, "updated_at": 1, "_id": 1 },
            "dispatched_at",
        ),
    };
    let mut times = doc! { "$lte": document::date(until) };
    if let Some(Cursor { at_ms, job_id }) = after {
        let at = Bson::DateTime(DateTime::from_millis(*at_ms));
        times.insert("$gte", at.clone());
        let further = doc! { by: { "$gt": at.clone() } };
        filter.insert("$or", [further, doc! { by: at, "_id": { "$gt": job_id } }].map(Bson::from).to_vec());
    }
    filter.insert(by, times);
    filter.insert("_id", doc! { "$type": "string" });
    filter.insert("schema", document::SCHEMA);
    Page { filter, sort, by }
}

fn read_found(document: &Document, by: &str) -> Result<Found, LedgerError> {
    let found = || {
        let job_id = document.get_str("_id").map_err(|_| "_id is not a string".to_owned())?;
        Ok(Found {
            job_id: JobId::new(job_id).map_err(|error| format!("_id {error}"))?,
            attempts: document::count(document, "attempts")?,
            at: document::time(document, by)?,
        })
    };
    found().map_err(|what| LedgerError::Unreadable { job_id: document::id_text(document), what })
}

/// What cannot be read costs its neighbours nothing.
fn found_or_logged(document: &Document, by: &str) -> Option<Found> {
    read_found(document, by)
        .inspect_err(
            |error| tracing::error!(job_id = document::id_text(document), %error, "a job is passed over"),
        )
        .ok()
}

/// The place just after this document, whatever else of it can be read.
fn raw_place(document: &Document, by: &str) -> Option<Cursor> {
    let at_ms = document.get_datetime(by).ok()?.timestamp_millis();
    Some(Cursor { at_ms, job_id: document.get_str("_id").ok()?.to_owned() })
}

fn page_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
