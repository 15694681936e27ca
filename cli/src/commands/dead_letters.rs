//! Jobs that wait for a person's decision.
//!
//! What is listed is what the ledger says: jobs in phase dead_lettered. The queue's dead-letter list is a copy for
//! programs that watch it; it may show a job twice, or not at all.

use recoup::clock::{Clock, Timestamp};
use recoup::handlers::failed::push_retry;
use recoup::job::{AccountId, Job, JobId, LastError, Phase};
use recoup::ledger::{Ledger, LedgerError, LedgerReader, PAGE};
use recoup::transition::RedriveOutcome;
use serde::Serialize;

use super::Desk;
use super::reads::{Faults, known_job};
use crate::args::{DeadLettersArgs, DeadLettersCommand, JobArgs, ListArgs, RedriveArgs};
use crate::output::{Grid, Output, count_of, grouped};
use crate::stop::{Stop, visible};
use crate::store::{Store, argument};
use crate::story;

/// `recoup dead-letters`.
pub(crate) async fn run<S: Store>(desk: Desk<'_, S>, args: DeadLettersArgs) -> Result<(), Stop> {
    match args.command {
        None => list(desk, args.list).await,
        Some(DeadLettersCommand::List(args)) => list(desk, args).await,
        Some(DeadLettersCommand::Show(args)) => show(desk, args).await,
        Some(DeadLettersCommand::Redrive(args)) if args.all => redrive_all(desk).await,
        Some(DeadLettersCommand::Redrive(args)) => redrive(desk, args).await,
    }
}

#[derive(Serialize)]
struct SetAside<'a> {
    job_id: &'a JobId,
    account_id: &'a AccountId,
    cost: i64,
    phase: Phase,
    attempts: u32,
    max_attempts: u32,
    last_error: &'a Option<LastError>,
    since: Timestamp,
}

async fn list<S: Store>(desk: Desk<'_, S>, args: ListArgs) -> Result<(), Stop> {
    let phases: &[Phase] =
        if args.failed { &[Phase::DeadLettered, Phase::Failed] } else { &[Phase::DeadLettered] };
    let mut grid =
        Grid::new(&["job", "account", "cost>", "phase", "failed attempts>", "since", "last error"]);
    let (mut count, mut are_replayed, mut faults) = (0, true, Faults::default());
    for phase in phases {
        let mut after: Option<String> = None;
        loop {
            let page = desk.store.ledger().jobs(Some(*phase), after.as_deref(), PAGE).await?;
            for (id, job) in &page {
                are_replayed &= job.as_ref().is_ok_and(|job| job.replayed);
                match job {
                    Ok(job) if desk.out.is_json() => desk.out.document(&set_aside(job))?,
                    Ok(job) => grid.row(row(job)),
                    Err(error) => faults.note(id, error),
                }
                count += 1;
            }
            let full = page.len() == PAGE;
            after = page.into_iter().last().map(|(id, _)| id);
            if !full {
                break;
            }
        }
    }
    if !desk.out.is_json() {
        let what = if args.failed { "set aside or failed" } else { "set aside" };
        if count == 0 {
            desk.out.line(format!("No job is {what}."))?;
        } else {
            desk.out.table(&grid)?;
            desk.out.line("")?;
            let next = if are_replayed {
                String::new()
            } else {
                format!(" To try one again: {}", desk.store.hint("dead-letters redrive JOB"))
            };
            desk.out.line(format!("{} {what}.{next}", count_of(count, "job")))?;
        }
    }
    faults.end("are not listed")
}

fn set_aside(job: &Job) -> SetAside<'_> {
    SetAside {
        job_id: &job.job_id,
        account_id: &job.account_id,
        cost: job.cost.credits(),
        phase: job.phase,
        attempts: job.attempts,
        max_attempts: job.max_attempts,
        last_error: &job.last_error,
        since: job.updated_at,
    }
}

fn row(job: &Job) -> [String; 7] {
    [
        job.job_id.to_string(),
        job.account_id.to_string(),
        grouped(job.cost.credits()),
        job.phase.to_string(),
        format!("{} of {}", grouped(job.attempts), grouped(job.max_attempts)),
        job.updated_at.to_string(),
        job.last_error.as_ref().map_or_else(String::new, |error| error.reason.clone()),
    ]
}

