//! Commands that write: each feeds one event to the handlers that the functions call, and prints their answer.

use std::time::Duration;

use recoup::clock::{Clock, Timestamp, roll};
use recoup::event::CompletionEvent;
use recoup::handlers::failed::job_failed;
use recoup::handlers::succeeded::job_succeeded;
use recoup::handlers::{Answer, Outcome};
use recoup::job::{Phase, cut_reason};
use recoup::ledger::Ledger;
use recoup::transition::Charge;

use super::Desk;
use crate::args::{ChargeArgs, EventArgs, FailedArgs, SucceededArgs};
use crate::output::{Output, count_of};
use crate::stop::{Stop, visible};
use crate::store::Store;

/// `recoup charge`.
pub(crate) async fn charge<S: Store>(desk: Desk<'_, S>, args: ChargeArgs) -> Result<(), Stop> {
    desk.store.prepare_work().await?;
    let charge = Charge {
        job_id: args.job,
        account_id: args.account,
        cost: args.cost,
        max_attempts: desk.settings.retry.max_attempts,
        replayed: false,
    };
    let applied = desk.store.ledger().charge(&charge, desk.clock.now()).await?;
    let job = applied.job;
    let Some(outcome) = Outcome::of_charge(applied.outcome) else {
        return Err(Stop::Refused(format!(
            "charge conflict: job {:?} stands at {} for account {:?}; nothing was written; give another job id, or \
             that account and cost",
            job.job_id.as_str(),
            count_of(job.cost.credits().unsigned_abs(), "credit"),
            job.account_id.as_str(),
        )));
    };
    let answer = Answer {
        job_id: job.job_id,
        outcome,
        attempts: job.attempts,
        phase: job.phase,
        not_before: job.not_before,
    };
    if desk.out.is_json() {
        return desk.out.document(&answer);
    }
    let credits = count_of(job.cost.credits().unsigned_abs(), "credit");
    let (id, account) = (visible(answer.job_id.as_str()), visible(job.account_id.as_str()));
    desk.out.line(match outcome {
        Outcome::Charged => format!("charged: job {id}, {credits} from account {account}"),
        Outcome::Duplicate
        | Outcome::Refunded
        | Outcome::FailureRecorded
        | Outcome::Delivered
        | Outcome::Reclaimed
        | Outcome::AlreadyDelivered => {
            format!("duplicate: job {id} was charged before, {credits} from account {account}; nothing moved")
        }
    })
}

/// `recoup failed`.
pub(crate) async fn failed<S: Store>(desk: Desk<'_, S>, args: FailedArgs) -> Result<(), Stop> {
    let event = CompletionEvent {
        job_id: args.job,
        attempt: args.attempt,
        reason: args.reason.map(|reason| cut_reason(&reason).to_owned()),
        retryable: !args.no_retry,
        event_id: args.event.event_id,
        occurred_at: None,
        account_id: args.event.account,
        trace: None,
    };
    desk.store.prepare_work().await?;
    let (ledger, queue) = (desk.store.ledger(), desk.store.queue());
    let now = desk.clock.now();
    let answer = job_failed(ledger, queue, &event, &desk.settings.retry, roll(), now).await?;
    print(desk.out, &answer, now)
}

/// `recoup succeeded`.
pub(crate) async fn succeeded<S: Store>(desk: Desk<'_, S>, args: SucceededArgs) -> Result<(), Stop> {
    let EventArgs { event_id, account } = args.event;
    let event = CompletionEvent {
        job_id: args.job,
        attempt: args.attempt,
        reason: None,
        retryable: true,
        event_id,
        occurred_at: None,
        account_id: account,
        trace: None,
    };
    desk.store.prepare_work().await?;
    let now = desk.clock.now();
    let answer = job_succeeded(desk.store.ledger(), &event, now).await?;
    print(desk.out, &answer, now)
}

fn print(out: &mut Output, answer: &Answer, now: Timestamp) -> Result<(), Stop> {
    if out.is_json() {
        return out.document(answer);
    }
    let what = match answer.outcome {
        Outcome::Charged => "taken on",
        Outcome::Refunded => "its credits went back to the account",
        Outcome::FailureRecorded => "the failure was noted; credits did not move",
        Outcome::Delivered => "the charge stands",
        Outcome::Reclaimed => "it was refunded before, and the refund was taken back",
        Outcome::Duplicate => "known already; nothing was written",
        Outcome::AlreadyDelivered => {
            "the job was delivered, and delivered work is not refunded; nothing was written"
        }
    };
    let job = visible(answer.job_id.as_str());
    out.line(format!("{}: job {job}: {what}", answer.outcome.as_str()))?;
    let attempts = count_of(answer.attempts.into(), "failed attempt");
    let next = match (answer.phase, answer.not_before) {
        (Phase::RetryWaiting, Some(due)) => format!("; next attempt {} ({due})", from_now(due, now)),
        (
            Phase::Running | Phase::RetryWaiting | Phase::DeadLettered | Phase::Failed | Phase::Delivered,
            _,
        ) => String::new(),
    };
    out.line(format!("phase {}, {attempts}{next}", answer.phase))
}

/// `in 4s`, `now`, `since 3m 2s`: how far a moment is away, in whole seconds.
pub(crate) fn from_now(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.as_millis().saturating_sub(now.as_millis()) / 1_000;
    let apart = humantime::format_duration(Duration::from_secs(seconds.unsigned_abs()));
    match seconds {
        0 => "now".to_owned(),
        1.. => format!("in {apart}"),
        _ => format!("due for {apart}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_in_time_is_told_in_words() {
        let now = Timestamp::from_millis(1_768_471_200_000);
        let at = |ms: i64| Timestamp::from_millis(now.as_millis() + ms);
        assert_eq!(from_now(at(4_000), now), "in 4s");
        assert_eq!(from_now(at(-200), now), "now");
        assert_eq!(from_now(at(-182_000), now), "due for 3m 2s");
    }
}
