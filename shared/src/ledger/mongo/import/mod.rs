//! Upgrades: what an earlier layout left in the database is taken over, by `recoup init`, while functions run.
//!
//! The earlier layout is the plain one with two flags: `jobs` documents with `is_refunded`, `is_reclaimed` and `cost`,
//! and a collection `ledger` of rows `job_id, type, amount, created_at`, where this layout has a view of that name.
//!
//! The order, in which every step may be the last one before a crash, and the next run goes on from there:
//!
//! 1. The validator. From here on no earlier program can change a job, so what is read below stays as it was read.
//! 2. The old collection `ledger` is renamed aside, and the view made. A row that an earlier program writes in
//!    between makes a new collection, which is renamed aside too, under the next free name. None is ever dropped.
//! 3. Indexes.
//! 4. The jobs, in pages by `_id`. [`plan`] decides what becomes of each, and [`write`] writes it in one conditional
//!    operation, so that a second run, another one at the same time, or a function does no harm.
//! 5. Rows whose job is not there are looked for.
//!
//! The guards of this layout ask for its `schema`. A function that meets a job before its import therefore answers
//! with an error and writes nothing, and the event is delivered again.
//!
//! Costs: a page is one query for jobs, one for the rows of each old collection, and one command with the conditional
//! writes of all its jobs; a job whose `_id` changes is three writes, of eight such jobs at a time. Without anything to import it is a pass over `_id` and `schema` of every job.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use mongodb::bson::{Bson, Document, doc};

use self::old::{id_of, read_job};
use self::plan::{Finding, Plan, plan};
use self::rows::{OldLedger, RowsOfJob};
use self::write::{Import, Written, import};
use super::document::{SCHEMA, id_text};
use super::errors::{from_driver, unavailable};
use super::reader::ID_TYPES;
use super::{MongoLedger, page_limit};
use crate::clock::{Deadline, Timestamp};
use crate::job::Job;
use crate::ledger::LedgerError;

mod old;
mod plan;
mod rows;
mod write;

/// Jobs converted in one go: some megabytes, where documents are large.
const PAGE: usize = 500;
/// Writes in flight at once, below what the driver's pool carries.
const CONCURRENCY: usize = 8;
/// What one page or one pass over an old collection may take.
const STEP_BOUND: Duration = Duration::from_secs(15 * 60);

/// What `recoup init` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Look only: write nothing at all.
    DryRun,
    /// Import what agrees with itself; leave what does not.
    Import,
    /// Import all that can be, and say of each contradiction what was done about it.
    Repair,
}

/// How to upgrade.
#[derive(Clone, Copy, Debug)]
pub struct Upgrade {
    /// What to do.
    pub mode: Mode,
    /// The policy's cap of now, written on the jobs.
    pub max_attempts: u32,
}

/// Something that an upgrade did or found, told as it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The collection has the validator of this layout.
    Validator,
    /// An old collection of rows was renamed, or would be.
    SetAside {
        /// Its name so far.
        from: String,
        /// Its name from now on.
        to: String,
    },
    /// The view is there.
    View,
    /// The indexes are there.
    Indexes,
    /// So many old jobs were looked at so far.
    Progress(u64),
    /// This job contradicts itself, and was left as it is.
    Contradiction {
        /// The job, as far as it can be named.
        job: String,
        /// What was found, in one line.
        found: String,
        /// What a repair would do; `None`: only a person can resolve it.
        repair: Option<Repair>,
    },
    /// This job contradicted itself, and was imported all the same.
    Repaired {
        /// The job.
        job: String,
        /// What was found, in one line.
        found: String,
        /// What was done about it.
        repair: Repair,
    },
}

/// What a repair does about a contradiction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// In one line.
    pub done: String,
    /// The credits that the account gains by it, or loses where negative.
    pub moved: i128,
}

/// What an upgrade came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upgraded {
    /// Jobs that agreed with themselves and were imported, or would be.
    pub imported: u64,
    /// Jobs that stood in this layout when it began.
    pub already: u64,
    /// Contradictions that were repaired.
    pub repaired: u64,
    /// Contradictions that stand.
    pub contradictions: u64,
}

/// Who hears the notes.
type Listener<'a> = &'a mut (dyn FnMut(Note) + Send);

/// The layouts that there have been, by the `schema` on their documents. A new one adds its row here and, in
/// [`Run::decide`], how its predecessor becomes it.
const LAYOUTS: [(Option<i32>, Layout); 2] = [(None, Layout::TwoFlags), (Some(SCHEMA), Layout::Current)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Flags in the job, rows in a collection of their own.
    TwoFlags,
    /// This one.
    Current,
}

fn layout_of(document: &Document) -> Result<Layout, String> {
    let schema = document.get("schema");
    let number = schema.and_then(Bson::as_i32);
    let wide = schema.and_then(Bson::as_i64).and_then(|schema| i32::try_from(schema).ok());
    let known = LAYOUTS.into_iter().find(|(key, _)| match schema {
        None => key.is_none(),
        Some(_) => key.is_some() && *key == number.or(wide),
    });
    known.map(|(_, layout)| layout).ok_or_else(|| {
        let schema = schema.map_or_else(String::new, Bson::to_string);
        format!("schema is {schema}, which this program does not know; use the `recoup` that wrote it")
    })
}

