//! One suite for every ledger store: each row of the contract's tables as a claim that a store keeps.
//!
//! [`ledger_suite!`](crate::ledger_suite!) makes each claim a test of its own over a fresh store. Four rooms:
//! [`rules`] holds the tables, written out by hand; [`races`] many writers at once; [`random`] the store against the
//! transition function; [`reads`] balances, statements, pages and totals.

use std::any::Any;
use std::fmt;

use recoup::clock::Timestamp;
use recoup::job::{AccountId, Job, JobId};
use recoup::ledger::{Ledger, LedgerReader};

pub mod commands;
pub mod races;
pub mod random;
pub mod reads;
pub mod rules;

/// What the suite needs of a store.
pub trait Store: Ledger + LedgerReader + 'static {}
impl<L: Ledger + LedgerReader + 'static> Store for L {}

/// A store that nobody has written to, and what must live as long as it does.
pub struct Fresh<L> {
    /// The store.
    pub ledger: L,
    keep: Box<dyn Any + Send>,
}

impl<L> Fresh<L> {
    /// A store, with `keep` (a directory, a server) held until the test is over.
    pub fn new(ledger: L, keep: impl Any + Send) -> Self {
        Self { ledger, keep: Box::new(keep) }
    }

    /// The store alone, and what it must be kept with.
    pub fn split(self) -> (L, Box<dyn Any + Send>) {
        (self.ledger, self.keep)
    }
}

impl<L: fmt::Debug> fmt::Debug for Fresh<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

/// Makes a test of every claim. `fresh` is an async function without arguments that gives a [`Fresh`] store;
/// `sequences`: how many random sequences of commands to hold against the transition function.
#[macro_export]
macro_rules! ledger_suite {
    ($fresh:path, sequences = $sequences:expr) => {
        $crate::ledger_suite!(@claims $fresh;
            rules: every_command_answers_in_every_phase_as_the_table_says,
            rules: a_charge_is_written_once,
            rules: a_refund_and_a_reclaim_are_written_with_their_flags,
            rules: delivered_work_is_never_refunded,
            rules: look_alikes_are_jobs_of_their_own,
            rules: a_verdict_on_a_waiting_retry_stops_it,
            rules: a_job_that_was_set_aside_stays_so_however_it_fails,
            rules: every_order_with_a_success_ends_paid,
            rules: every_order_without_a_success_ends_unpaid,
            rules: entries_never_go_back_in_time,
            rules: the_last_sixteen_counted_events_are_remembered,
            rules: attempts_up_to_the_largest_number_are_counted,
            rules: a_redrive_saturates,
            rules: a_reason_and_an_id_are_kept_as_they_are,
            rules: another_account_is_refused_and_changes_nothing,
            rules: an_unknown_job_is_an_error_or_none,
            rules: an_unknown_attempt_waits_for_its_own_delay,
            races: one_of_many_charges_wins,
            races: one_of_many_failures_refunds,
            races: one_of_many_successes_reclaims,
            races: failures_and_successes_move_each_credit_once,
            races: one_of_many_dispatches_wins,
            races: a_failure_beside_its_charge_is_unknown_or_counted,
            reads: a_balance_is_the_sum_of_the_entries,
            reads: a_balance_that_no_integer_holds_is_an_error,
            reads: a_statement_goes_by_time_and_position,
            reads: jobs_come_in_pages_by_id,
            reads: totals_add_up,
            reads: replayed_jobs_are_not_live,
            reads: outstanding_jobs_come_oldest_first_in_pages,
            reads: jobs_at_their_cap_are_named,
        );

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn random_commands_do_what_the_transition_function_says() {
            let (ledger, _keep) = $fresh().await.split();
            $crate::ledger_suite::random::commands_do_what_the_transition_function_says(&ledger, $sequences);
        }
    };
    (@claims $fresh:path; $($room:ident: $claim:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                let (ledger, _keep) = $fresh().await.split();
                $crate::ledger_suite::$room::$claim(ledger).await;
            }
        )*
    };
}

/// The time `seconds` after the suite's beginning, 2026-01-01T00:00:00Z.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000 + seconds * 1_000)
}

/// A job's id.
pub fn job_id(text: &str) -> JobId {
    JobId::new(text).expect("the suite's ids are ids")
}

/// An account's id.
pub fn account(text: &str) -> AccountId {
    AccountId::new(text).expect("the suite's ids are ids")
}

/// The job as the store holds it, which must keep every invariant.
///
/// # Panics
/// Where there is none, or it breaks one.
pub async fn stored<L: Store>(ledger: &L, id: &JobId) -> Job {
    let job = ledger.job(id).await.expect("the job can be read").expect("the job is there");
    assert_eq!(job.violations(), Vec::<String>::new(), "{job:?}");
    job
}
