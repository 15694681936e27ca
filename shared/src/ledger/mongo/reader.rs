//! What people ask: stories, balances, statements, pages of jobs, totals.
//!
//! Sums and rows come from the entries. The server adds up a job's entries with `$reduce`, since a bare `$sum` over
//! the path of an array is not computed the same way by every compatible server, and the jobs' sums as decimals:
//! their 34 digits hold any sum exactly, where one of 64-bit integers turns into a double (or, elsewhere, an error)
//! once no such integer holds it. Whether it fits is then for us to say.

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};

use super::errors::{from_driver, unavailable};
use super::{MongoLedger, bounded, document, page_limit};
use crate::clock::{Deadline, Timestamp};
use crate::job::{AccountId, EntryType, Job, JobId, LedgerRow, Phase};
use crate::ledger::{JobOrFault, LedgerError, LedgerReader, Totals};

/// What a report over many jobs may take. A person waits for it, so it is bounded by patience, not by an
/// invocation; before it starts, a ping within the ordinary bound finds out whether the server is there at all.
const REPORT_BOUND: Duration = Duration::from_secs(15 * 60);

/// The types that an `_id` may have where no validator stood in the way: a string, as it must be, and the others.
pub(super) const ID_TYPES: [&str; 9] =
    ["string", "null", "bool", "number", "date", "timestamp", "objectId", "binData", "object"];

impl MongoLedger {
    /// Whether the server answers; within the bound of one call.
    pub(super) async fn ping(&self) -> Result<(), LedgerError> {
        bounded(async {
            self.database.run_command(doc! { "ping": 1 }).await.map_err(|e| from_driver(&e)).map(|_| ())
        })
        .await
    }

    async fn report(
        &self,
        pipeline: Vec<Document>,
        mut each: impl FnMut(Document) -> Result<(), LedgerError> + Send,
    ) -> Result<(), LedgerError> {
        self.ping().await?;
        let run = async {
            let aggregate = self.jobs.aggregate(pipeline).allow_disk_use(true);
            let mut rows = aggregate.await.map_err(|e| from_driver(&e))?;
            while let Some(row) = rows.try_next().await.map_err(|e| from_driver(&e))? {
                each(row)?;
            }
            Ok(())
        };
        let done = Deadline::after(REPORT_BOUND).bound(run).await;
        done.unwrap_or_else(|| Err(unavailable(format!("not done within {} s", REPORT_BOUND.as_secs()))))
    }

    /// The faults of documents whose `_id` is no string, `most` at most.
    async fn with_other_ids(&self, most: usize) -> Result<Vec<(String, JobOrFault)>, LedgerError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let filter = doc! { "_id": { "$type": ID_TYPES[1..].to_vec() } };
        let mut faults: Vec<_> = self.page(filter.clone(), most).await?.iter().map(read_with_id).collect();
        if faults.len() == most {
            let count =
                bounded(async { self.jobs.count_documents(filter).await.map_err(|e| from_driver(&e)) })
                    .await?;
            let more = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(most);
            if more > 0 {
                faults.pop();
                let job_id = format!("({} documents more)", more + 1);
                let what = "_id is not a string".to_owned();
                faults.push((job_id.clone(), Err(LedgerError::Unreadable { job_id, what })));
            }
        }
        Ok(faults)
    }

    async fn page(&self, filter: Document, limit: usize) -> Result<Vec<Document>, LedgerError> {
        bounded(async {
            let find = self.jobs.find(filter).sort(doc! { "_id": 1 }).limit(page_limit(limit));
            find.await.map_err(|e| from_driver(&e))?.try_collect().await.map_err(|e| from_driver(&e))
        })
        .await
    }
}

impl LedgerReader for MongoLedger {
    async fn job(&self, job_id: &JobId) -> Result<Option<Job>, LedgerError> {
        bounded(self.read(job_id)).await
    }

    async fn balance(&self, account_id: &AccountId) -> Result<i64, LedgerError> {
        let pipeline = vec![
            doc! { "$match": { "account_id": account_id.as_str() } },
            doc! { "$group": { "_id": Bson::Null, "sum": exact(sum_of_entries()) } },
        ];
        let mut balance = 0;
        self.report(pipeline, |row| {
            balance = sum(&row, "sum", || format!("account {account_id:?}"))?;
            Ok(())
        })
        .await?;
        Ok(balance)
    }

    async fn statement(
        &self,
        account_id: &AccountId,
        until: Option<Timestamp>,
        each: &mut (dyn FnMut(LedgerRow) + Send),
    ) -> Result<(), LedgerError> {
        let mut pipeline = vec![
            doc! { "$match": { "account_id": account_id.as_str() } },
            doc! { "$project": { "account_id": 1, "entries": 1 } },
            doc! { "$unwind": { "path": "$entries", "includeArrayIndex": "position" } },
        ];
        if let Some(until) = until {
            pipeline.push(doc! { "$match": { "entries.created_at": { "$lt": document::date(until) } } });
        }
        pipeline.extend([
            doc! { "$sort": { "entries.created_at": 1, "position": 1, "_id": 1 } },
            doc! { "$project": { "account_id": 1, "entry": "$entries" } },
        ]);
        self.report(pipeline, |row| {
            each(document::read_row(&row)?);
            Ok(())
        })
        .await
    }

