//! One suite for the drain on every pair of stores: what dies, fails, runs out or gets lost on a retry's way.
//!
//! Time is a [`VirtualClock`], so nothing here waits. A death between two steps is played by taking the first step
//! by hand and never the second.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use recoup::backoff::{RetryPolicy, Roll};
use recoup::clock::{Clock, Deadline, Timestamp, VirtualClock};
use recoup::dispatch::{Dispatch, DispatchError, Target};
use recoup::event::CompletionEvent;
use recoup::handlers::drain::{DrainCounts, DrainSettings, drain};
use recoup::handlers::failed::{job_failed, waiting_retry};
use recoup::handlers::succeeded::job_succeeded;
use recoup::handlers::{Answer, Outcome};
use recoup::job::{AccountId, Cost, Job, JobId, Phase};
use recoup::ledger::{Ledger, LedgerReader};
use recoup::queue::entry::canonical;
use recoup::queue::{
    Claim, DispatchMessage, Intake, List, MAX_EXPIRED_CLAIMS, NewEntry, RetryEntry, RetryQueue,
};
use recoup::transition::{Charge, DispatchOutcome, RedriveOutcome};

use crate::queue_rooms::Rooms;

const CLAIM_TIMEOUT: Duration = Duration::from_secs(60);
const SWEEP_GRACE: Duration = Duration::from_secs(120);
const MINUTE: Duration = Duration::from_secs(60);

/// A target outside the queue that keeps what it is sent, or refuses it.
#[derive(Debug, Default)]
pub struct Recorder {
    sent: Mutex<Vec<DispatchMessage>>,
    refuses: AtomicBool,
    refused: AtomicU32,
}

impl Dispatch for &Recorder {
    async fn send(&self, messages: &[DispatchMessage]) -> Vec<Result<(), DispatchError>> {
        if self.refuses.load(Ordering::Relaxed) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return messages.iter().map(|_| Err(DispatchError("switched off".to_owned()))).collect();
        }
        self.sent.lock().unwrap().extend_from_slice(messages);
        messages.iter().map(|_| Ok(())).collect()
    }
}

/// A ledger, a queue and a clock, with one customer.
#[derive(Debug)]
pub struct World<L, R> {
    ledger: L,
    rooms: R,
    clock: VirtualClock,
    policy: RetryPolicy,
    attempt_timeout: Option<Duration>,
}

impl<L: Ledger + LedgerReader, R: Rooms> World<L, R> {
    /// On fresh stores, at ten o'clock.
    pub fn new(ledger: L, rooms: R) -> Self {
        let at = Timestamp::parse_rfc3339("2026-01-15T10:00:00Z").unwrap();
        let clock = VirtualClock::new(at);
        Self { ledger, rooms, clock, policy: RetryPolicy::default(), attempt_timeout: None }
    }

    fn queue(&self) -> &R::Queue {
        self.rooms.queue()
    }

    fn settings(&self) -> DrainSettings {
        DrainSettings {
            policy: self.policy,
            claim_timeout: CLAIM_TIMEOUT,
            sweep_grace: SWEEP_GRACE,
            attempt_timeout: self.attempt_timeout,
            roll: || Roll::FULL,
        }
    }

    fn pass(&self, by: Duration) {
        self.clock.advance_to(self.clock.now().plus(by));
    }

    async fn drain(&self) -> DrainCounts {
        self.drain_to(&Target::<&Recorder>::ReadyList).await
    }

    async fn drain_to(&self, target: &Target<&Recorder>) -> DrainCounts {
        drain(&self.ledger, self.queue(), target, &self.settings(), &self.clock, Deadline::NONE)
            .await
            .unwrap()
    }

    async fn charge(&self, id: &str) -> JobId {
        let job_id = JobId::new(id).unwrap();
        let charge = Charge {
            job_id: job_id.clone(),
            account_id: AccountId::new("acme").unwrap(),
            cost: Cost::new(100).unwrap(),
            max_attempts: self.policy.max_attempts,
            replayed: false,
        };
        self.ledger.charge(&charge, self.clock.now()).await.unwrap();
        job_id
    }

