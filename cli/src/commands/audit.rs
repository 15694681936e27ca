//! `recoup audit`: what [`recoup::handlers::audit`] finds, a line a violation.

use recoup::clock::Deadline;
use recoup::handlers::audit::{AuditCounts, AuditSettings, Listener, audit};
use serde::Serialize;

use super::Desk;
use crate::output::{Output, count_of};
use crate::progress::Progress;
use crate::stop::{Stop, visible};
use crate::store::Store;

/// `recoup audit`.
pub(crate) async fn run<S: Store>(desk: Desk<'_, S>) -> Result<(), Stop> {
    let settings = AuditSettings::new(desk.settings, S::QUEUES_REPLAYS);
    let progress = Progress::new(None, "jobs audited", !desk.out.is_shown());
    let mut lines = Lines { out: &mut *desk.out, progress: &progress };
    let (ledger, queue) = (desk.store.ledger(), desk.store.queue());
    let audited = audit(ledger, queue, settings, &desk.clock, None, Deadline::NONE, &mut lines).await?;
    progress.done();
    end(desk, audited.counts)
}

#[derive(Serialize)]
struct Violation<'a> {
    job_id: &'a str,
    violation: &'a str,
}

/// Writes each violation as it is found.
struct Lines<'a> {
    out: &'a mut Output,
    progress: &'a Progress,
}

impl Listener for Lines<'_> {
    type Error = Stop;

    fn violation(&mut self, job_id: &str, violation: &str) -> Result<(), Stop> {
        if self.out.is_json() {
            return self.out.document(&Violation { job_id, violation });
        }
        self.out.line(format!("job {}: {}", visible(job_id), visible(violation)))
    }

    fn read(&mut self, jobs: u64) {
        self.progress.at(jobs);
    }
}

/// In JSON the counts are the last line.
fn end<S: Store>(desk: Desk<'_, S>, counts: AuditCounts) -> Result<(), Stop> {
    let AuditCounts { jobs, retries, unjudged, violations } = counts;
    if desk.out.is_json() {
        desk.out.document(&counts)?;
    } else if violations == 0 {
        let (jobs, retries) = (count_of(jobs, "job"), count_of(retries, "overdue retry"));
        desk.out.line(format!("{jobs} audited, {retries} looked up in the queue: no violation."))?;
    }
    if unjudged > 0 && !desk.out.is_json() {
        desk.out.line(format!(
            "{} could not be judged, because new entries stand in the queue; run `{}` and audit again.",
            count_of(unjudged, "retry"),
            desk.store.hint("drain")
        ))?;
    }
    if violations == 0 {
        return Ok(());
    }
    Err(Stop::Refused(format!(
        "the audit of {} found {} in {}; docs/OPERATIONS.md says what each means and what mends it",
        desk.store.name(),
        count_of(violations, "violation"),
        count_of(jobs, "job")
    )))
}
