//! Commands that only read: a job's story, balances, statements, the export.

use std::io::Write;

use recoup::clock::Clock;
use recoup::job::{AccountId, Job, JobId, LedgerRow};
use recoup::ledger::{LedgerError, LedgerReader, PAGE};
use serde::Serialize;

use super::Desk;
use crate::args::{BalanceArgs, ExportArgs, Format, JobArgs, StatementArgs};
use crate::output::{Grid, count_of, grouped, signed};
use crate::progress::Progress;
use crate::stop::{Stop, visible};
use crate::store::Store;
use crate::story;

/// `recoup job`.
pub(crate) async fn job<S: Store>(desk: Desk<'_, S>, args: JobArgs) -> Result<(), Stop> {
    let job = known_job(desk.store, &args.job).await?;
    if desk.out.is_json() {
        return desk.out.document(&job);
    }
    story::tell(desk.out, &job, desk.clock.now(), |command| desk.store.hint(command))
}

/// The job, or why there is none.
pub(crate) async fn known_job<S: Store>(store: &S, job_id: &JobId) -> Result<Job, Stop> {
    store.ledger().job(job_id).await?.ok_or_else(|| {
        Stop::Refused(format!(
            "job {:?} is not in {}; check the id, which is compared exactly, or name another store",
            job_id.as_str(),
            store.name()
        ))
    })
}

#[derive(Serialize)]
struct Balance<'a> {
    account_id: &'a AccountId,
    balance: i64,
}

/// `recoup balance`.
pub(crate) async fn balance<S: Store>(desk: Desk<'_, S>, args: BalanceArgs) -> Result<(), Stop> {
    let balance = desk.store.ledger().balance(&args.account).await?;
    if desk.out.is_json() {
        return desk.out.document(&Balance { account_id: &args.account, balance });
    }
    let account = visible(args.account.as_str());
    desk.out.line(format!("{account}: {} credits", grouped(balance)))
}

/// A row of a statement: what moved, and what the account had afterwards.
#[derive(Serialize)]
struct StatementRow {
    #[serde(flatten)]
    row: LedgerRow,
    balance: i128,
}

/// `recoup statement`.
pub(crate) async fn statement<S: Store>(desk: Desk<'_, S>, args: StatementArgs) -> Result<(), Stop> {
    if let (Some(since), Some(until)) = (args.since, args.until)
        && until <= since
    {
        return Err(Stop::Usage(format!(
            "--until {until} is not after --since {since}; give a later time or change the two"
        )));
    }
    let (mut balance, mut opening): (i128, i128) = (0, 0);
    let mut rows = 0_u64;
    let mut grid = Grid::new(&["time", "job", "type", "amount>", "balance>"]);
    let mut written = Ok(());
    let out = desk.out;
    let json = out.is_json();
    let mut each = |row: LedgerRow| {
        balance += i128::from(row.amount);
        if args.since.is_some_and(|since| row.created_at < since) {
            opening = balance;
            return;
        }
        rows += 1;
        if !json {
            let at = row.created_at.to_string();
            let amount = signed(row.amount);
            grid.row([&at, row.job_id.as_str(), row.kind.as_str(), &amount, &grouped(balance)]);
        } else if written.is_ok() {
            written = out.document(&StatementRow { row, balance });
        }
    };
    desk.store.ledger().statement(&args.account, args.until, &mut each).await?;
    written?;
    if json {
        return Ok(());
    }
    out.heading(&format!("Statement of {}", visible(args.account.as_str())))?;
    if let Some(since) = args.since {
        out.line(format!("opening balance {} at {since}", grouped(opening)))?;
    }
    if rows > 0 {
        out.table(&grid)?;
    }
    let until = args.until.map_or_else(String::new, |until| format!(" before {until}"));
    out.line(format!("{}{until}, closing balance {}", count_of(rows, "entry"), grouped(balance)))
}

/// The job's rows, in the order of their positions.
fn rows_of(job: &Job) -> impl Iterator<Item = LedgerRow> + '_ {
    job.entries.iter().map(|entry| LedgerRow::new(job.job_id.clone(), job.account_id.clone(), *entry))
}

/// `recoup export`: every row, by job id and position, in bounded memory.
pub(crate) async fn export<S: Store>(desk: Desk<'_, S>, args: ExportArgs) -> Result<(), Stop> {
    if desk.out.is_json() && args.format == Format::Csv {
        return Err(Stop::Usage(
            "--json and --format csv exclude each other; leave one of them out".to_owned(),
        ));
    }
    let ledger = desk.store.ledger();
    let progress = Progress::new(None, "jobs exported", !desk.out.is_shown());
    let mut faults = Faults::default();
    let mut done = 0_u64;
    let mut after: Option<String> = None;
    if args.format == Format::Csv {
        csv_line(desk.out.raw(), HEADER)?;
    }
    loop {
        let page = ledger.jobs(None, after.as_deref(), PAGE).await?;
        for (id, job) in &page {
            match job {
                Ok(job) => {
                    for row in rows_of(job) {
                        match args.format {
                            Format::Jsonl => desk.out.document(&row)?,
                            Format::Csv => csv_row(desk.out.raw(), &row)?,
                        }
                    }
                }
                Err(error) => faults.note(id, error),
            }
        }
        done += page.len() as u64;
        progress.at(done);
        if page.len() < PAGE {
            break;
        }
        after = page.into_iter().last().map(|(id, _)| id);
    }
    progress.done();
    faults.end("were left out of the export")
}

const HEADER: [&str; 6] = ["_id", "job_id", "account_id", "type", "amount", "created_at"];

fn csv_row(out: &mut impl Write, row: &LedgerRow) -> Result<(), Stop> {
    let (amount, at) = (row.amount.to_string(), row.created_at.to_string());
    csv_line(out, [&row.id, row.job_id.as_str(), row.account_id.as_str(), row.kind.as_str(), &amount, &at])
}

fn csv_line(out: &mut impl Write, cells: [&str; 6]) -> Result<(), Stop> {
    let mut line = csv::Writer::from_writer(Vec::with_capacity(128));
    line.write_record(cells).map_err(|error| Stop::Refused(error.to_string()))?;
    let line = line.into_inner().map_err(|error| Stop::Refused(error.to_string()))?;
    Ok(out.write_all(&line)?)
}

/// Jobs that could not be read while all of them were gone through.
#[derive(Default)]
pub(crate) struct Faults {
    count: u64,
    first: Option<String>,
}

impl Faults {
    pub(crate) fn note(&mut self, id: &str, error: &LedgerError) {
        self.count += 1;
        self.first.get_or_insert_with(|| format!("{id:?}: {error}"));
    }

    /// An error where there was one at all; `consequence` says what became of these jobs.
    pub(crate) fn end(self, consequence: &str) -> Result<(), Stop> {
        self.first.map_or(Ok(()), |first| {
            let jobs = count_of(self.count, "job");
            Err(Stop::Refused(format!("{jobs} could not be read and {consequence}; the first is {first}")))
        })
    }
}