    async fn fail(&self, job_id: &JobId, attempt: u32) -> Answer {
        let event = event(job_id, attempt);
        job_failed(&self.ledger, self.queue(), &event, &self.policy, Roll::FULL, self.clock.now())
            .await
            .unwrap()
    }

    async fn succeed(&self, job_id: &JobId) -> Answer {
        job_succeeded(&self.ledger, &event(job_id, 1), self.clock.now()).await.unwrap()
    }

    /// A job whose first attempt failed, and whose retry is due.
    async fn due_retry(&self, id: &str) -> JobId {
        let job_id = self.charge(id).await;
        self.fail(&job_id, 1).await;
        self.pass(MINUTE);
        job_id
    }

    /// The same without the queue knowing.
    async fn lost_retry(&self, id: &str) -> JobId {
        let job_id = self.due_retry(id).await;
        self.take_everything_off().await;
        job_id
    }

    async fn take_everything_off(&self) {
        self.take_in_by_hand().await;
        for claim in self.claim_by_hand().await {
            assert!(self.queue().acknowledge(&claim).await.unwrap());
        }
    }

    async fn take_in_by_hand(&self) {
        let raw = self.queue().look_at_new(1_000).await.unwrap();
        let entries: Vec<NewEntry> = raw
            .into_iter()
            .map(|raw| {
                let parsed = recoup::queue::parse_entry(&raw).unwrap();
                NewEntry { raw, intake: Intake::Park(parsed) }
            })
            .collect();
        assert_eq!(self.queue().take_new(&entries).await.unwrap(), entries.len());
    }

    async fn claim_by_hand(&self) -> Vec<Claim> {
        self.queue().claim_due(self.clock.now(), CLAIM_TIMEOUT, 1_000).await.unwrap()
    }

    /// The one due entry, claimed by a process that dies now.
    async fn claimed_and_died(&self) -> Claim {
        self.take_in_by_hand().await;
        let mut claims = self.claim_by_hand().await;
        assert_eq!(claims.len(), 1);
        claims.remove(0)
    }

    async fn job(&self, job_id: &JobId) -> Job {
        let job = self.ledger.job(job_id).await.unwrap().unwrap();
        assert_eq!(job.violations(), Vec::<String>::new());
        job
    }

    async fn ready(&self) -> u64 {
        self.queue().depths().await.unwrap().ready
    }

    async fn dead_letters(&self) -> u64 {
        self.queue().depths().await.unwrap().dead_letter
    }

    async fn waiting(&self) -> u64 {
        let depths = self.queue().depths().await.unwrap();
        depths.retry + depths.parked + depths.in_flight
    }
}

fn event(job_id: &JobId, attempt: u32) -> CompletionEvent {
    CompletionEvent {
        job_id: job_id.clone(),
        attempt: Some(attempt),
        reason: Some("worker timeout".to_owned()),
        retryable: true,
        event_id: None,
        occurred_at: None,
        account_id: None,
        trace: None,
    }
}

/// An entry is parked while it is not due, and dispatched once when it is.
pub async fn a_retry_is_dispatched_once_and_never_early<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    let job_id = w.charge("j").await;
    w.fail(&job_id, 1).await;
    assert_eq!(w.drain().await, DrainCounts { parked: 1, ..DrainCounts::default() });
    w.pass(Duration::from_millis(3_999));
    assert_eq!(w.drain().await, DrainCounts::default());
    w.pass(Duration::from_millis(1));
    assert_eq!(w.drain().await, DrainCounts { dispatched: 1, ..DrainCounts::default() });
    w.pass(MINUTE * 60);
    assert_eq!(w.drain().await, DrainCounts::default());
    let job = w.job(&job_id).await;
    assert_eq!((job.phase, job.attempts, w.ready().await, w.waiting().await), (Phase::Running, 1, 1, 0));
    assert!(job.dispatched_at.is_some());
}

