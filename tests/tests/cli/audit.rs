//! `audit`: what breaks a rule is found, and what is on its way is not.

use serde_json::json;

use crate::harness::Recoup;

/// A store on which every retry is overdue at once.
fn impatient() -> Recoup {
    Recoup::on_a_file()
        .with("RETRY_BASE_DELAY", "1ms")
        .with("RETRY_MAX_DELAY", "1ms")
        .with("SWEEP_GRACE", "0s")
        .with("CLAIM_TIMEOUT", "1ms")
}

#[test]
fn a_sound_ledger_passes() {
    let recoup = impatient();
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1"]);
    recoup.charge("j2", "a1", 40);
    recoup.json(&["succeeded", "j2"]);
    recoup.json(&["drain"]);
    assert_eq!(
        recoup.ok(&["audit"]),
        "2 jobs audited, 0 overdue retries looked up in the queue: no violation.\n"
    );
    assert_eq!(recoup.json(&["audit"]), json!({"jobs": 2, "retries": 0, "unjudged": 0, "violations": 0}));
}

#[test]
fn entries_that_do_not_follow_from_cost_and_flags_are_found() {
    let recoup = impatient();
    for job in ["j1", "j2", "j3"] {
        recoup.charge(job, "a1", 40);
    }
    recoup.json(&["failed", "j2", "--no-retry"]);
    recoup.tamper(
        "UPDATE entries SET amount = -39 WHERE job_id = 'j1';
         DELETE FROM entries WHERE job_id = 'j2' AND position = 1;",
    );
    let run = recoup.run(&["audit"]);
    assert_eq!(run.status, 1);
    assert_eq!(
        run.stdout,
        "job j1: entries are [charge -39], but cost and flags ask for [charge -40]\n\
         job j2: entries are [charge -40], but cost and flags ask for [charge -40, refund +40]\n"
    );
    assert_eq!(
        run.stderr,
        "recoup: the audit of the file recoup.db found 2 violations in 3 jobs; docs/OPERATIONS.md says what each means \
         and what mends it\n"
    );
    let run = recoup.run(&["--json", "audit"]);
    let lines: Vec<serde_json::Value> =
        run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["job_id"], "j1");
    assert_eq!(lines[2], json!({"jobs": 3, "retries": 0, "unjudged": 0, "violations": 2}));
}

#[test]
fn a_job_that_cannot_be_read_is_a_violation() {
    let recoup = impatient();
    recoup.charge("j1", "a1", 40);
    recoup.tamper("UPDATE jobs SET phase = 'limbo'");
    let run = recoup.run(&["audit"]);
    assert_eq!(run.status, 1);
    assert!(run.stdout.starts_with("job j1: ") && run.stdout.contains("limbo"), "{run:?}");
    let run = recoup.run(&["export"]);
    assert_eq!((run.status, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.contains("1 job could not be read and were left out of the export"), "{run:?}");
}

#[test]
fn an_overdue_retry_that_stands_nowhere_is_found_and_a_drain_mends_it() {
    let recoup = impatient();
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1", "--attempt", "1"]);
    recoup.tamper("DELETE FROM retry");
    let run = recoup.run(&["audit"]);
    assert_eq!(run.status, 1);
    assert!(run.stdout.starts_with("job j1: attempt 2 should have been taken up since 2"), "{run:?}");
    assert!(recoup.run(&["--json", "drain"]).stdout.contains(r#""swept":1"#));
    recoup.ok(&["audit"]);
}

#[test]
fn a_hand_over_that_nobody_finishes_is_found() {
    let recoup = impatient();
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1", "--attempt", "1"]);
    recoup.json(&["drain"]);
    recoup.ok(&["audit"]);
    recoup.tamper("UPDATE jobs SET dispatched_at = NULL, updated_at = updated_at - 1000");
    assert_eq!(recoup.run(&["audit"]).status, 1);
    assert!(recoup.run(&["--json", "drain"]).stdout.contains(r#""swept":1"#));
    recoup.ok(&["audit"]);
}

#[test]
fn a_retry_that_may_stand_among_new_entries_is_not_judged() {
    let recoup = impatient();
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1", "--attempt", "1"]);
    assert_eq!(recoup.json(&["audit"]), json!({"jobs": 1, "retries": 1, "unjudged": 1, "violations": 0}));
    let shown = recoup.ok(&["audit"]);
    assert!(shown.contains("1 retry could not be judged, because new entries stand in the queue"), "{shown}");
}

#[test]
fn a_retry_that_is_not_overdue_is_not_asked_for() {
    let recoup = Recoup::on_a_file();
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1", "--attempt", "1"]);
    recoup.tamper("DELETE FROM retry");
    recoup.ok(&["audit"]);
}
