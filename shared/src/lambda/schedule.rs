//! The scheduler: a schedule comes once a minute at most, so one invocation may repeat its pass each second.

use std::time::Duration;

use super::{Failed, Invocation, StartError, in_time, serve};
use crate::clock::{Clock, Deadline};
use crate::handlers::StoreError;
use crate::handlers::drain::DrainCounts;

/// How far apart passes begin.
const EACH: Duration = Duration::from_secs(1);
/// A pass with less time than this would claim entries only to give them back.
const SHORTEST_PASS: Duration = Duration::from_secs(1);

/// The longest that measuring may delay the answer.
const MEASURING: Duration = Duration::from_secs(2);

/// Polls for invocations, whatever their payload, and runs `pass` for each: once, or each second for `drain_for`. What
/// they leave behind is then measured once; an invocation does not fail for want of that.
///
/// # Errors
/// [`StartError`] where the process does not run under Lambda, or the runtime goes away.
pub async fn serve_schedule(
    drain_for: Duration,
    clock: &impl Clock,
    pass: impl AsyncFn(Deadline) -> Result<DrainCounts, StoreError>,
    measure: impl AsyncFn() -> Result<(), StoreError>,
) -> Result<(), StartError> {
    let (pass, measure) = (&pass, &measure);
    serve(async |_: &str, invocation: &Invocation| {
        let counts = passes(drain_for, clock, invocation.deadline, pass).await?;
        let bound = invocation.deadline.at_most(MEASURING);
        if let Err(failed) = in_time("measuring of the queue", bound, Box::pin(measure())).await {
            tracing::warn!(error = failed.message, "what the drain left behind could not be measured");
        }
        tracing::info!(
            request_id = invocation.request_id,
            dispatched = counts.dispatched,
            parked = counts.parked,
            dead_lettered = counts.dead_lettered,
            dropped = counts.dropped,
            recovered = counts.recovered,
            malformed = counts.malformed,
            swept = counts.swept,
            timed_out = counts.timed_out,
            "drained"
        );
        Ok(counts)
    })
    .await
}

async fn passes(
    drain_for: Duration,
    clock: &impl Clock,
    deadline: Deadline,
    pass: &impl AsyncFn(Deadline) -> Result<DrainCounts, StoreError>,
) -> Result<DrainCounts, Failed> {
    let until = deadline.at_most(drain_for);
    let mut counts = DrainCounts::default();
    loop {
        let next = Deadline::after(EACH);
        match in_time("drain", deadline, Box::pin(pass(deadline))).await {
            Ok(more) => counts += more,
            Err(failed) => {
                tracing::error!(
                    ?counts,
                    kind = failed.kind,
                    "a pass failed; these are the counts of those before it"
                );
                return Err(failed);
            }
        }
        let wait = next.left();
        if until.left() <= wait || deadline.left() < wait + SHORTEST_PASS {
            return Ok(counts);
        }
        clock.sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::clock::{Timestamp, VirtualClock};
    use crate::queue::QueueError;

    async fn drained(
        drain_for: Duration,
        deadline: Deadline,
        pass: impl AsyncFn(Deadline) -> Result<DrainCounts, StoreError>,
    ) -> Result<DrainCounts, Failed> {
        let clock = VirtualClock::new(Timestamp::from_millis(0));
        passes(drain_for, &clock, deadline, &pass).await
    }

    fn dispatched(dispatched: u64) -> DrainCounts {
        DrainCounts { dispatched, ..DrainCounts::default() }
    }

    #[tokio::test]
    async fn one_pass_is_the_rule() {
        let runs = Cell::new(0);
        let counts = drained(Duration::ZERO, Deadline::NONE, async |_| {
            runs.set(runs.get() + 1);
            Ok(dispatched(3))
        });
        assert_eq!(counts.await.unwrap(), dispatched(3));
        assert_eq!(runs.get(), 1);
    }

    #[tokio::test]
    async fn passes_repeat_while_there_is_time_and_their_counts_add_up() {
        let runs = Cell::new(0_u64);
        let counts = drained(Duration::from_millis(1_100), Deadline::NONE, async |_| {
            runs.set(runs.get() + 1);
            Ok(dispatched(1))
        });
        // The virtual clock makes nothing of the second between passes, so there are many.
        assert_eq!(counts.await.unwrap().dispatched, runs.get());
        assert!(runs.get() > 1);
    }

    #[tokio::test]
    async fn no_pass_begins_that_the_deadline_would_cut_short() {
        let runs = Cell::new(0);
        let deadline = Deadline::after(Duration::from_millis(1_500));
        let counts = drained(Duration::from_secs(60), deadline, async |_| {
            runs.set(runs.get() + 1);
            Ok(dispatched(1))
        });
        assert_eq!(counts.await.unwrap(), dispatched(1));
        assert_eq!(runs.get(), 1);
    }

    #[tokio::test]
    async fn a_pass_that_fails_hangs_or_panics_fails_the_invocation() {
        let refused = || QueueError::Unavailable { store: "Redis", what: "connection refused".to_owned() };
        let failed = drained(Duration::ZERO, Deadline::NONE, async |_| Err(refused().into()));
        assert_eq!(failed.await.unwrap_err().kind, "QueueError");
        let soon = Deadline::after(Duration::from_millis(50));
        let hung = drained(Duration::ZERO, soon, async |_| std::future::pending().await);
        assert_eq!(hung.await.unwrap_err().kind, "Deadline");
        let panicked = drained(Duration::ZERO, Deadline::NONE, async |_| panic!("no such luck"));
        assert_eq!(panicked.await.unwrap_err().message, "the drain panicked: no such luck");
    }
}