/// A job at its cap is set aside by the drain that sees its entry, without waiting for its time.
pub async fn a_job_at_its_cap_is_set_aside_at_once<L: Ledger + LedgerReader, R: Rooms>(mut w: World<L, R>) {
    w.policy.max_attempts = 1;
    let job_id = w.charge("j").await;
    w.fail(&job_id, 1).await;
    assert_eq!(w.drain().await, DrainCounts { dead_lettered: 1, ..DrainCounts::default() });
    assert_eq!(w.job(&job_id).await.phase, Phase::DeadLettered);
    assert_eq!((w.dead_letters().await, w.ready().await, w.waiting().await), (1, 0, 0));
    assert_eq!(w.succeed(&job_id).await.outcome, Outcome::Reclaimed);
}

/// The sweep parks an entry of a job at its cap; it is set aside and not dispatched.
pub async fn a_lost_entry_at_the_cap_is_set_aside<L: Ledger + LedgerReader, R: Rooms>(mut w: World<L, R>) {
    w.policy.max_attempts = 1;
    let job_id = w.lost_retry("j").await;
    w.pass(SWEEP_GRACE);
    assert_eq!(w.drain().await, DrainCounts { swept: 1, dead_lettered: 1, ..DrainCounts::default() });
    assert_eq!(w.job(&job_id).await.phase, Phase::DeadLettered);
}

/// A job that was delivered while its retry waited is not run again.
pub async fn a_delivered_job_is_not_dispatched<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    let job_id = w.due_retry("j").await;
    w.succeed(&job_id).await;
    assert_eq!(w.drain().await, DrainCounts { dropped: 1, ..DrainCounts::default() });
    assert_eq!((w.ready().await, w.waiting().await), (0, 0));
}

/// Whatever the target refuses, however often, is tried again, uncounted, with the same attempt.
pub async fn a_hand_over_that_fails_is_tried_for_ever<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    let job_id = w.due_retry("j").await;
    let recorder = Recorder::default();
    recorder.refuses.store(true, Ordering::Relaxed);
    for round in 1..=2 * MAX_EXPIRED_CLAIMS {
        assert_eq!(w.drain_to(&Target::Outside(&recorder)).await.dispatched, 0);
        assert_eq!(w.drain_to(&Target::Outside(&recorder)).await, DrainCounts::default());
        assert_eq!(recorder.refused.load(Ordering::Relaxed), round, "it is asked again after a while only");
        w.pass(CLAIM_TIMEOUT);
    }
    recorder.refuses.store(false, Ordering::Relaxed);
    assert_eq!(w.drain_to(&Target::Outside(&recorder)).await.dispatched, 1);
    let sent = recorder.sent.lock().unwrap().clone();
    assert_eq!(
        sent,
        [DispatchMessage {
            job_id: job_id.clone(),
            account_id: AccountId::new("acme").unwrap(),
            attempt: 2,
            trace: None
        }]
    );
    let job = w.job(&job_id).await;
    assert_eq!((job.phase, job.attempts, w.waiting().await), (Phase::Running, 1, 0));
}

/// A death after the claim costs nothing but time.
pub async fn a_death_after_the_claim_is_recovered<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    w.due_retry("j").await;
    w.claimed_and_died().await;
    assert_eq!(w.drain().await, DrainCounts::default(), "the claim holds");
    w.pass(CLAIM_TIMEOUT);
    assert_eq!(w.drain().await, DrainCounts { recovered: 1, dispatched: 1, ..DrainCounts::default() });
    assert_eq!((w.ready().await, w.waiting().await), (1, 0));
}

/// A death between the dispatch write and the hand-over: the next claim finishes it.
pub async fn a_death_before_the_hand_over_is_finished<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    let job_id = w.due_retry("j").await;
    w.claimed_and_died().await;
    let applied = w.ledger.dispatch(&job_id, 1, false, w.clock.now()).await.unwrap().unwrap();
    assert_eq!(applied.outcome, DispatchOutcome::Dispatched);
    w.pass(CLAIM_TIMEOUT);
    assert_eq!(w.drain().await, DrainCounts { recovered: 1, dispatched: 1, ..DrainCounts::default() });
    assert!(w.job(&job_id).await.dispatched_at.is_some());
}

