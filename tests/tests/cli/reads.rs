//! `job`, `balance`, `statement`, `export`, `completions`.

use serde_json::{Value, json};

use crate::harness::Recoup;

/// A small past with known times.
const LOG: &str = r#"
{"at":"2026-01-15T10:00:00Z","type":"charge","job_id":"j1","account_id":"a1","cost":40}
{"at":"2026-01-15T10:00:30Z","type":"failed","job_id":"j1","attempt":1,"reason":"worker timeout"}
{"at":"2026-01-15T10:00:32Z","type":"succeeded","job_id":"j1","attempt":1}
{"at":"2026-01-16T09:00:00Z","type":"charge","job_id":"j2","account_id":"a1","cost":1500}
{"at":"2026-01-16T09:00:00Z","type":"charge","job_id":"j3","account_id":"a2","cost":7}
"#;

fn with_a_past() -> Recoup {
    let recoup = Recoup::on_a_file();
    recoup.write("log.jsonl", LOG);
    recoup.json(&["replay", "log.jsonl"]);
    recoup
}

#[test]
fn a_story_is_told_in_words() {
    let story = with_a_past().ok(&["job", "j1"]);
    for part in [
        "account     a1",
        "cost        40 credits",
        "paid        40, once, for delivered work",
        "phase       delivered: the customer has the result",
        "attempts    1 of 5 failed",
        "last error  worker timeout (2026-01-15T10:00:30.000Z)",
        "2026-01-15T10:00:30.000Z  refunded, with the first failure",
        "2026-01-15T10:00:32.000Z  refund taken back",
        "2026-01-15T10:00:32.000Z  reclaim     -40  -40",
    ] {
        assert!(story.contains(part), "{part:?} in\n{story}");
    }
}

#[test]
fn a_waiting_retry_is_told_with_its_time_and_a_set_aside_job_with_what_to_do() {
    let recoup = Recoup::on_a_file().with("RETRY_BASE_DELAY", "5m");
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1", "--attempt", "1"]);
    let story = recoup.ok(&["job", "j1"]);
    assert!(story.contains("next retry  2") && story.contains("(in 9m 5"), "{story}");
    recoup.json(&["failed", "j1", "--attempt", "1", "--no-retry"]);
    let story = recoup.ok(&["job", "j1"]);
    assert!(story.contains("To try it again: recoup dead-letters redrive j1\n"), "{story}");
    assert!(story.contains("paid        nothing: refunded, and not delivered"), "{story}");
}

#[test]
fn an_id_in_a_hint_is_quoted_so_that_the_hint_works() {
    let recoup = Recoup::on_a_file();
    for (job, quoted) in [("job 1", "'job 1'"), ("-j", "-- -j")] {
        recoup.json(&["charge", "--account", "a1", "--cost", "5", "--", job]);
        recoup.json(&["failed", "--no-retry", "--", job]);
        let story = recoup.ok(&["job", "--", job]);
        let hint = format!("To try it again: recoup dead-letters redrive {quoted}\n");
        assert!(story.ends_with(&hint), "{story}");
        recoup.ok(&["dead-letters", "redrive", "--", job]);
        let why = recoup.refused(1, &["dead-letters", "show", "--", job]);
        assert!(why.ends_with(&format!("see `recoup job {quoted}`")), "{why}");
    }
}

#[test]
fn a_job_is_given_whole_to_programs() {
    let job = with_a_past().json(&["job", "j1"]);
    assert_eq!(job["phase"], "delivered");
    assert_eq!(job["net"], -40);
    assert_eq!(job["last_error"], json!({"reason": "worker timeout", "at": "2026-01-15T10:00:30.000Z"}));
    assert_eq!(
        job["entries"],
        json!([
            {"type": "charge", "amount": -40, "created_at": "2026-01-15T10:00:00.000Z"},
            {"type": "refund", "amount": 40, "created_at": "2026-01-15T10:00:30.000Z"},
            {"type": "reclaim", "amount": -40, "created_at": "2026-01-15T10:00:32.000Z"},
        ])
    );
}

