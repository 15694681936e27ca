//! `init`, `charge`, `failed`, `succeeded`, `drain`.

use serde_json::json;

use crate::harness::Recoup;

#[test]
fn init_makes_the_file_and_may_run_again() {
    let recoup = Recoup::on_a_file();
    assert_eq!(recoup.json(&["init"]), json!({"initialised": true, "store": "embedded"}));
    recoup.charge("j1", "a1", 40);
    assert!(recoup.ok(&["init"]).contains("the file recoup.db is ready"));
    assert_eq!(recoup.json(&["balance", "a1"])["balance"], -40);
}

#[test]
fn a_charge_is_made_once() {
    let recoup = Recoup::on_a_file();
    let charged = recoup.charge("j1", "a1", 40);
    assert_eq!(charged, json!({"job_id": "j1", "outcome": "charged", "attempts": 0, "phase": "running"}));
    assert_eq!(recoup.charge("j1", "a1", 40)["outcome"], "duplicate");
    assert_eq!(
        recoup.ok(&["charge", "j2", "--account", "a1", "--cost", "1"]),
        "charged: job j2, 1 credit from account a1\n"
    );
    assert!(recoup.ok(&["charge", "j2", "--account", "a1", "--cost", "1"]).starts_with("duplicate: job j2"));
    assert_eq!(recoup.json(&["balance", "a1"])["balance"], -41);
}

