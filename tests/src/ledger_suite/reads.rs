//! What a store answers to questions: sums, rows, pages.

use std::collections::HashSet;

use recoup::job::{AccountId, EntryType, JobId, LedgerRow, MAX_COST, Phase};
use recoup::ledger::{Cursor, Found, LedgerError, Outstanding, Totals};
use recoup::transition::Charge;

use super::commands::{Command, charge, failure_of};
use super::{Store, account, at, job_id};

/// More pages than any of these listings has.
const MAX_PAGES: usize = 20;

async fn charged<L: Store>(ledger: &L, id: &str, owner: &str, cost: i64, seconds: i64) -> JobId {
    let id = job_id(id);
    let charge = Charge { account_id: account(owner), ..charge(&id, cost, 2) };
    ledger.charge(&charge, at(seconds)).await.expect("charged");
    id
}

async fn failed<L: Store>(ledger: &L, id: &JobId, k: u32, seconds: i64) {
    Command::Fail(failure_of(k)).run(ledger, id, at(seconds)).await;
}

/// A balance adds up the entries of the account's own jobs.
pub async fn a_balance_is_the_sum_of_the_entries<L: Store>(ledger: L) {
    assert_eq!(ledger.balance(&account("a")).await.expect("summed"), 0);
    charged(&ledger, "j1", "a", 40, 0).await;
    let refunded = charged(&ledger, "j2", "a", 7, 0).await;
    let reclaimed = charged(&ledger, "j3", "a", 500, 0).await;
    charged(&ledger, "j4", "b", 1_000, 0).await;
    failed(&ledger, &refunded, 1, 1).await;
    failed(&ledger, &reclaimed, 1, 1).await;
    assert_eq!(ledger.balance(&account("a")).await.expect("summed"), -40);
    ledger.record_success(&reclaimed, None, at(2)).await.expect("answered");
    assert_eq!(ledger.balance(&account("a")).await.expect("summed"), -540);
    assert_eq!(ledger.balance(&account("b")).await.expect("summed"), -1_000);
    assert_eq!(ledger.balance(&account("A")).await.expect("summed"), 0);
}

/// A sum that no 64-bit integer holds is an error, not a rounded number; one that just fits is exact.
pub async fn a_balance_that_no_integer_holds_is_an_error<L: Store>(ledger: L) {
    // 1024 (2^53 - 1) + 1024 = 2^63: the smallest number that a signed integer holds, and one more is too much.
    for n in 0..1_024 {
        charged(&ledger, &format!("j{n}"), "a", MAX_COST, 0).await;
    }
    charged(&ledger, "filler", "a", 1_024, 0).await;
    assert_eq!(ledger.balance(&account("a")).await.expect("it just fits"), i64::MIN);
    charged(&ledger, "one more", "a", 1, 0).await;
    let beyond = ledger.balance(&account("a")).await;
    assert!(matches!(beyond, Err(LedgerError::Overflow(_))), "{beyond:?}");
    let beyond = ledger.totals().await;
    assert!(matches!(beyond, Err(LedgerError::Overflow(_))), "{beyond:?}");
}

async fn rows<L: Store>(ledger: &L, owner: &AccountId, until: Option<i64>) -> Vec<LedgerRow> {
    let mut rows = Vec::new();
    ledger.statement(owner, until.map(at), &mut |row| rows.push(row)).await.expect("the rows can be read");
    rows
}

/// A statement goes by time, then by the entry's position in its job, and ends before `until`.
pub async fn a_statement_goes_by_time_and_position<L: Store>(ledger: L) {
    let z = charged(&ledger, "z", "a", 3, 5).await;
    let a = charged(&ledger, "a", "a", 4, 7).await;
    charged(&ledger, "other", "b", 9, 6).await;
    failed(&ledger, &z, 1, 7).await;
    failed(&ledger, &a, 1, 7).await;
    ledger.record_success(&a, None, at(7)).await.expect("answered");
    ledger.record_success(&z, None, at(9)).await.expect("answered");

    let all = rows(&ledger, &account("a"), None).await;
    let order: Vec<(&str, i64, i64)> = all
        .iter()
        .map(|row| (row.id.as_str(), row.amount, (row.created_at.as_millis() - at(0).as_millis()) / 1_000))
        .collect();
    let mut refunds = order[2..4].to_vec();
    refunds.sort_unstable();
    assert_eq!(order[..2], [("z:charge", -3, 5), ("a:charge", -4, 7)]);
    assert_eq!(refunds, [("a:refund", 4, 7), ("z:refund", 3, 7)]);
    assert_eq!(order[4..], [("a:reclaim", -4, 7), ("z:reclaim", -3, 9)]);
    assert_eq!(
        all[0],
        LedgerRow {
            id: "z:charge".to_owned(),
            job_id: z,
            account_id: account("a"),
            kind: EntryType::Charge,
            amount: -3,
            created_at: at(5),
        }
    );

    assert_eq!(rows(&ledger, &account("a"), Some(9)).await, all[..5]);
    assert_eq!(rows(&ledger, &account("a"), Some(7)).await, all[..1]);
    assert_eq!(rows(&ledger, &account("a"), Some(5)).await, []);
    assert_eq!(rows(&ledger, &account("nobody"), None).await, []);
}