async fn show<S: Store>(desk: Desk<'_, S>, args: JobArgs) -> Result<(), Stop> {
    let job = known_job(desk.store, &args.job).await?;
    match job.phase {
        Phase::DeadLettered | Phase::Failed => {}
        Phase::Running | Phase::RetryWaiting | Phase::Delivered => {
            let story = desk.store.hint(&format!("job {}", argument(job.job_id.as_str())));
            return Err(Stop::Refused(format!("{}; see `{story}`", not_set_aside(&job))));
        }
    }
    if desk.out.is_json() {
        return desk.out.document(&job);
    }
    story::tell(desk.out, &job, desk.clock.now(), |command| desk.store.hint(command))
}

fn not_set_aside(job: &Job) -> String {
    format!("job {:?} is not set aside: its phase is {}", job.job_id.as_str(), job.phase)
}

#[derive(Serialize)]
struct Redriven<'a> {
    job_id: &'a JobId,
    outcome: &'static str,
    phase: Phase,
    attempts: u32,
    max_attempts: u32,
    not_before: Option<Timestamp>,
}

/// Sends each of these jobs back; one that cannot be sent back does not stop the others.
async fn redrive<S: Store>(desk: Desk<'_, S>, args: RedriveArgs) -> Result<(), Stop> {
    desk.store.prepare_work().await?;
    let mut refused = Vec::new();
    for job_id in &args.jobs {
        match redrive_one(&desk, job_id).await {
            Ok(Ok(job)) => print_redriven(&mut *desk.out, &job)?,
            Ok(Err(job)) => refused.push(not_set_aside(&job)),
            Err(error) if error.is_unavailable() => return Err(error.into()),
            Err(LedgerError::UnknownJob(job)) => {
                refused.push(format!("job {:?} is not in {}", job.as_str(), desk.store.name()));
            }
            Err(error) => refused.push(error.to_string()),
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    let sent = args.jobs.len() - refused.len();
    let only = if args.jobs.len() == 1 { String::new() } else { format!("; {sent} sent back") };
    Err(Stop::Refused(format!(
        "{}{only}; only dead-lettered and failed jobs can be sent back",
        refused.join("; ")
    )))
}

/// Sends every dead-lettered job back, a page at a time; each leaves its phase as it goes, and the pages go on after
/// the last id, so that a job which comes back meanwhile is not sent round in circles.
async fn redrive_all<S: Store>(desk: Desk<'_, S>) -> Result<(), Stop> {
    desk.store.prepare_work().await?;
    let (mut sent, mut faults) = (0, Faults::default());
    let mut after: Option<String> = None;
    loop {
        let page = desk.store.ledger().jobs(Some(Phase::DeadLettered), after.as_deref(), PAGE).await?;
        for (id, job) in &page {
            let outcome = match job {
                Ok(job) => redrive_one(&desk, &job.job_id).await,
                Err(error) => {
                    faults.note(id, error);
                    continue;
                }
            };
            match outcome {
                Ok(Ok(job)) => {
                    sent += 1;
                    if desk.out.is_json() {
                        print_redriven(&mut *desk.out, &job)?;
                    }
                }
                // Somebody else was faster.
                Ok(Err(_)) => {}
                Err(error) if error.is_unavailable() => return Err(error.into()),
                Err(error) => faults.note(id, &error),
            }
        }
        let full = page.len() == PAGE;
        after = page.into_iter().last().map(|(id, _)| id);
        if !full {
            break;
        }
    }
    if !desk.out.is_json() {
        desk.out.line(format!("{} sent back to the retry queue", count_of(sent, "job")))?;
    }
    faults.end("were not sent back")
}

/// The ledger first; the queue's entry is best effort, since the sweep finds the job without it. The inner error is
/// the job that is in another phase.
async fn redrive_one<S: Store>(desk: &Desk<'_, S>, job_id: &JobId) -> Result<Result<Job, Job>, LedgerError> {
    let allowance = desk.settings.retry.max_attempts;
    let applied = desk.store.ledger().redrive(job_id, allowance, desk.clock.now()).await?;
    match applied.outcome {
        RedriveOutcome::Redriven => {
            push_retry(desk.store.queue(), &applied.job).await;
            Ok(Ok(applied.job))
        }
        RedriveOutcome::NotSetAside => Ok(Err(applied.job)),
    }
}

fn print_redriven(out: &mut Output, job: &Job) -> Result<(), Stop> {
    if out.is_json() {
        return out.document(&Redriven {
            job_id: &job.job_id,
            outcome: "redriven",
            phase: job.phase,
            attempts: job.attempts,
            max_attempts: job.max_attempts,
            not_before: job.not_before,
        });
    }
    let more = count_of(u64::from(job.max_attempts - job.attempts), "further attempt");
    out.line(format!("redriven: job {}, due now, with {more}", visible(job.job_id.as_str())))
}