    /// In front of the first page of all jobs come the faults of documents whose `_id` is no string at all: they
    /// stand in no order with the others. They take up half of the page at most, so that a page which is full ends in
    /// a job to go on from; where there are more, the last of these faults counts the rest.
    async fn jobs(
        &self,
        phase: Option<Phase>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, JobOrFault)>, LedgerError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut filter = doc! { "_id": { "$type": "string" } };
        if let Some(after) = after {
            filter.insert("_id", doc! { "$gt": after });
        }
        if let Some(phase) = phase {
            filter.insert("phase", phase.as_str());
        }
        let is_first = phase.is_none() && after.is_none();
        let mut found = if is_first { self.with_other_ids(limit / 2).await? } else { Vec::new() };
        let jobs = self.page(filter, limit - found.len()).await?;
        found.extend(jobs.iter().map(read_with_id));
        Ok(found)
    }

    async fn totals(&self) -> Result<Totals, LedgerError> {
        let mut totals = Totals::default();
        self.report(totals_pipeline(), |row| {
            totals = read_totals(&row)?;
            Ok(())
        })
        .await?;
        Ok(totals)
    }

    /// A report, since it looks at every job of a replay.
    async fn any_live_job(&self) -> Result<Option<String>, LedgerError> {
        let pipeline = vec![
            doc! { "$match": { "replayed": { "$ne": true } } },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 1 } },
        ];
        let mut live = None;
        self.report(pipeline, |job| {
            live = Some(document::id_text(&job));
            Ok(())
        })
        .await?;
        Ok(live)
    }
}

fn read_with_id(document: &Document) -> (String, JobOrFault) {
    (document::id_text(document), document::read_job(document).map_err(LedgerError::from))
}

/// The sum of a document's entries.
pub(super) fn sum_of_entries() -> Document {
    reduced(doc! { "$add": ["$$value", "$$this.amount"] })
}

/// The sum of a document's entries of one type.
fn sum_of(kind: EntryType) -> Document {
    let is_it = doc! { "$eq": ["$$this.type", kind.as_str()] };
    reduced(doc! { "$add": ["$$value", { "$cond": [is_it, "$$this.amount", 0_i64] }] })
}

/// The sum over jobs of a 64-bit expression, as a decimal.
fn exact(of_a_job: Document) -> Document {
    doc! { "$sum": { "$toDecimal": of_a_job } }
}

fn reduced(step: Document) -> Document {
    doc! { "$reduce": { "input": "$entries", "initialValue": 0_i64, "in": step } }
}

/// By account first, so that accounts are counted by the same pass.
fn totals_pipeline() -> Vec<Document> {
    let counted_if = |phase: Phase| doc! { "$cond": [{ "$eq": ["$phase", phase.as_str()] }, 1_i64, 0_i64] };
    let unpaid = doc! { "$add": ["$cost", sum_of_entries()] };
    let is_delivered = doc! { "$eq": ["$phase", Phase::Delivered.as_str()] };
    vec![
        doc! { "$group": {
            "_id": "$account_id",
            "jobs": { "$sum": 1_i64 },
            "charge": exact(sum_of(EntryType::Charge)),
            "refund": exact(sum_of(EntryType::Refund)),
            "reclaim": exact(sum_of(EntryType::Reclaim)),
            "waiting": { "$sum": counted_if(Phase::RetryWaiting) },
            "given_away": exact(doc! { "$cond": [is_delivered, unpaid, 0_i64] }),
        } },
        doc! { "$group": {
            "_id": Bson::Null,
            "jobs": { "$sum": "$jobs" },
            "accounts": { "$sum": 1_i64 },
            "charge": { "$sum": "$charge" },
            "refund": { "$sum": "$refund" },
            "reclaim": { "$sum": "$reclaim" },
            "waiting": { "$sum": "$waiting" },
            "given_away": { "$sum": "$given_away" },
        } },
    ]
}

fn read_totals(row: &Document) -> Result<Totals, LedgerError> {
    let whose = || "all accounts".to_owned();
    let credits = |name: &str| sum(row, name, whose);
    let count = |name: &str| {
        let counted = document::integer(row, name).map(i64::unsigned_abs);
        counted.map_err(|what| LedgerError::Unreadable { job_id: whose(), what })
    };
    let positive = |name: &str| credits(name)?.checked_neg().ok_or_else(|| LedgerError::Overflow(whose()));
    Ok(Totals {
        jobs: count("jobs")?,
        accounts: count("accounts")?,
        charged: positive("charge")?,
        refunded: credits("refund")?,
        reclaimed: positive("reclaim")?,
        waiting: count("waiting")?,
        given_away: credits("given_away")?,
    })
}

/// A sum that the server made of decimals.
fn sum(row: &Document, name: &str, whose: impl Fn() -> String) -> Result<i64, LedgerError> {
    let Some(Bson::Decimal128(sum)) = row.get(name) else {
        let what = format!("the sum {name} is not a decimal: an amount is no number");
        return Err(LedgerError::Unreadable { job_id: whose(), what });
    };
    // The decimal of an integer with up to 34 digits is written without an exponent.
    sum.to_string().parse().map_err(|_| LedgerError::Overflow(whose()))
}