/// The same, and Redis is emptied on top: the sweep finds the open hand-over.
pub async fn an_open_hand_over_is_found_without_the_queue<L: Ledger + LedgerReader, R: Rooms>(
    w: World<L, R>,
) {
    let job_id = w.lost_retry("j").await;
    w.ledger.dispatch(&job_id, 1, false, w.clock.now()).await.unwrap().unwrap();
    w.pass(CLAIM_TIMEOUT + SWEEP_GRACE - Duration::from_millis(1));
    assert_eq!(w.drain().await, DrainCounts::default());
    w.pass(Duration::from_millis(1));
    assert_eq!(w.drain().await, DrainCounts { swept: 1, dispatched: 1, ..DrainCounts::default() });
    w.pass(MINUTE * 60);
    assert_eq!(w.drain().await, DrainCounts::default());
    assert_eq!(w.ready().await, 1);
}

/// A death between the hand-over and its note: the work is sent twice at worst, and never forgotten.
pub async fn a_death_before_the_note_sends_twice_at_worst<L: Ledger + LedgerReader, R: Rooms>(
    w: World<L, R>,
) {
    let job_id = w.due_retry("j").await;
    let claim = w.claimed_and_died().await;
    w.ledger.dispatch(&job_id, 1, false, w.clock.now()).await.unwrap().unwrap();
    assert!(w.queue().hand_over(&claim, List::Ready, "{}").await.unwrap());
    w.pass(CLAIM_TIMEOUT + SWEEP_GRACE);
    assert_eq!(w.drain().await, DrainCounts { swept: 1, dispatched: 1, ..DrainCounts::default() });
    assert_eq!(w.ready().await, 2);
    assert_eq!(w.succeed(&job_id).await.outcome, Outcome::Reclaimed);
    assert_eq!(w.succeed(&job_id).await.outcome, Outcome::Duplicate);
}

/// A death between the dead-letter write and its hand-over: the claim that ran out finishes it.
pub async fn an_open_dead_letter_is_finished<L: Ledger + LedgerReader, R: Rooms>(mut w: World<L, R>) {
    w.policy.max_attempts = 1;
    let job_id = w.due_retry("j").await;
    w.claimed_and_died().await;
    let applied = w.ledger.dispatch(&job_id, 1, false, w.clock.now()).await.unwrap().unwrap();
    assert_eq!(applied.outcome, DispatchOutcome::DeadLettered);
    w.pass(CLAIM_TIMEOUT);
    assert_eq!(w.drain().await, DrainCounts { recovered: 1, dead_lettered: 1, ..DrainCounts::default() });
    assert_eq!((w.dead_letters().await, w.waiting().await), (1, 0));
    let copy = waiting_entry(&job_id, w.clock.now());
    w.queue().push(&copy).await.unwrap();
    assert_eq!(
        w.drain().await,
        DrainCounts { dropped: 1, ..DrainCounts::default() },
        "a copy finishes nothing"
    );
}

fn waiting_entry(job_id: &JobId, not_before: Timestamp) -> RetryEntry {
    RetryEntry { job_id: job_id.clone(), attempts: 1, not_before }
}

/// An entry that kills whoever takes it up is set aside the fifth time its claim runs out.
pub async fn an_entry_that_kills_is_set_aside<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    let job_id = w.due_retry("j").await;
    w.claimed_and_died().await;
    for ran_out in 1..MAX_EXPIRED_CLAIMS {
        w.pass(CLAIM_TIMEOUT);
        let claim = w.queue().claim_expired(w.clock.now(), CLAIM_TIMEOUT).await.unwrap().unwrap();
        assert_eq!(claim.expired_claims, ran_out);
    }
    w.pass(CLAIM_TIMEOUT);
    assert_eq!(w.drain().await, DrainCounts { recovered: 1, dead_lettered: 1, ..DrainCounts::default() });
    let job = w.job(&job_id).await;
    assert_eq!(
        (job.phase, job.attempts, w.dead_letters().await, w.ready().await),
        (Phase::DeadLettered, 1, 1, 0)
    );
}