#[test]
fn what_came_from_outside_cannot_steer_a_terminal() {
    let recoup = Recoup::on_a_file();
    recoup.charge("j1", "a1", 40);
    recoup.json(&["failed", "j1", "--attempt", "1", "--reason", "a\u{1b}[31mb\nc\u{202e}", "--no-retry"]);
    for args in [&["job", "j1"][..], &["dead-letters", "list", "--failed"]] {
        let shown = recoup.ok(args);
        assert!(shown.contains("a\\u{1b}[31mb\\u{a}c\\u{202e}"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
    let why = recoup.refused(1, &["job", "x\u{202e}y"]);
    assert!(why.contains("x\\u{202e}y"), "{why}");
}

#[test]
fn an_unknown_job_is_an_error_and_an_unknown_account_has_nothing() {
    let recoup = with_a_past();
    let why = recoup.refused(1, &["job", "j9"]);
    assert!(why.starts_with(r#"job "j9" is not in the file recoup.db; check the id"#), "{why}");
    assert_eq!(recoup.json(&["balance", "a9"]), json!({"account_id": "a9", "balance": 0}));
    assert_eq!(recoup.ok(&["balance", "a1"]), "a1: -1,540 credits\n");
    assert_eq!(recoup.lines(&["statement", "a9"]), Vec::<Value>::new());
}

#[test]
fn a_statement_runs_a_balance_from_the_opening_one() {
    let recoup = with_a_past();
    let rows = recoup.lines(&["statement", "a1"]);
    let moves: Vec<_> =
        rows.iter().map(|r| (r["_id"].as_str().unwrap(), r["balance"].as_i64().unwrap())).collect();
    assert_eq!(moves, [("j1:charge", -40), ("j1:refund", 0), ("j1:reclaim", -40), ("j2:charge", -1540)]);
    assert_eq!(
        recoup.lines(&["statement", "a1", "--since", "2026-01-16"]),
        [json!({"_id": "j2:charge", "job_id": "j2", "account_id": "a1", "type": "charge", "amount": -1500,
                "created_at": "2026-01-16T09:00:00.000Z", "balance": -1540})]
    );
    let shown =
        recoup.ok(&["statement", "a1", "--since", "2026-01-15T11:00:30+01:00", "--until", "2026-01-16"]);
    let expected = "\
Statement of a1
opening balance -40 at 2026-01-15T10:00:30.000Z
  time                      job  type     amount  balance
  2026-01-15T10:00:30.000Z  j1   refund      +40        0
  2026-01-15T10:00:32.000Z  j1   reclaim     -40      -40
2 entries before 2026-01-16T00:00:00.000Z, closing balance -40
";
    assert_eq!(shown, expected);
}

#[test]
fn times_that_are_none_are_refused() {
    let recoup = with_a_past();
    for bad in ["yesterday", "2026-01-15T10:00:00", "2026-02-30", "1768471200"] {
        let why = recoup.refused(2, &["statement", "a1", "--since", bad]);
        assert!(why.contains("give a date such as 2026-01-15 (00:00 UTC) or a time such as"), "{why}");
    }
    let why = recoup.refused(2, &["statement", "a1", "--since", "2026-01-16", "--until", "2026-01-15"]);
    assert!(why.contains("is not after --since"), "{why}");
}

#[test]
fn the_export_holds_every_row_in_the_order_of_jobs_and_positions() {
    let recoup = with_a_past();
    let rows: Vec<Value> =
        recoup.ok(&["export"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<_> = rows.iter().map(|row| row["_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["j1:charge", "j1:refund", "j1:reclaim", "j2:charge", "j3:charge"]);
    assert_eq!(
        rows[1],
        json!({"_id": "j1:refund", "job_id": "j1", "account_id": "a1", "type": "refund", "amount": 40,
               "created_at": "2026-01-15T10:00:30.000Z"})
    );
    assert_eq!(recoup.lines(&["export"]), rows);
}

#[test]
fn the_export_as_csv_quotes_what_must_be_quoted() {
    let recoup = Recoup::on_a_file();
    recoup.charge("a,\"b\"", "a1", 40);
    let csv = recoup.ok(&["export", "--format", "csv"]);
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("_id,job_id,account_id,type,amount,created_at"));
    let row = lines.next().unwrap();
    assert!(row.starts_with(r#""a,""b"":charge","a,""b""",a1,charge,-40,2"#), "{row}");
    assert_eq!(lines.next(), None);
    let why = recoup.refused(2, &["--json", "export", "--format", "csv"]);
    assert!(why.contains("exclude each other"), "{why}");
}

#[test]
fn an_export_of_more_than_a_page_is_complete() {
    let recoup = Recoup::on_a_file();
    let charge = |n: u32| {
        format!(
            r#"{{"at":"2026-01-15T10:00:00Z","type":"charge","job_id":"j{n:04}","account_id":"a","cost":1}}"#
        )
    };
    let log: Vec<String> = (0..1_001).map(charge).collect();
    recoup.write("log.jsonl", log.join("\n"));
    recoup.json(&["replay", "log.jsonl"]);
    let rows = recoup.lines(&["export"]);
    assert_eq!(rows.len(), 1_001);
    assert!(rows.is_sorted_by_key(|row| row["job_id"].as_str().unwrap().to_owned()));
}

#[test]
fn completions_are_printed_for_every_shell_and_need_no_store() {
    let recoup = Recoup::on_a_file().with("MONGODB_URI", "nonsense");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(recoup.ok(&["completions", shell]).contains("dead-letters"), "{shell}");
    }
    assert!(!recoup.path("recoup.db").exists());
}
