//! The old ledger: collections of rows, which are read and kept, never dropped.

use std::collections::{HashMap, HashSet};

use futures_util::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::IndexOptions;
use mongodb::{Collection, IndexModel};

use super::super::MongoLedger;
use super::super::document::date;
use super::super::errors::from_driver;
use super::old::{job_of_row, read_row};
use super::plan::OldRow;
use super::{Mode, PAGE};
use crate::clock::Timestamp;
use crate::ledger::LedgerError;

/// The rows of one job that are looked at. Three is what a job can have; a job with many more is nobody's mistake in
/// a single row, and for a person.
pub(super) const MAX_ROWS_OF_A_JOB: usize = 16;
/// The mark on rows that a repair found to belong to no job.
const MARK: &str = "recoup_without_job_at";

/// The collections of old rows that there are.
pub(super) struct OldLedger<'a> {
    ledger: &'a MongoLedger,
    collections: Vec<Collection<Document>>,
    /// Whether amounts carry their sign. Somebody always pays, so where no amount at all is negative, the type alone
    /// says which way the credits go.
    signed: bool,
}

/// The rows of one job, up to [`MAX_ROWS_OF_A_JOB`].
#[derive(Default)]
pub(super) struct RowsOfJob {
    rows: Vec<OldRow>,
    has_more: bool,
}

impl RowsOfJob {
    /// All rows, unless there were more.
    pub(super) fn kept(self) -> Option<Vec<OldRow>> {
        (!self.has_more).then_some(self.rows)
    }
}

/// A job id that rows name and no job has.
pub(super) struct Orphan {
    /// As it is shown.
    pub(super) job: String,
    /// Where its rows stand.
    pub(super) collection: String,
    /// As the rows have it; `None`: they have none.
    named: Option<Bson>,
}

impl<'a> OldLedger<'a> {
    pub(super) async fn find(ledger: &'a MongoLedger, mode: Mode) -> Result<Self, LedgerError> {
        let collections: Vec<Collection<Document>> =
            ledger.old_ledgers().await?.iter().map(|name| ledger.database.collection(name)).collect();
        let mut signed = false;
        for collection in &collections {
            if mode != Mode::DryRun {
                let options = IndexOptions::builder().name("job".to_owned()).build();
                let index = IndexModel::builder().keys(doc! { "job_id": 1 }).options(options).build();
                collection.create_index(index).await.map_err(|e| from_driver(&e))?;
            }
            let negative = collection.find_one(doc! { "amount": { "$lt": 0 } });
            signed |= negative.await.map_err(|e| from_driver(&e))?.is_some();
        }
        Ok(Self { ledger, collections, signed })
    }

    /// The rows of these jobs, by job.
    pub(super) async fn of_jobs(&self, ids: &[String]) -> Result<HashMap<String, RowsOfJob>, LedgerError> {
        let mut found: HashMap<String, RowsOfJob> = HashMap::new();
        if ids.is_empty() {
            return Ok(found);
        }
        let filter = doc! { "job_id": { "$in": as_written(ids) } };
        for collection in &self.collections {
            let find = collection.find(filter.clone()).sort(doc! { "_id": 1 });
            let mut rows = find.await.map_err(|e| from_driver(&e))?;
            while let Some(row) = rows.try_next().await.map_err(|e| from_driver(&e))? {
                let Ok(job) = job_of_row(&row) else { continue };
                let of_job = found.entry(job).or_default();
                if of_job.rows.len() < MAX_ROWS_OF_A_JOB {
                    of_job.rows.push(read_row(&row, self.signed));
                } else {
                    of_job.has_more = true;
                }
            }
        }
        Ok(found)
    }

    /// The ids that unmarked rows name and no job has. One pass over the index on `job_id` of each old collection.
    pub(super) async fn without_a_job(&self) -> Result<Vec<Orphan>, LedgerError> {
        let mut orphans = Vec::new();
        for collection in &self.collections {
            let pipeline = vec![
                doc! { "$match": { MARK: { "$exists": false } } },
                doc! { "$group": { "_id": "$job_id" } },
            ];
            let aggregate = collection.aggregate(pipeline).allow_disk_use(true);
            let mut groups = aggregate.await.map_err(|e| from_driver(&e))?.try_chunks(PAGE);
            while let Some(page) = groups.try_next().await.map_err(|e| from_driver(&e.1))? {
                let named: Vec<Option<Bson>> = page
                    .into_iter()
                    .map(|mut group| group.remove("_id").filter(|id| !matches!(id, Bson::Null)))
                    .collect();
                orphans.extend(self.orphans(collection.name(), named).await?);
            }
        }
        Ok(orphans)
    }

    async fn orphans(&self, collection: &str, named: Vec<Option<Bson>>) -> Result<Vec<Orphan>, LedgerError> {
        let text = |id: &Bson| job_of_row(&doc! { "job_id": id.clone() }).ok();
        let ids: Vec<String> = named.iter().flatten().filter_map(text).collect();
        let mut there = self.jobs_there("_id", &ids).await?;
        let rest: Vec<String> = ids.iter().filter(|id| !there.contains(*id)).cloned().collect();
        if !rest.is_empty() {
            // Old documents that were left as they are, under an `_id` of their own.
            there.extend(self.jobs_there("job_id", &rest).await?);
        }
        let is_there = |id: &Option<Bson>| id.as_ref().and_then(text).is_some_and(|id| there.contains(&id));
        let orphan = |named: Option<Bson>| Orphan {
            job: named
                .as_ref()
                .map_or_else(|| "(none)".to_owned(), |id| text(id).unwrap_or_else(|| id.to_string())),
            collection: collection.to_owned(),
            named,
        };
        Ok(named.into_iter().filter(|id| !is_there(id)).map(orphan).collect())
    }

    /// Which of these ids stand in this field of a job.
    async fn jobs_there(&self, field: &str, ids: &[String]) -> Result<HashSet<String>, LedgerError> {
        let filter = doc! { field: { "$in": as_written(ids) } };
        let find = self.ledger.jobs.find(filter).projection(doc! { "_id": 1, "job_id": 1 });
        let found: Vec<Document> =
            find.await.map_err(|e| from_driver(&e))?.try_collect().await.map_err(|e| from_driver(&e))?;
        let text = |job: &Document| job_of_row(&doc! { "job_id": job.get(field)?.clone() }).ok();
        Ok(found.iter().filter_map(text).collect())
    }

    /// Marks the rows of an orphan.
    pub(super) async fn mark(&self, orphan: &Orphan, now: Timestamp) -> Result<(), LedgerError> {
        let collection = self.ledger.database.collection::<Document>(&orphan.collection);
        // Null stands for rows without the field, too.
        let rows = doc! { "job_id": { "$eq": orphan.named.clone().unwrap_or(Bson::Null) } };
        let mark = doc! { "$set": { MARK: date(now) } };
        collection.update_many(rows, mark).await.map_err(|e| from_driver(&e)).map(|_| ())
    }
}

/// Ids as documents may have them: text, or an ObjectId where the text is one's digits.
fn as_written(ids: &[String]) -> Vec<Bson> {
    let object_ids = ids.iter().filter_map(|id| ObjectId::parse_str(id).ok()).map(Bson::ObjectId);
    ids.iter().cloned().map(Bson::String).chain(object_ids).collect()
}