/// Claims that ran out before a person sent the job back count for nothing.
pub async fn a_redrive_forgives_the_claims_before_it<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    let job_id = w.due_retry("j").await;
    let first = w.claimed_and_died().await;
    let now = w.clock.now();
    let exhausted = w.ledger.claims_exhausted(&job_id, 1, first.first_claim, now).await.unwrap().unwrap();
    assert_eq!(exhausted.job.phase, Phase::DeadLettered);
    w.pass(MINUTE);
    let redriven = w.ledger.redrive(&job_id, 5, w.clock.now()).await.unwrap();
    assert_eq!(redriven.outcome, RedriveOutcome::Redriven);
    for _ in 1..MAX_EXPIRED_CLAIMS {
        w.pass(CLAIM_TIMEOUT);
        w.queue().claim_expired(w.clock.now(), CLAIM_TIMEOUT).await.unwrap().unwrap();
    }
    w.pass(CLAIM_TIMEOUT);
    let counts = w.drain().await;
    assert_eq!((counts.recovered, counts.dead_lettered), (1, 0));
    assert_eq!(w.drain().await.dispatched + counts.dispatched, 1);
    assert_eq!(w.job(&job_id).await.phase, Phase::Running);
}

/// Claims that ran out are taken one at a time; the one that kills takes no neighbour along.
pub async fn the_neighbours_of_an_entry_that_kills_are_dispatched<L: Ledger + LedgerReader, R: Rooms>(
    w: World<L, R>,
) {
    for id in ["a", "b", "c"] {
        let job_id = w.charge(id).await;
        w.fail(&job_id, 1).await;
    }
    w.pass(MINUTE);
    w.take_in_by_hand().await;
    assert_eq!(w.claim_by_hand().await.len(), 3);
    // All three ran out together; whoever takes up the first dies of it.
    for _ in 1..MAX_EXPIRED_CLAIMS {
        w.pass(CLAIM_TIMEOUT);
        w.queue().claim_expired(w.clock.now(), CLAIM_TIMEOUT).await.unwrap().unwrap();
        let counts = w.drain().await;
        assert!(counts.recovered <= 2 && counts.dead_lettered == 0, "{counts:?}");
    }
    w.pass(CLAIM_TIMEOUT);
    w.drain().await;
    assert_eq!((w.ready().await, w.dead_letters().await), (2, 1));
}

/// What stands overdue in a long list is not added a second time.
pub async fn the_sweep_does_not_double_a_long_overdue_queue<L: Ledger + LedgerReader, R: Rooms>(
    w: World<L, R>,
) {
    const JOBS: usize = 120;
    for n in 0..JOBS {
        let job_id = w.charge(&format!("j{n}")).await;
        w.fail(&job_id, 1).await;
    }
    w.pass(MINUTE * 60);
    let mut total = DrainCounts::default();
    for _ in 0..3 {
        total += w.drain().await;
    }
    assert_eq!(total, DrainCounts { dispatched: JOBS as u64, ..DrainCounts::default() });
    assert_eq!((w.ready().await, w.waiting().await), (JOBS as u64, 0));
}

/// A page of jobs that are all being worked on does not keep the sweep from what is lost behind it.
pub async fn the_sweep_goes_on_where_its_last_page_ended<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    const SWEEP_PAGE: usize = 500;
    for n in 0..SWEEP_PAGE {
        let job_id = w.charge(&format!("held {n}")).await;
        w.fail(&job_id, 1).await;
    }
    let lost = w.charge("lost").await;
    w.fail(&lost, 1).await;
    w.take_in_by_hand().await;
    w.pass(MINUTE * 60);
    let claims = w.claim_by_hand().await;
    let of_the_lost = claims.iter().find(|claim| claim.member == canonical(&lost, 1).into_bytes()).unwrap();
    assert!(w.queue().acknowledge(of_the_lost).await.unwrap());
    assert_eq!(w.drain().await, DrainCounts::default(), "the first page is in flight");
    assert_eq!(w.drain().await, DrainCounts { swept: 1, dispatched: 1, ..DrainCounts::default() });
}

/// A queue that lost everything is rebuilt from the jobs, not before its grace.
pub async fn a_queue_that_lost_everything_is_rebuilt<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    let job_id = w.lost_retry("j").await;
    assert_eq!(w.drain().await, DrainCounts::default());
    w.pass(SWEEP_GRACE);
    assert_eq!(w.drain().await, DrainCounts { swept: 1, dispatched: 1, ..DrainCounts::default() });
    assert_eq!(w.job(&job_id).await.phase, Phase::Running);
}