impl MongoLedger {
    /// Brings the database to this layout and imports what an earlier one left. Safe to run again, by several at
    /// once, after a crash at any moment, and while functions run.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] where the database user may not; [`LedgerError::Unavailable`], after which running
    /// it again goes on where it ended. Contradictions are no errors but [`Note`]s, and counted.
    pub async fn upgrade(
        &self,
        upgrade: Upgrade,
        now: Timestamp,
        listen: Listener<'_>,
    ) -> Result<Upgraded, LedgerError> {
        self.ping().await?;
        if upgrade.mode == Mode::DryRun {
            if let Some((from, to)) = self.old_ledger_in_the_way().await? {
                listen(Note::SetAside { from, to });
            }
        } else {
            self.lay_out(listen).await?;
        }
        let rows = OldLedger::find(self, upgrade.mode).await?;
        let mut run = Run {
            ledger: self,
            upgrade,
            now,
            rows,
            listen,
            doubled: HashSet::new(),
            seen: 0,
            done: Upgraded::default(),
        };
        run.done.already = step(async {
            self.jobs.count_documents(doc! { "schema": SCHEMA }).await.map_err(|e| from_driver(&e))
        })
        .await?;
        run.doubled = step(self.doubled_ids()).await?;
        for id_type in ID_TYPES {
            run.jobs_with_ids_of(id_type).await?;
        }
        run.rows_without_a_job().await?;
        Ok(run.done)
    }

    /// Old job ids that more than one document claims.
    async fn doubled_ids(&self) -> Result<HashSet<String>, LedgerError> {
        let pipeline = vec![
            doc! { "$match": { "schema": { "$exists": false }, "job_id": { "$exists": true } } },
            doc! { "$group": { "_id": "$job_id", "documents": { "$sum": 1 } } },
            doc! { "$match": { "documents": { "$gt": 1 } } },
            doc! { "$project": { "job_id": "$_id" } },
        ];
        let doubled =
            self.jobs.aggregate(pipeline).allow_disk_use(true).await.map_err(|e| from_driver(&e))?;
        let doubled: Vec<Document> = doubled.try_collect().await.map_err(|e| from_driver(&e))?;
        Ok(doubled.iter().filter_map(|group| id_of(group).ok()).collect())
    }
}

/// Runs one step within [`STEP_BOUND`].
async fn step<T>(work: impl Future<Output = Result<T, LedgerError>> + Send) -> Result<T, LedgerError> {
    let done = Deadline::after(STEP_BOUND).bound(work).await;
    done.unwrap_or_else(|| Err(unavailable(format!("no answer within {} s", STEP_BOUND.as_secs()))))
}

/// One upgrade under way.
struct Run<'a> {
    ledger: &'a MongoLedger,
    upgrade: Upgrade,
    now: Timestamp,
    rows: OldLedger<'a>,
    listen: Listener<'a>,
    doubled: HashSet<String>,
    seen: u64,
    done: Upgraded,
}

/// What to do about one document of a page.
enum Verdict {
    Import(Box<Job>),
    Repair {
        job: Box<Job>,
        findings: Vec<Finding>,
        moved: i128,
    },
    /// `moved`: what a repair would move, where one is possible.
    Leave {
        findings: Vec<Finding>,
        moved: Option<i128>,
    },
}