/// Jobs come by id, in pages that join without gap or overlap; of one phase, where one is asked for.
pub async fn jobs_come_in_pages_by_id<L: Store>(ledger: L) {
    let ids = ["$first", "B", "a", "aa", "b.c", "é", "\u{1F600}"];
    for id in ids.iter().rev() {
        charged(&ledger, id, "a", 1, 0).await;
    }
    for id in ["a", "é"] {
        ledger.record_success(&job_id(id), None, at(1)).await.expect("answered");
    }
    for limit in [1, 2, 3, 7, 100] {
        assert_eq!(paged(&ledger, None, limit).await, ids, "in pages of {limit}");
        assert_eq!(paged(&ledger, Some(Phase::Delivered), limit).await, ["a", "é"], "in pages of {limit}");
        assert_eq!(paged(&ledger, Some(Phase::DeadLettered), limit).await, [""; 0], "in pages of {limit}");
    }
    assert!(ledger.jobs(None, None, 0).await.expect("read").is_empty());
}

async fn paged<L: Store>(ledger: &L, phase: Option<Phase>, limit: usize) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for _ in 0..MAX_PAGES {
        let page = ledger.jobs(phase, ids.last().map(String::as_str), limit).await.expect("read");
        assert!(page.len() <= limit);
        if page.is_empty() {
            return ids;
        }
        for (id, job) in page {
            assert_eq!(job.expect("it can be read").job_id.as_str(), id);
            ids.push(id);
        }
    }
    panic!("the pages do not end: {ids:?}");
}

/// Totals add up entries and count jobs; nothing is given away.
pub async fn totals_add_up<L: Store>(ledger: L) {
    assert_eq!(ledger.totals().await.expect("summed"), Totals::default());
    charged(&ledger, "running", "a", 1, 0).await;
    let delivered = charged(&ledger, "delivered", "a", 20, 0).await;
    let waiting = charged(&ledger, "waiting", "b", 300, 0).await;
    let reclaimed = charged(&ledger, "reclaimed", "c", 4_000, 0).await;
    ledger.record_success(&delivered, None, at(1)).await.expect("answered");
    failed(&ledger, &waiting, 1, 1).await;
    failed(&ledger, &reclaimed, 1, 1).await;
    ledger.record_success(&reclaimed, None, at(2)).await.expect("answered");
    assert_eq!(
        ledger.totals().await.expect("summed"),
        Totals {
            jobs: 4,
            accounts: 3,
            charged: 4_321,
            refunded: 4_300,
            reclaimed: 4_000,
            waiting: 1,
            given_away: 0,
        }
    );
}

/// A job that a replay made is marked; any other is live.
pub async fn replayed_jobs_are_not_live<L: Store>(ledger: L) {
    assert_eq!(ledger.any_live_job().await.expect("read"), None);
    let id = job_id("past");
    let past = Charge { replayed: true, ..charge(&id, 1, 5) };
    assert!(ledger.charge(&past, at(0)).await.expect("charged").job.replayed);
    failed(&ledger, &id, 1, 1).await;
    assert!(ledger.job(&id).await.expect("read").expect("there").replayed);
    assert_eq!(ledger.any_live_job().await.expect("read"), None);
    charged(&ledger, "today's", "a", 1, 0).await;
    assert_eq!(ledger.any_live_job().await.expect("read").as_deref(), Some("today's"));
}