/// A far-off time that another program parked does not bury the retry: the sweep's is earlier, and wins once it
/// stands there alone; a pushed copy's is taken at once.
pub async fn a_far_off_foreign_time_buries_no_retry<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    let job_id = w.charge("j").await;
    w.queue().push(&waiting_entry(&job_id, w.clock.now().plus(MINUTE * 60 * 24 * 365))).await.unwrap();
    w.fail(&job_id, 1).await;
    assert_eq!(w.drain().await.parked, 2);
    assert_eq!(w.waiting().await, 1);
    w.pass(MINUTE);
    assert_eq!(w.drain().await, DrainCounts { dispatched: 1, ..DrainCounts::default() });
}

/// Silence of the first attempt and of a later one becomes a failure; a late success is reclaimed.
pub async fn silence_becomes_a_failure<L: Ledger + LedgerReader, R: Rooms>(mut w: World<L, R>) {
    w.attempt_timeout = Some(MINUTE * 60);
    let job_id = w.charge("j").await;
    w.pass(MINUTE * 60 - Duration::from_millis(1));
    assert_eq!(w.drain().await, DrainCounts::default());
    w.pass(Duration::from_millis(1));
    assert_eq!(w.drain().await, DrainCounts { timed_out: 1, parked: 1, ..DrainCounts::default() });
    let job = w.job(&job_id).await;
    assert_eq!((job.attempts, job.net, job.last_error.unwrap().reason.as_str()), (1, 0, "no_signal"));
    w.pass(MINUTE);
    assert_eq!(w.drain().await.dispatched, 1);
    w.pass(MINUTE * 60);
    assert_eq!(w.drain().await.timed_out, 1);
    assert_eq!(w.drain().await.timed_out, 0);
    assert_eq!(w.job(&job_id).await.attempts, 2);
    assert_eq!(w.succeed(&job_id).await.outcome, Outcome::Reclaimed);
    w.pass(MINUTE * 60 * 24);
    assert_eq!(w.drain().await, DrainCounts { dropped: 1, ..DrainCounts::default() });
}

/// A hand-over that nobody noted is the sweep's to finish; it is not silence.
pub async fn an_open_hand_over_is_no_silence<L: Ledger + LedgerReader, R: Rooms>(mut w: World<L, R>) {
    w.attempt_timeout = Some(MINUTE);
    let job_id = w.lost_retry("j").await;
    w.ledger.dispatch(&job_id, 1, false, w.clock.now()).await.unwrap().unwrap();
    w.pass(MINUTE * 10);
    assert_eq!(w.drain().await, DrainCounts { swept: 1, dispatched: 1, ..DrainCounts::default() });
    assert_eq!(w.job(&job_id).await.attempts, 1);
}

/// Without an attempt timeout silence is never a failure.
pub async fn silence_is_ignored_where_it_is_switched_off<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    w.charge("j").await;
    w.pass(MINUTE * 60 * 24 * 365);
    assert_eq!(w.drain().await, DrainCounts::default());
}

/// Two drains at once dispatch each retry once.
pub async fn two_drains_at_once_share_the_work<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    const JOBS: usize = 60;
    for n in 0..JOBS {
        let job_id = w.charge(&format!("j{n}")).await;
        w.fail(&job_id, 1).await;
    }
    w.pass(MINUTE);
    let recorder = Recorder::default();
    let target = Target::Outside(&recorder);
    let (one, two) = tokio::join!(w.drain_to(&target), w.drain_to(&target));
    assert_eq!(one.dispatched + two.dispatched, JOBS as u64);
    let sent = recorder.sent.lock().unwrap().clone();
    let distinct: HashSet<&JobId> = sent.iter().map(|message| &message.job_id).collect();
    assert_eq!((sent.len(), distinct.len()), (JOBS, JOBS));
    assert_eq!(w.waiting().await, 0);
}

/// A drain without time starts nothing, and what it claimed is not held against anybody.
pub async fn a_drain_without_time_starts_nothing<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    let job_id = w.due_retry("j").await;
    let target = Target::<&Recorder>::ReadyList;
    let deadline = Deadline::after(Duration::ZERO);
    let counts = drain(&w.ledger, w.queue(), &target, &w.settings(), &w.clock, deadline).await.unwrap();
    assert_eq!(counts, DrainCounts::default());
    assert_eq!(w.job(&job_id).await.phase, Phase::RetryWaiting);
    assert_eq!(w.drain().await.dispatched, 1);
}

