//! A job's story, as somebody at the support desk reads it to a customer.

use recoup::clock::Timestamp;
use recoup::job::{Job, Phase};

use crate::commands::events::from_now;
use crate::output::{Grid, Output, count_of, grouped, signed};
use crate::stop::{Stop, visible};
use crate::store::argument;

/// Tells the story of `job`; `hint` writes a command that works on the same store.
pub(crate) fn tell(
    out: &mut Output,
    job: &Job,
    now: Timestamp,
    hint: impl Fn(&str) -> String,
) -> Result<(), Stop> {
    out.heading(&format!("Job {}", visible(job.job_id.as_str())))?;
    let mut facts = Grid::bare();
    facts.row(["account", job.account_id.as_str()]);
    facts.row(["cost", &count_of(job.cost.credits().unsigned_abs(), "credit")]);
    facts.row(["paid", &paid(job)]);
    facts.row(["phase", &format!("{}: {}", job.phase, meaning(job.phase))]);
    facts.row(["attempts", &attempts(job)]);
    if let Some(due) = job.not_before {
        facts.row(["next retry", &format!("{due} ({})", from_now(due, now))]);
    }
    if let Some(error) = &job.last_error {
        facts.row(["last error", &format!("{} ({})", error.reason, error.at)]);
    }
    if job.replayed {
        facts.row(["origin", "put here by `recoup replay`; not today's work"]);
    }
    if job.imported {
        facts.row(["origin", "taken over from an earlier layout"]);
    }
    out.table(&facts)?;
    out.line("")?;
    out.heading("What happened")?;
    let mut steps = Grid::bare();
    for (at, what) in steps_of(job) {
        steps.row([at.to_string(), what]);
    }
    out.table(&steps)?;
    out.line("")?;
    out.heading("Entries")?;
    let mut entries = Grid::new(&["written", "type", "amount>", "sum>"]);
    let mut sum: i128 = 0;
    for entry in &job.entries {
        sum += i128::from(entry.amount);
        entries.row([
            entry.created_at.to_string(),
            entry.kind.to_string(),
            signed(entry.amount),
            signed(sum),
        ]);
    }
    out.table(&entries)?;
    if let Some(next) = what_to_do(job, hint) {
        out.line("")?;
        out.line(next)?;
    }
    Ok(())
}

fn paid(job: &Job) -> String {
    let paid = -i128::from(job.net);
    match job.phase {
        Phase::Delivered if paid == i128::from(job.cost.credits()) => {
            format!("{}, once, for delivered work", grouped(paid))
        }
        Phase::Running | Phase::RetryWaiting | Phase::DeadLettered | Phase::Failed if paid == 0 => {
            "nothing: refunded, and not delivered".to_owned()
        }
        Phase::Running => format!("{}, held until the job ends", grouped(paid)),
        Phase::RetryWaiting | Phase::DeadLettered | Phase::Failed | Phase::Delivered => {
            format!("{}, which breaks the rules; run `recoup audit`", grouped(paid))
        }
    }
}

fn meaning(phase: Phase) -> &'static str {
    match phase {
        Phase::Running => "an attempt is under way",
        Phase::RetryWaiting => "the last attempt failed; the next waits for its time",
        Phase::DeadLettered => "out of attempts; set aside for a person",
        Phase::Failed => "failed for good; it is not tried again",
        Phase::Delivered => "the customer has the result; nothing more can move",
    }
}

fn attempts(job: &Job) -> String {
    let failed = if job.attempts == 0 { "none".to_owned() } else { grouped(job.attempts) };
    format!("{failed} of {} failed", grouped(job.max_attempts))
}

/// What the job document remembers, in the order of time.
fn steps_of(job: &Job) -> Vec<(Timestamp, String)> {
    let mut steps = vec![(job.created_at, "charged".to_owned())];
    let mut add = |at: Option<Timestamp>, what: String| steps.extend(at.map(|at| (at, what)));
    add(job.refunded_at, "refunded, with the first failure".to_owned());
    if let Some(error) = &job.last_error {
        let what = if job.attempts > 1 { "last failure" } else { "failure" };
        add(Some(error.at), format!("{what}: {}", error.reason));
    }
    add(job.redriven_at, "sent back to the retry queue by a person".to_owned());
    add(
        job.dispatched_at,
        format!("attempt {} handed to the workers", grouped(i128::from(job.attempts) + 1)),
    );
    add(job.delivered_at, "delivered".to_owned());
    add(job.reclaimed_at, "refund taken back: the work was delivered after all".to_owned());
    // Stable: of two steps at one time the one that stands first here comes first.
    steps.sort_by_key(|(at, _)| *at);
    steps
}

fn what_to_do(job: &Job, hint: impl Fn(&str) -> String) -> Option<String> {
    if job.replayed {
        return None;
    }
    match job.phase {
        Phase::DeadLettered | Phase::Failed => {
            let command = hint(&format!("dead-letters redrive {}", argument(job.job_id.as_str())));
            Some(format!("To try it again: {command}"))
        }
        Phase::Running | Phase::RetryWaiting | Phase::Delivered => None,
    }
}
