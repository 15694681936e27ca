//! `dead-letters`: what a person decides about.

use serde_json::{Value, json};

use crate::harness::Recoup;

/// One job in each of the phases: `dead`, `failed`, `waiting`, `running`, `delivered`.
fn with_every_phase() -> Recoup {
    let recoup = Recoup::on_a_file().with("RETRY_MAX_ATTEMPTS", "1");
    for job in ["dead", "failed", "waiting", "running", "delivered"] {
        recoup.charge(job, "a1", 40);
    }
    recoup.json(&["failed", "dead", "--attempt", "1", "--reason", "out of memory"]);
    assert_eq!(recoup.json(&["drain"])["dead_lettered"], 1);
    recoup.json(&["failed", "failed", "--attempt", "1", "--no-retry"]);
    recoup.json(&["failed", "waiting", "--attempt", "1"]);
    recoup.json(&["succeeded", "delivered"]);
    recoup
}

fn jobs(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["job_id"].as_str().unwrap()).collect()
}

#[test]
fn the_list_is_what_the_ledger_says() {
    let recoup = with_every_phase();
    recoup.tamper("DELETE FROM dead_letter");
    for list in [&["dead-letters"][..], &["dead-letters", "list"]] {
        assert_eq!(jobs(&recoup.lines(list)), ["dead"]);
    }
    let line = &recoup.lines(&["dead-letters"])[0];
    assert_eq!(
        (&line["phase"], &line["attempts"], &line["cost"]),
        (&json!("dead_lettered"), &json!(1), &json!(40))
    );
    assert_eq!(line["last_error"]["reason"], "out of memory");
    for list in [&["dead-letters", "--failed"][..], &["dead-letters", "list", "--failed"]] {
        assert_eq!(jobs(&recoup.lines(list)), ["dead", "failed"]);
    }
    let shown = recoup.ok(&["dead-letters"]);
    assert!(shown.contains("1 of 1") && shown.contains("out of memory"), "{shown}");
    assert!(
        shown.ends_with("1 job set aside. To try one again: recoup dead-letters redrive JOB\n"),
        "{shown}"
    );
}

#[test]
fn an_empty_list_says_so() {
    let recoup = Recoup::on_a_file();
    recoup.json(&["init"]);
    assert_eq!(recoup.ok(&["dead-letters"]), "No job is set aside.\n");
    assert_eq!(recoup.lines(&["dead-letters"]), Vec::<Value>::new());
    assert_eq!(recoup.ok(&["dead-letters", "redrive", "--all"]), "0 jobs sent back to the retry queue\n");
}

#[test]
fn a_dead_letter_is_shown_and_no_other_job() {
    let recoup = with_every_phase();
    assert!(recoup.ok(&["dead-letters", "show", "dead"]).contains("out of attempts; set aside for a person"));
    assert_eq!(recoup.json(&["dead-letters", "show", "failed"])["phase"], "failed");
    let why = recoup.refused(1, &["dead-letters", "show", "running"]);
    assert_eq!(why, r#"job "running" is not set aside: its phase is running; see `recoup job running`"#);
    assert!(recoup.refused(1, &["dead-letters", "show", "nope"]).contains("is not in the file recoup.db"));
}

#[test]
fn a_redrive_gives_a_fresh_allowance_and_the_retry_runs() {
    let recoup = with_every_phase();
    let sent = recoup.lines(&["dead-letters", "redrive", "dead", "failed"]);
    assert_eq!(jobs(&sent), ["dead", "failed"]);
    assert_eq!(
        (&sent[0]["outcome"], &sent[0]["phase"], &sent[0]["attempts"], &sent[0]["max_attempts"]),
        (&json!("redriven"), &json!("retry_waiting"), &json!(1), &json!(2))
    );
    assert!(sent[0]["not_before"].is_string());
    // `waiting` is at its cap, and is set aside by the same drain.
    let counts = recoup.json(&["drain"]);
    assert_eq!((&counts["dispatched"], &counts["dead_lettered"]), (&json!(2), &json!(1)));
    assert_eq!(recoup.json(&["job", "dead"])["phase"], "running");
}

#[test]
fn a_redrive_of_a_job_that_is_not_set_aside_is_refused_and_the_others_go() {
    let recoup = with_every_phase();
    for (job, phase) in [("running", "running"), ("waiting", "retry_waiting"), ("delivered", "delivered")] {
        let why = recoup.refused(1, &["dead-letters", "redrive", job]);
        assert!(why.starts_with(&format!(r#"job "{job}" is not set aside: its phase is {phase}"#)), "{why}");
    }
    let run = recoup.run(&["dead-letters", "redrive", "nope", "dead", "running"]);
    assert_eq!(run.status, 1);
    assert_eq!(run.stdout, "redriven: job dead, due now, with 1 further attempt\n");
    assert_eq!(
        run.stderr,
        "recoup: job \"nope\" is not in the file recoup.db; job \"running\" is not set aside: its phase is running; \
         1 sent back; only dead-lettered and failed jobs can be sent back\n"
    );
}

#[test]
fn a_redrive_of_all_takes_dead_letters_and_leaves_failed_jobs() {
    let recoup = with_every_phase();
    assert_eq!(recoup.ok(&["dead-letters", "redrive", "--all"]), "1 job sent back to the retry queue\n");
    assert_eq!(recoup.json(&["job", "dead"])["phase"], "retry_waiting");
    assert_eq!(recoup.json(&["job", "failed"])["phase"], "failed");
}

#[test]
fn a_redrive_names_jobs_or_says_all() {
    let recoup = with_every_phase();
    assert!(recoup.refused(2, &["dead-letters", "redrive"]).contains("<JOB>"));
    assert!(recoup.refused(2, &["dead-letters", "redrive", "--all", "dead"]).contains("--all"));
}