impl Run<'_> {
    /// Pages through the old documents whose `_id` is of one type: across types there is no order to page by.
    async fn jobs_with_ids_of(&mut self, id_type: &str) -> Result<(), LedgerError> {
        let mut after: Option<Bson> = None;
        loop {
            let mut id = doc! { "$type": id_type };
            if let Some(after) = after {
                id.insert("$gt", after);
            }
            let filter = doc! { "_id": id, "schema": { "$ne": SCHEMA } };
            let page: Vec<Document> = step(async {
                let find = self.ledger.jobs.find(filter).sort(doc! { "_id": 1 }).limit(page_limit(PAGE));
                let found = find.await.map_err(|e| from_driver(&e))?;
                found.try_collect().await.map_err(|e| from_driver(&e))
            })
            .await?;
            let full = page.len() == PAGE;
            after = page.last().and_then(|document| document.get("_id").cloned());
            self.seen += page.len() as u64;
            if !page.is_empty() {
                self.page(page).await?;
                (self.listen)(Note::Progress(self.seen));
            }
            if !full {
                return Ok(());
            }
        }
    }

    async fn page(&mut self, page: Vec<Document>) -> Result<(), LedgerError> {
        let ids: Vec<String> = page.iter().filter_map(|document| id_of(document).ok()).collect();
        let mut rows = step(self.rows.of_jobs(&ids)).await?;
        let decided: Vec<(Document, Verdict)> = page
            .into_iter()
            .map(|document| {
                let verdict = self.decide(&document, &mut rows);
                (document, verdict)
            })
            .collect();
        let now = self.now;
        let mut imports: Vec<Option<Import>> = decided
            .iter()
            .map(|(document, verdict)| match verdict {
                Verdict::Leave { .. } => None,
                Verdict::Import(_) | Verdict::Repair { .. } if self.upgrade.mode == Mode::DryRun => None,
                Verdict::Import(job) => Some(import(document, job, None, now)),
                Verdict::Repair { job, findings, moved } => {
                    Some(import(document, job, Some((findings, *moved)), now))
                }
            })
            .collect();
        let all: Vec<&Import> = imports.iter().flatten().collect();
        if step(self.ledger.write_in_place(&all)).await? {
            for written in &mut imports {
                written.take_if(|import| matches!(import, Import::InPlace { .. }));
            }
        }
        let ledger = self.ledger;
        let written: Vec<_> = stream::iter(imports)
            .map(|import| async move {
                match import {
                    Some(import) => step(ledger.write_one(import)).await,
                    None => Ok(Written::Nothing),
                }
            })
            .buffered(CONCURRENCY)
            .collect()
            .await;
        for ((document, verdict), written) in decided.into_iter().zip(written) {
            self.tell(&document, verdict, written?);
        }
        Ok(())
    }

    fn decide(&self, document: &Document, rows: &mut HashMap<String, RowsOfJob>) -> Verdict {
        let left = |what: String| Verdict::Leave { findings: vec![Finding::for_a_person(what)], moved: None };
        match layout_of(document) {
            Ok(Layout::TwoFlags) => {}
            Ok(Layout::Current) => return left("it was imported meanwhile".to_owned()),
            Err(what) => return left(what),
        }
        let old = match read_job(document) {
            Ok(old) => old,
            Err(faults) => {
                let findings = faults.into_iter().map(Finding::for_a_person).collect();
                return Verdict::Leave { findings, moved: None };
            }
        };
        if self.doubled.contains(old.job_id.as_str()) {
            return left("more than one document has this job_id".to_owned());
        }
        let rows = rows.remove(old.job_id.as_str()).unwrap_or_default();
        let Some(rows) = rows.kept() else {
            return left(format!("it has more than {} rows", rows::MAX_ROWS_OF_A_JOB));
        };
        match plan(&old, &rows, self.upgrade.max_attempts, self.now) {
            Plan::Import(job) => Verdict::Import(Box::new(job)),
            Plan::Contradiction { findings, repair: Some((job, moved)) }
                if self.upgrade.mode == Mode::Repair =>
            {
                Verdict::Repair { job: Box::new(job), findings, moved }
            }
            Plan::Contradiction { findings, repair } => {
                Verdict::Leave { findings, moved: repair.map(|(_, moved)| moved) }
            }
        }
    }

    fn tell(&mut self, document: &Document, verdict: Verdict, written: Written) {
        let job = id_of(document).unwrap_or_else(|_| id_text(document));
        match (verdict, written) {
            (_, Written::AlreadyThere) => {}
            (_, Written::Refused(what)) => self.contradiction(job, what, None),
            (Verdict::Import(_), Written::Done | Written::Nothing) => self.done.imported += 1,
            (Verdict::Repair { findings, moved, .. }, Written::Done | Written::Nothing) => {
                self.repaired(job, found(&findings), Repair { done: mended(&findings), moved });
            }
            (Verdict::Leave { findings, moved }, Written::Done | Written::Nothing) => {
                let repair = moved.map(|moved| Repair { done: mended(&findings), moved });
                self.contradiction(job, found(&findings), repair);
            }
        }
    }

    fn contradiction(&mut self, job: String, found: String, repair: Option<Repair>) {
        self.done.contradictions += 1;
        (self.listen)(Note::Contradiction { job, found, repair });
    }

    fn repaired(&mut self, job: String, found: String, repair: Repair) {
        self.done.repaired += 1;
        (self.listen)(Note::Repaired { job, found, repair });
    }

    /// A row that belongs to no job belongs to no account, so that no balance of this layout can hold it. A repair
    /// marks it, and it is not reported again.
    async fn rows_without_a_job(&mut self) -> Result<(), LedgerError> {
        let orphans = step(self.rows.without_a_job()).await?;
        for orphan in orphans {
            let found = format!("there are rows of it in {}, but no such job", orphan.collection);
            let done = "they stay there, marked, and belong to no balance".to_owned();
            let repair = Repair { done, moved: 0 };
            if self.upgrade.mode == Mode::Repair {
                step(self.rows.mark(&orphan, self.now)).await?;
                self.repaired(orphan.job, found, repair);
            } else {
                self.contradiction(orphan.job, found, Some(repair));
            }
        }
        Ok(())
    }
}

/// What was found, in one line.
fn found(findings: &[Finding]) -> String {
    findings.iter().map(|finding| finding.found.as_str()).collect::<Vec<_>>().join("; ")
}

/// What a repair does about it, in one line.
fn mended(findings: &[Finding]) -> String {
    findings.iter().filter_map(|finding| finding.mended.as_deref()).collect::<Vec<_>>().join("; ")
}
