//! The audit on a schedule: as much of the ledger as one invocation has time for; the next one goes on there.
//!
//! Where an audit stopped is kept in the process, because it may write nowhere. A new process begins at the first job
//! again, so a ledger that takes many invocations is audited to its end only while the process lives; `complete` says
//! whether an invocation reached it.

use std::cell::RefCell;
use std::time::Duration;

use serde::Serialize;

use super::{Failed, Invocation, StartError, in_time, serve};
use crate::clock::{Clock, Deadline};
use crate::handlers::StoreError;
use crate::handlers::audit::{AuditCounts, AuditSettings, Listener, audit, dead_lettered};
use crate::ledger::LedgerReader;
use crate::metrics;
use crate::queue::RetryQueue;

/// Kept free before the deadline: a page, both looks at it included, is done in less.
const RESERVE: Duration = Duration::from_secs(10);

/// The answer to one invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Answer {
    #[serde(flatten)]
    counts: AuditCounts,
    /// Jobs that wait for a person.
    dead_lettered: u64,
    /// Whether the last job was reached; if not, the next invocation goes on where this one stopped.
    complete: bool,
}

/// Writes each violation to the log.
struct Log;

impl Listener for Log {
    type Error = StoreError;

    fn violation(&mut self, job_id: &str, violation: &str) -> Result<(), StoreError> {
        tracing::error!(job_id, violation, "a job breaks a rule");
        Ok(())
    }
}

/// Polls for invocations, whatever their payload, and audits the jobs after those that the last invocation looked at.
///
/// # Errors
/// [`StartError`] where the process does not run under Lambda, or the runtime goes away.
pub async fn serve_audit(
    ledger: &impl LedgerReader,
    queue: &impl RetryQueue,
    settings: AuditSettings,
    clock: &impl Clock,
) -> Result<(), StartError> {
    let place = RefCell::new(None);
    let place = &place;
    serve(async |_: &str, invocation: &Invocation| {
        let answer = go_on(ledger, queue, settings, clock, place, invocation.deadline).await?;
        let AuditCounts { jobs, retries, unjudged, violations } = answer.counts;
        metrics::AUDITED_JOBS.count(jobs);
        metrics::AUDIT_VIOLATIONS.count(violations);
        metrics::DEAD_LETTERED_JOBS.sample(answer.dead_lettered);
        metrics::AUDITS_FINISHED.count(1);
        tracing::info!(
            request_id = invocation.request_id,
            jobs,
            retries,
            unjudged,
            violations,
            dead_lettered = answer.dead_lettered,
            complete = answer.complete,
            "audited"
        );
        Ok(answer)
    })
    .await
}

/// Audits the jobs after `place`, and leaves there the job after which the next invocation goes on.
async fn go_on(
    ledger: &impl LedgerReader,
    queue: &impl RetryQueue,
    settings: AuditSettings,
    clock: &impl Clock,
    place: &RefCell<Option<String>>,
    deadline: Deadline,
) -> Result<Answer, Failed> {
    let after = place.borrow().clone();
    let until = deadline.sooner(RESERVE.min(deadline.left() / 2));
    let work = Box::pin(async {
        let audited = audit(ledger, queue, settings, clock, after, until, &mut Log).await?;
        Ok((audited, dead_lettered(ledger).await?))
    });
    let (audited, dead_lettered) = in_time("audit", deadline, work).await?;
    let answer = Answer { counts: audited.counts, dead_lettered, complete: audited.next.is_none() };
    *place.borrow_mut() = audited.next;
    Ok(answer)
}

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::{Timestamp, VirtualClock};
    use crate::embedded::Embedded;
    use crate::job::{AccountId, Cost, JobId};
    use crate::ledger::sqlite::SqliteLedger;
    use crate::ledger::{Ledger, PAGE};
    use crate::queue::sqlite::SqliteQueue;
    use crate::transition::Charge;

    #[tokio::test]
    async fn an_invocation_without_time_stops_after_a_page_and_the_next_goes_on_behind_it() {
        let file = Arc::new(Embedded::in_memory().unwrap());
        let (ledger, queue) = (SqliteLedger::new(Arc::clone(&file)), SqliteQueue::new(file));
        let clock = VirtualClock::new(Timestamp::from_millis(0));
        for number in 0..PAGE + 3 {
            let charge = Charge {
                job_id: JobId::new(format!("j{number:04}")).unwrap(),
                account_id: AccountId::new("a").unwrap(),
                cost: Cost::new(40).unwrap(),
                max_attempts: 5,
                replayed: false,
            };
            ledger.charge(&charge, clock.now()).await.unwrap();
        }
        let settings = AuditSettings {
            sweep_grace: Duration::ZERO,
            claim_timeout: Duration::ZERO,
            queues_replays: true,
        };
        let place = RefCell::new(None);
        let invoked = async |deadline| {
            let answer = go_on(&ledger, &queue, settings, &clock, &place, deadline).await.unwrap();
            (answer.counts.jobs, answer.complete)
        };
        // The embedded store answers at once, so that even no time is enough for a page.
        let no_time = Deadline::after(Duration::ZERO);
        assert_eq!(invoked(no_time).await, (500, false));
        assert_eq!(invoked(no_time).await, (3, true));
        assert_eq!(invoked(Deadline::NONE).await, (503, true), "the next audit begins anew");
    }
}