#[test]
fn another_cost_or_account_under_the_same_job_is_a_conflict() {
    let recoup = Recoup::on_a_file();
    recoup.charge("j1", "a1", 40);
    for (account, cost) in [("a1", "41"), ("a2", "40")] {
        let why = recoup.refused(1, &["charge", "j1", "--account", account, "--cost", cost]);
        assert!(
            why.starts_with(r#"charge conflict: job "j1" stands at 40 credits for account "a1""#),
            "{why}"
        );
    }
}

#[test]
fn a_cost_is_one_to_the_largest_that_a_double_holds() {
    let recoup = Recoup::on_a_file();
    for cost in ["0", "-1", "-9223372036854775808", "9007199254740992", "99999999999999999999", "1.5", "ten"]
    {
        let why = recoup.refused(2, &["charge", "j1", "--account", "a1", "--cost", cost]);
        assert!(why.contains("a cost is 1 to 9007199254740991 whole credits"), "{why}");
    }
    assert_eq!(recoup.charge("j1", "a1", 9_007_199_254_740_991)["outcome"], "charged");
    assert_eq!(recoup.json(&["balance", "a1"])["balance"], -9_007_199_254_740_991_i64);
}

#[test]
fn an_id_may_start_with_a_dash_after_a_double_dash() {
    let recoup = Recoup::on_a_file();
    let charged = recoup.json(&["charge", "--account", "-a", "--cost", "5", "--", "-j"]);
    assert_eq!(charged["job_id"], "-j");
    assert!(recoup.ok(&["charge", "--help"]).contains("one that starts with a dash comes last, after `--`"));
    recoup.refused(2, &["charge", "--", "-k", "--account", "-a", "--cost", "5"]);
    assert_eq!(recoup.json(&["balance", "--", "-a"])["balance"], -5);
}

#[test]
fn a_failure_refunds_and_a_late_success_takes_the_refund_back() {
    let recoup = Recoup::on_a_file();
    recoup.charge("j1", "a1", 40);
    let failed = recoup.json(&["failed", "j1", "--attempt", "1", "--reason", "worker timeout"]);
    assert_eq!((&failed["outcome"], &failed["phase"]), (&json!("refunded"), &json!("retry_waiting")));
    assert!(failed["not_before"].is_string());
    assert_eq!(recoup.json(&["failed", "j1", "--attempt", "1"])["outcome"], "duplicate");
    assert_eq!(recoup.json(&["failed", "j1", "--attempt", "2"])["outcome"], "failure_recorded");
    assert_eq!(recoup.json(&["balance", "a1"])["balance"], 0);
    let succeeded = recoup.json(&["succeeded", "j1", "--attempt", "1"]);
    assert_eq!(
        succeeded,
        json!({"job_id": "j1", "outcome": "reclaimed", "attempts": 2, "phase": "delivered"})
    );
    assert_eq!(recoup.json(&["succeeded", "j1"])["outcome"], "duplicate");
    assert_eq!(recoup.json(&["failed", "j1", "--attempt", "3"])["outcome"], "already_delivered");
    assert_eq!(recoup.json(&["balance", "a1"])["balance"], -40);
}

#[test]
fn answers_to_people_are_sentences() {
    let recoup = Recoup::on_a_file();
    recoup.charge("j1", "a1", 40);
    let failed = recoup.ok(&["failed", "j1"]);
    assert!(failed.starts_with("refunded: job j1: its credits went back to the account\n"), "{failed}");
    assert!(failed.contains("phase retry_waiting, 1 failed attempt; next attempt in "), "{failed}");
    let succeeded = recoup.ok(&["succeeded", "j1"]);
    assert!(succeeded.starts_with("reclaimed: job j1: it was refunded before, and"), "{succeeded}");
}

#[test]
fn a_failure_that_no_retry_can_mend_is_final() {
    let recoup = Recoup::on_a_file();
    recoup.charge("j1", "a1", 40);
    assert_eq!(recoup.json(&["failed", "j1", "--no-retry"])["phase"], "failed");
}

#[test]
fn a_failure_without_an_attempt_number_is_known_again_by_its_event_id() {
    let recoup = Recoup::on_a_file().with("RETRY_BASE_DELAY", "1ms").with("RETRY_MAX_DELAY", "1ms");
    recoup.charge("j1", "a1", 40);
    assert_eq!(recoup.json(&["failed", "j1", "--event-id", "e1"])["outcome"], "refunded");
    assert_eq!(recoup.json(&["drain"])["dispatched"], 1);
    assert_eq!(recoup.json(&["failed", "j1", "--event-id", "e1"])["outcome"], "duplicate");
    assert_eq!(recoup.json(&["failed", "j1", "--event-id", "e2"])["outcome"], "failure_recorded");
}

#[test]
fn events_of_unknown_jobs_and_other_accounts_are_refused() {
    let recoup = Recoup::on_a_file();
    recoup.charge("j1", "a1", 40);
    for event in ["failed", "succeeded"] {
        let why = recoup.refused(1, &[event, "nope"]);
        assert!(why.starts_with(r#"job "nope" is not in the ledger; charge it first"#), "{why}");
        let why = recoup.refused(1, &[event, "j1", "--account", "a2"]);
        assert!(why.starts_with(r#"job "j1" belongs to another account than "a2""#), "{why}");
        assert_eq!(recoup.json(&["balance", "a1"])["balance"], -40);
    }
}

#[test]
fn a_drain_hands_due_retries_over_and_counts() {
    let recoup = Recoup::on_a_file().with("RETRY_BASE_DELAY", "1ms").with("RETRY_MAX_DELAY", "1ms");
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1", "--attempt", "1"]);
    let counts = recoup.json(&["drain"]);
    assert_eq!(
        counts,
        json!({"dispatched": 1, "parked": 0, "dead_lettered": 0, "dropped": 0, "recovered": 0, "malformed": 0,
               "swept": 0, "timed_out": 0})
    );
    assert_eq!(recoup.rows("ready"), 1);
    assert!(recoup.ok(&["drain"]).contains("  0  dispatched     retries handed to the workers\n"));
}

#[test]
fn an_embedded_drain_uses_the_ready_list_whatever_the_dispatch_target_is() {
    let recoup = Recoup::on_a_file()
        .with("RETRY_BASE_DELAY", "1ms")
        .with("RETRY_MAX_DELAY", "1ms")
        .with("DISPATCH_TARGET", "eventbridge:retries");
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1"]);
    assert_eq!(recoup.json(&["drain"])["dispatched"], 1);
    assert_eq!(recoup.rows("ready"), 1);
}