/// Jobs of each kind: some at the same time, one too young, and the neighbours that must not be found.
async fn outstanding_jobs<L: Store>(ledger: &L) {
    for (id, seconds) in [("s3", 30), ("s1", 10), ("s2b", 20), ("s2a", 20), ("s2c", 20), ("young s", 500)] {
        charged(ledger, id, "a", 1, seconds).await;
    }
    for (id, seconds) in [("w3", 30), ("w1", 10), ("w2b", 20), ("w2a", 20), ("young w", 500)] {
        let id = charged(ledger, id, "a", 1, 0).await;
        failed(ledger, &id, 1, seconds - 4).await;
    }
    for (id, seconds) in [("o3", 30), ("o1", 10), ("o2b", 20), ("o2a", 20), ("o2c", 20), ("young o", 500)] {
        let id = charged(ledger, id, "a", 1, 0).await;
        failed(ledger, &id, 1, 1).await;
        Command::Dispatch { attempts: 1, ran_out: false }.run(ledger, &id, at(seconds)).await;
    }
    for (id, seconds) in [("h3", 30), ("h1", 10), ("h2b", 20), ("h2a", 20), ("h2c", 20), ("young h", 500)] {
        let id = charged(ledger, id, "a", 1, 0).await;
        failed(ledger, &id, 1, 1).await;
        Command::Dispatch { attempts: 1, ran_out: false }.run(ledger, &id, at(5)).await;
        Command::HandedOver { attempts: 1 }.run(ledger, &id, at(seconds)).await;
    }
    for id in ["delivered", "failed"] {
        let id = charged(ledger, id, "a", 1, 0).await;
        failed(ledger, &id, 1, 1).await;
    }
    ledger.record_success(&job_id("delivered"), None, at(2)).await.expect("answered");
    let verdict = super::commands::for_good(failure_of(1));
    ledger.record_failure(&job_id("failed"), None, &verdict, at(2)).await.expect("answered");
}

/// Each kind of outstanding job comes by its own time, oldest first, up to `until`; a page goes on where the last one
/// ended, in the middle of jobs of the same time too.
pub async fn outstanding_jobs_come_oldest_first_in_pages<L: Store>(ledger: L) {
    outstanding_jobs(&ledger).await;
    for (kind, letter, attempts, twins) in [
        (Outstanding::SilentFirstAttempt, "s", 0, "abc"),
        (Outstanding::OverdueRetry, "w", 1, "ab"),
        (Outstanding::OpenHandOver, "o", 1, "abc"),
        (Outstanding::SilentRetry, "h", 1, "abc"),
    ] {
        let found = |id: String, seconds| Found { job_id: job_id(&id), attempts, at: at(seconds) };
        let mut expected = vec![found(format!("{letter}1"), 10)];
        expected.extend(twins.chars().map(|twin| found(format!("{letter}2{twin}"), 20)));
        expected.push(found(format!("{letter}3"), 30));
        for limit in [1, 2, 3, 50] {
            assert_eq!(
                all_outstanding(&ledger, kind, 30, limit).await,
                expected,
                "{kind:?} in pages of {limit}"
            );
        }
        expected.pop();
        assert_eq!(all_outstanding(&ledger, kind, 29, 50).await, expected, "{kind:?} before the last");
        assert_eq!(all_outstanding(&ledger, kind, 9, 50).await, [], "{kind:?} before the first");
        assert!(ledger.outstanding(kind, at(30), None, 0).await.expect("read").is_empty());
    }
}

async fn all_outstanding<L: Store>(ledger: &L, kind: Outstanding, until: i64, limit: usize) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for _ in 0..MAX_PAGES {
        let after: Option<Cursor> = all.last().map(Found::cursor);
        let page = ledger.outstanding(kind, at(until), after.as_ref(), limit).await.expect("read");
        assert!(page.len() <= limit);
        assert!(all.len() < 100, "the pages go round");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
    panic!("the pages do not end: {all:?}");
}

/// Of the retries asked about, those are named that wait at their job's cap with just these failures.
pub async fn jobs_at_their_cap_are_named<L: Store>(ledger: L) {
    let below = charged(&ledger, "below", "a", 1, 0).await;
    let at_cap = charged(&ledger, "at cap", "a", 1, 0).await;
    let over = charged(&ledger, "over", "a", 1, 0).await;
    let delivered = charged(&ledger, "delivered", "a", 1, 0).await;
    failed(&ledger, &below, 1, 1).await;
    for (id, k) in [(&at_cap, 2), (&over, 3), (&delivered, 2)] {
        failed(&ledger, id, k, 1).await;
    }
    ledger.record_success(&delivered, None, at(2)).await.expect("answered");
    let asked: Vec<(JobId, u32)> =
        [(&below, 1), (&at_cap, 2), (&at_cap, 1), (&over, 3), (&over, 2), (&delivered, 2)]
            .map(|(id, attempts)| (id.clone(), attempts))
            .into_iter()
            .chain([(job_id("unknown"), 2)])
            .collect();
    let named = ledger.at_cap(&asked).await.expect("read");
    assert_eq!(named, HashSet::from([(at_cap, 2), (over, 3)]));
    assert!(ledger.at_cap(&[]).await.expect("read").is_empty());
}