/// Junk in front of good entries stops nothing, and is kept.
pub async fn junk_stops_nothing<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    for junk in [&b"{not json"[..], b"", b"null", b"[]", b"\xff\xfe", b"{\"attempts\":1}"] {
        w.rooms.push_raw(junk).await;
    }
    w.rooms.push_raw(&vec![b'x'; 1 << 20]).await;
    w.due_retry("j").await;
    let counts = w.drain().await;
    assert_eq!((counts.malformed, counts.dispatched), (7, 1));
    assert_eq!((w.dead_letters().await, w.waiting().await), (7, 0));
}

/// An entry that comes before its failure was counted waits for its time and is then judged.
pub async fn an_entry_of_an_unknown_job_or_attempt_is_dropped_when_due<L: Ledger + LedgerReader, R: Rooms>(
    w: World<L, R>,
) {
    let job_id = w.charge("j").await;
    let nobody = JobId::new("nobody").unwrap();
    w.queue().push(&waiting_entry(&job_id, w.clock.now())).await.unwrap();
    w.queue().push(&waiting_entry(&nobody, w.clock.now())).await.unwrap();
    assert_eq!(w.drain().await, DrainCounts { dropped: 2, ..DrainCounts::default() });
    assert_eq!(w.job(&job_id).await.phase, Phase::Running);
}

/// The member of parked is the canonical form, whoever pushed it and with whatever time.
pub async fn the_same_retry_never_waits_twice<L: Ledger + LedgerReader, R: Rooms>(w: World<L, R>) {
    let job_id = w.charge("j").await;
    w.fail(&job_id, 1).await;
    let waiting = waiting_retry(&w.job(&job_id).await).unwrap();
    for minutes in 1..5 {
        w.queue()
            .push(&RetryEntry { not_before: w.clock.now().plus(MINUTE * minutes), ..waiting.clone() })
            .await
            .unwrap();
    }
    w.drain().await;
    assert_eq!(w.waiting().await, 1);
    w.pass(Duration::from_secs(4));
    assert_eq!(w.drain().await.dispatched, 1, "the earliest of the times counts");
    let claims = w.claim_by_hand().await;
    assert!(claims.is_empty(), "{} is gone", canonical(&job_id, 1));
}

/// The whole suite, for a function that makes a fresh [`World`].
#[macro_export]
macro_rules! drain_suite {
    ($make:path) => {
        $crate::drain_suite!(@each $make:
            a_retry_is_dispatched_once_and_never_early,
            a_job_at_its_cap_is_set_aside_at_once,
            a_lost_entry_at_the_cap_is_set_aside,
            a_delivered_job_is_not_dispatched,
            a_hand_over_that_fails_is_tried_for_ever,
            a_death_after_the_claim_is_recovered,
            a_death_before_the_hand_over_is_finished,
            an_open_hand_over_is_found_without_the_queue,
            a_death_before_the_note_sends_twice_at_worst,
            an_open_dead_letter_is_finished,
            an_entry_that_kills_is_set_aside,
            a_redrive_forgives_the_claims_before_it,
            the_neighbours_of_an_entry_that_kills_are_dispatched,
            the_sweep_does_not_double_a_long_overdue_queue,
            the_sweep_goes_on_where_its_last_page_ended,
            a_queue_that_lost_everything_is_rebuilt,
            a_far_off_foreign_time_buries_no_retry,
            silence_becomes_a_failure,
            an_open_hand_over_is_no_silence,
            silence_is_ignored_where_it_is_switched_off,
            two_drains_at_once_share_the_work,
            a_drain_without_time_starts_nothing,
            junk_stops_nothing,
            an_entry_of_an_unknown_job_or_attempt_is_dropped_when_due,
            the_same_retry_never_waits_twice,
        );
    };
    (@each $make:path: $($name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                $crate::drain_suite::$name($make().await).await;
            }
        )*
    };
}
