//! `recoup replay`: a log of somebody's past, checked against what was worked out independently.

// In a test, an unwrap is an assertion.
#![allow(clippy::unwrap_used)]

#[path = "cli/harness.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::process::Command;

use mongodb::bson::doc;
use recoup_tests::servers::redis_url;
use serde_json::{Value, json};

use harness::Recoup;

fn in_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

fn day() -> String {
    in_project("examples/day.jsonl").display().to_string()
}

/// Lines of a log, each an event's fields after a time of day.
fn log(events: &[(&str, &str)]) -> String {
    events.iter().map(|(time, rest)| format!("{{\"at\":\"2026-01-15T{time}Z\",{rest}}}\n")).collect()
}

const CHARGE_J1: &str = r#""type":"charge","job_id":"j1","account_id":"a1","cost":40"#;
const FAILED_J1: &str = r#""type":"failed","job_id":"j1","attempt":1,"reason":"worker timeout""#;
const SUCCEEDED_J1: &str = r#""type":"succeeded","job_id":"j1","attempt":1"#;

fn with_log(text: impl AsRef<[u8]>) -> Recoup {
    let recoup = Recoup::on_a_file();
    recoup.write("log.jsonl", text);
    recoup
}

/// Entries of a job as (type, time of day).
fn entries(recoup: &Recoup, job: &str) -> Vec<(String, String)> {
    let job = recoup.json(&["job", job]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    job["entries"].as_array().unwrap().iter().map(|e| (text(&e["type"]), text(&e["created_at"]))).collect()
}

/// Compares summary and export with the independent computation, to the last row.
fn assert_as_worked_out(recoup: &Recoup, log: &str, summary: &str) {
    recoup.write("summary.json", summary);
    recoup.write("export.jsonl", recoup.ok(&["export"]));
    let output = Command::new("python3")
        .arg(in_project("tests/oracle/replay_oracle.py"))
        .arg(log)
        .arg("--compare")
        .arg(recoup.path("summary.json"))
        .arg(recoup.path("export.jsonl"))
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
}

#[test]
fn the_example_day_is_as_worked_out_independently() {
    let recoup = Recoup::on_a_file();
    let summary = recoup.ok(&["--json", "replay", &day()]);
    assert_as_worked_out(&recoup, &day(), &summary);
    let summary: Value = serde_json::from_str(&summary).unwrap();
    let given = &summary["given_away"];
    assert_eq!(given["recoup"], 0);
    let [unguarded, refund_guard, two_flags] =
        ["unguarded", "refund_guard", "two_flags"].map(|design| given[design].as_i64().unwrap());
    assert!(unguarded > refund_guard && refund_guard > two_flags && two_flags > 0, "{given}");
    recoup.ok(&["audit"]);
}

#[test]
fn replaying_again_into_the_same_store_moves_no_money() {
    let recoup = Recoup::on_a_file();
    let first = recoup.json(&["replay", &day()]);
    let export = recoup.ok(&["export"]);
    let again = recoup.json(&["replay", &day()]);
    assert_eq!(recoup.ok(&["export"]), export);
    for same in ["events", "jobs", "accounts", "credits", "given_away"] {
        assert_eq!(again[same], first[same], "{same}");
    }
    let outcomes = &again["outcomes"];
    for none in ["charged", "refunded", "delivered", "reclaimed", "rejected"] {
        assert_eq!(outcomes[none], 0, "{none}");
    }
}

#[test]
fn a_summary_counts_every_event_once() {
    let recoup = with_log(log(&[
        ("10:00:00", CHARGE_J1),
        ("10:00:00", CHARGE_J1),
        ("10:00:30", FAILED_J1),
        ("10:00:31", FAILED_J1),
        ("10:00:31", r#""type":"failed","job_id":"j1","attempt":2"#),
        ("10:00:32", SUCCEEDED_J1),
        ("10:00:33", r#""type":"failed","job_id":"j1","attempt":3"#),
        ("10:01:00", r#""type":"charge","job_id":"j2","account_id":"a2","cost":7"#),
        ("10:01:01", r#""type":"succeeded","job_id":"j2""#),
    ]));
    assert_eq!(
        recoup.json(&["replay", "log.jsonl"]),
        json!({
            "events": 9, "jobs": 2, "accounts": 2,
            "outcomes": {"charged": 2, "refunded": 1, "failure_recorded": 1, "delivered": 1, "reclaimed": 1,
                         "duplicate": 2, "already_delivered": 1, "rejected": 0},
            "credits": {"charged": 47, "refunded": 40, "reclaimed": 40, "balance": -47},
            "retries": {"dispatched": 0, "dead_lettered": 0, "waiting": 0},
            "given_away": {"unguarded": 160, "refund_guard": 40, "two_flags": 0, "recoup": 0},
        })
    );
}

#[test]
fn an_empty_log_is_a_summary_of_nothing() {
    let recoup = with_log("\n\r\n  \n");
    let summary = recoup.json(&["replay", "log.jsonl"]);
    assert_eq!((&summary["events"], &summary["jobs"]), (&json!(0), &json!(0)));
    let run = recoup.run(&["replay", "log.jsonl"]);
    assert!(run.status == 0 && run.stdout.contains("0 events"), "{run:?}");
}

#[test]
fn lines_that_are_no_events_are_reported_and_the_rest_goes_on() {
    let text = format!(
        "{}nonsense\n\n{}",
        log(&[("10:00:00", CHARGE_J1)]).replace('\n', "\r\n"),
        log(&[
            ("10:00:01", r#""type":"charge","job_id":"j1","account_id":"a1","cost":41"#),
            ("10:00:02", r#""type":"charge","job_id":"j2","account_id":"a1","cost":0"#),
            ("10:00:03", r#""type":"failed","job_id":"unknown""#),
            ("10:00:04", r#""type":"failed","job_id":"j1","account_id":"a2""#),
            ("10:00:05", r#""type":"cancelled","job_id":"j1""#),
            ("10:00:06", SUCCEEDED_J1),
        ])
    );
    let recoup = with_log(text);
    let run = recoup.run(&["--json", "replay", "log.jsonl"]);
    assert_eq!(run.status, 1);
    let summary: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(summary["events"], 8);
    assert_eq!(summary["outcomes"]["rejected"], 6);
    assert_eq!(summary["outcomes"]["delivered"], 1);
    let said: Vec<&str> = run.stderr.lines().collect();
    let expected = [
        "line 2: rejected: it is not a JSON object in UTF-8: it begins with nonsense",
        "line 4: rejected: charge conflict: job \"j1\" was charged to another account or at another cost",
        "line 5: rejected: cost is 0; expected 1 to 9007199254740991 whole credits",
        "line 6: rejected: job \"unknown\" was not charged before",
        "line 7: rejected: job \"j1\" belongs to another account than \"a2\"",
        "line 8: rejected: type is \"cancelled\"; expected \"charge\", \"failed\" or \"succeeded\"",
        "recoup: 6 of 8 lines rejected, and the rest replayed; correct the log and replay it again",
    ];
    assert_eq!(said.len(), expected.len(), "{said:?}");
    for (said, expected) in said.iter().zip(expected) {
        assert!(said.starts_with(expected), "{said}\n{expected}");
    }
    recoup.write("log.jsonl", log(&[("10:00:00", CHARGE_J1)]));
    recoup.ok(&["--json", "replay", "log.jsonl"]);
}

#[test]
fn every_rejected_line_is_named() {
    let recoup = with_log("nonsense\n".repeat(100));
    let run = recoup.run(&["--json", "replay", "log.jsonl"]);
    let said: Vec<&str> = run.stderr.lines().collect();
    assert_eq!((run.status, said.len()), (1, 101));
    for (number, said) in (1..).zip(&said[..100]) {
        assert!(said.starts_with(&format!("line {number}: rejected: it is not a JSON object")), "{said}");
    }
    assert!(said[100].starts_with("recoup: 100 of 100 lines rejected"), "{said:?}");
}

#[test]
fn a_line_of_any_length_is_survived() {
    let mut text = vec![b'x'; 5 << 20];
    text.push(b'\n');
    text.extend(log(&[("10:00:00", CHARGE_J1)]).into_bytes());
    let run = with_log(text).run(&["--json", "replay", "log.jsonl"]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.starts_with("line 1: rejected: it is longer than 1048576 bytes\n"), "{run:?}");
    assert!(run.stdout.contains(r#""charged":1,"#), "{run:?}");
}

#[test]
fn a_dash_reads_standard_input() {
    let recoup = Recoup::on_a_file();
    let run = recoup.run_with_input(&["--json", "replay", "-"], log(&[("10:00:00", CHARGE_J1)]).as_bytes());
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.stdout.contains(r#""charged":1,"#), "{run:?}");
}

#[test]
fn a_log_that_cannot_be_read_is_refused() {
    let recoup = Recoup::on_a_file();
    for path in ["missing.jsonl", "."] {
        let why = recoup.refused(1, &["replay", path]);
        assert!(why.starts_with(&format!("the log {path} cannot be read: ")), "{why}");
    }
    assert!(!recoup.path("recoup.db").exists(), "a mistyped name leaves no empty ledger behind");
}

#[test]
fn the_clock_never_goes_back() {
    let recoup =
        with_log(log(&[("10:00:00", CHARGE_J1), ("09:00:00", FAILED_J1), ("09:30:00", SUCCEEDED_J1)]));
    recoup.json(&["replay", "log.jsonl"]);
    let at = "2026-01-15T10:00:00.000Z";
    let expected = ["charge", "refund", "reclaim"].map(|kind| (kind.to_owned(), at.to_owned()));
    assert_eq!(entries(&recoup, "j1"), expected);
}

#[test]
fn retries_are_dispatched_at_the_first_drain_after_their_time() {
    let tick = r#""type":"charge","job_id":"j2","account_id":"a1","cost":1"#;
    for next in ["10:01:02", "10:02:05", "23:00:00"] {
        let recoup = with_log(log(&[("10:00:02", CHARGE_J1), ("10:00:59", FAILED_J1), (next, tick)]));
        // Due at 10:01:03: the drain at 10:01:02 parks it, the one at 10:02:02 takes it up.
        let summary = recoup.json(&["replay", "log.jsonl"]);
        let job = recoup.json(&["job", "j1"]);
        if next == "10:01:02" {
            assert_eq!(summary["retries"], json!({"dispatched": 0, "dead_lettered": 0, "waiting": 1}));
            assert_eq!(job["phase"], "retry_waiting");
        } else {
            assert_eq!(summary["retries"], json!({"dispatched": 1, "dead_lettered": 0, "waiting": 0}));
            assert_eq!(job["dispatched_at"], "2026-01-15T10:02:02.000Z");
        }
    }
}

#[test]
fn the_interval_between_drains_can_be_chosen() {
    let tick = r#""type":"charge","job_id":"j2","account_id":"a1","cost":1"#;
    let recoup = with_log(log(&[("10:00:02", CHARGE_J1), ("10:00:59", FAILED_J1), ("11:00:00", tick)]));
    recoup.json(&["replay", "--drain-every", "500ms", "log.jsonl"]);
    assert_eq!(recoup.json(&["job", "j1"])["dispatched_at"], "2026-01-15T10:01:03.000Z");
}

#[test]
fn silence_is_noticed_at_the_first_drain_after_its_time() {
    let recoup = Recoup::on_a_file().with("ATTEMPT_TIMEOUT", "90s");
    let tick = r#""type":"charge","job_id":"j2","account_id":"a1","cost":1"#;
    recoup.write("log.jsonl", log(&[("10:00:00", CHARGE_J1), ("10:00:10", tick), ("22:00:00", tick)]));
    let summary = recoup.json(&["replay", "log.jsonl"]);
    assert_eq!(summary["credits"], json!({"charged": 41, "refunded": 41, "reclaimed": 0, "balance": 0}));
    assert_eq!(summary["retries"]["dead_lettered"], 2);
    for job in ["j1", "j2"] {
        assert_eq!(entries(&recoup, job)[1], ("refund".to_owned(), "2026-01-15T10:02:00.000Z".to_owned()));
    }
}

#[test]
fn a_charge_after_a_quiet_time_is_watched_as_well() {
    let recoup = Recoup::on_a_file().with("ATTEMPT_TIMEOUT", "90s");
    let later = r#""type":"charge","job_id":"j2","account_id":"a1","cost":1"#;
    let tick = r#""type":"succeeded","job_id":"j1""#;
    recoup.write(
        "log.jsonl",
        log(&[("10:00:00", CHARGE_J1), ("10:00:10", SUCCEEDED_J1), ("10:05:00", later), ("22:00:00", tick)]),
    );
    recoup.json(&["replay", "log.jsonl"]);
    assert_eq!(entries(&recoup, "j2")[1], ("refund".to_owned(), "2026-01-15T10:07:00.000Z".to_owned()));
}

#[test]
fn the_last_drain_is_at_the_end_of_the_log() {
    let recoup = Recoup::on_a_file().with("RETRY_MAX_ATTEMPTS", "1");
    recoup.write("log.jsonl", log(&[("10:00:00", CHARGE_J1), ("10:00:30", FAILED_J1)]));
    assert_eq!(
        recoup.json(&["replay", "log.jsonl"])["retries"],
        json!({"dispatched": 0, "dead_lettered": 1, "waiting": 0})
    );
    assert_eq!(recoup.json(&["job", "j1"])["updated_at"], "2026-01-15T10:00:30.000Z");
}

#[test]
fn a_gap_of_thousands_of_years_ends() {
    let late =
        r#"{"at":"9999-12-31T23:59:59.999Z","type":"charge","job_id":"j2","account_id":"a1","cost":1}"#;
    let recoup = with_log(format!("{}{late}\n{late}\n", log(&[("10:00:00", CHARGE_J1)])));
    let summary = recoup.json(&["replay", "--drain-every", "1ms", "log.jsonl"]);
    assert_eq!(summary["retries"], json!({"dispatched": 4, "dead_lettered": 1, "waiting": 0}));
    assert_eq!(entries(&recoup, "j1")[1].1, "2026-01-16T10:00:00.000Z");
}

#[test]
fn the_retries_of_a_log_of_any_year_are_dispatched() {
    for year in ["0001", "1970", "2001", "5138", "9998"] {
        let recoup = with_log(
            log(&[("10:00:00", CHARGE_J1), ("10:00:30", FAILED_J1), ("11:00:00", CHARGE_J1)])
                .replace("2026-", &format!("{year}-")),
        );
        let summary = recoup.json(&["replay", "log.jsonl"]);
        assert_eq!(summary["retries"], json!({"dispatched": 1, "dead_lettered": 0, "waiting": 0}), "{year}");
        assert_eq!(recoup.rows("dead_letter"), 0, "{year}");
    }
}

#[test]
fn nothing_is_handed_over() {
    let recoup = Recoup::on_a_file().with("DISPATCH_TARGET", "eventbridge:retries");
    let summary = recoup.json(&["replay", &day()]);
    assert!(summary["retries"]["dispatched"].as_u64().unwrap() > 0);
    assert_eq!(recoup.rows("ready"), 0);
}

#[test]
fn a_replayed_job_is_marked() {
    let recoup = with_log(log(&[("10:00:00", CHARGE_J1)]));
    recoup.json(&["replay", "log.jsonl"]);
    assert_eq!(recoup.json(&["job", "j1"])["replayed"], true);
    let today = Recoup::on_a_file();
    today.charge("j2", "a1", 1);
    assert_eq!(today.json(&["job", "j2"])["replayed"], false);
}

#[test]
fn a_file_with_work_of_todays_is_not_replayed_into() {
    let recoup = with_log(log(&[("10:00:00", CHARGE_J1)]));
    recoup.charge("today", "a1", 1);
    recoup.json(&["failed", "today", "--attempt", "1"]);
    let export = recoup.ok(&["export"]);
    assert_eq!(
        recoup.refused(1, &["replay", "log.jsonl"]),
        r#"the file recoup.db holds job "today", which no replay put there, so nothing was replayed; replay into a file of its own: --db FILE"#
    );
    assert_eq!(recoup.ok(&["export"]), export);
    recoup.json(&["--db", "past.db", "replay", "log.jsonl"]);
}

#[test]
fn the_jobs_of_a_replay_can_be_read_and_practised_on() {
    let recoup = Recoup::on_a_file().with("RETRY_MAX_ATTEMPTS", "1");
    recoup.write("log.jsonl", log(&[("10:00:00", CHARGE_J1), ("10:00:30", FAILED_J1)]));
    recoup.json(&["replay", "log.jsonl"]);
    for command in [
        &["job", "j1"][..],
        &["balance", "a1"],
        &["statement", "a1"],
        &["dead-letters"],
        &["dead-letters", "show", "j1"],
        &["audit"],
        &["dead-letters", "redrive", "j1"],
        &["drain"],
    ] {
        recoup.ok(command);
    }
    assert_eq!(recoup.json(&["succeeded", "j1"])["outcome"], "reclaimed");
    assert_eq!(recoup.json(&["balance", "a1"])["balance"], -40);
    recoup.charge("j2", "a1", 1);
    assert!(recoup.refused(1, &["replay", "log.jsonl"]).contains("holds job \"j2\""));
}

#[test]
fn a_signal_about_a_job_of_an_earlier_log_counts_at_that_jobs_cost() {
    let recoup = with_log(log(&[("10:00:00", CHARGE_J1), ("10:00:01", SUCCEEDED_J1)]));
    recoup.json(&["replay", "log.jsonl"]);
    recoup.write("more.jsonl", log(&[("10:00:02", FAILED_J1), ("10:00:03", SUCCEEDED_J1)]));
    let given = &recoup.json(&["replay", "more.jsonl"])["given_away"];
    assert_eq!(*given, json!({"unguarded": 40, "refund_guard": 40, "two_flags": 0, "recoup": 0}));
}

#[test]
fn what_the_ledger_gave_away_is_computed_from_its_entries() {
    let recoup =
        with_log(log(&[("10:00:00", CHARGE_J1), ("10:00:01", FAILED_J1), ("10:00:02", SUCCEEDED_J1)]));
    assert_eq!(recoup.json(&["replay", "log.jsonl"])["given_away"]["recoup"], 0);
    recoup.tamper("DELETE FROM entries WHERE position = 2");
    recoup.write("none.jsonl", "");
    assert_eq!(recoup.json(&["replay", "none.jsonl"])["given_away"]["recoup"], 40);
}

/// The block that the README shows as the output of its first command, to the letter.
#[test]
fn the_readme_shows_what_the_command_prints() {
    let readme = std::fs::read_to_string(in_project("README.md")).unwrap();
    let (_, rest) = readme.split_once("It prints:\n\n").expect("the README has an output");
    let shown: Vec<&str> = rest
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("    "))
        .map(|line| line.strip_prefix("    ").unwrap_or(line))
        .collect();
    let printed = Recoup::on_a_file().run(&["replay", &day()]).stdout;
    assert_eq!(shown.join("\n").trim_end(), printed.trim_end());
}

#[test]
fn the_summary_for_people_says_what_moved_and_what_to_look_at() {
    let recoup = Recoup::on_a_file();
    let run = recoup.run(&["replay", &day()]);
    assert_eq!(run.status, 0);
    for part in [
        "What arrived\n",
        "What moved: credits of 2,000 jobs and ",
        "Balances: the 5 of ",
        "Retries\n",
        "Given away: credits that delivered jobs did not pay for, and their share of all charged\n",
        "\n  recoup, by the ledger above                  0   0.0 %\n",
        "Next\n  recoup job ",
        "  recoup audit ",
    ] {
        assert!(run.stdout.contains(part), "{part:?} in\n{}", run.stdout);
    }
    assert!(run.stdout.lines().count() <= 40 && !run.stdout.contains('\u{1b}'), "{}", run.stdout);
    assert!(run.stdout.lines().all(|line| line.chars().count() <= 100), "{}", run.stdout);
    assert_eq!(run.stderr.lines().count(), 1);
    assert!(run.stderr.contains(" events in ") && run.stderr.ends_with(" a second\n"), "{run:?}");
    let hint = run.stdout.lines().find_map(|line| line.trim().strip_prefix("recoup job ")).unwrap();
    let job = hint.split_whitespace().next().unwrap();
    assert!(recoup.ok(&["job", job]).contains("refund taken back"));
}

#[test]
fn hints_work_on_the_store_that_was_replayed_into() {
    let recoup = with_log(log(&[("10:00:00", CHARGE_J1)]));
    let run = recoup.run(&["--db", "my day.db", "replay", "log.jsonl"]);
    assert!(run.stdout.contains("  recoup --db 'my day.db' job j1 "), "{run:?}");
    assert!(recoup.path("my day.db").exists() && !recoup.path("recoup.db").exists());
}

#[test]
fn sums_that_include_another_log_say_so() {
    let recoup = with_log(log(&[("10:00:00", CHARGE_J1)]));
    recoup.json(&["replay", "log.jsonl"]);
    recoup.write("other.jsonl", log(&[("11:00:00", &CHARGE_J1.replace("j1", "j2"))]));
    let run = recoup.run(&["replay", "other.jsonl"]);
    assert!(
        run.stderr.contains("note: the file recoup.db holds 1 job that this log does not charge"),
        "{run:?}"
    );
}

#[test]
fn addresses_in_the_environment_do_not_lead_a_replay_to_the_servers() {
    let recoup = Recoup::on_a_file()
        .with("MONGODB_URI", "mongodb://127.0.0.1:1/x")
        .with("REDIS_URL", "redis://127.0.0.1:1");
    recoup.write("log.jsonl", log(&[("10:00:00", CHARGE_J1)]));
    let run = recoup.run(&["replay", "log.jsonl"]);
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.stdout.contains("  recoup --db recoup.db job j1 "), "{run:?}");
    assert!(recoup.path("recoup.db").exists());
}

/// The first events of the example day: enough for every outcome.
fn morning() -> String {
    let day = std::fs::read_to_string(day()).unwrap();
    day.lines().take(400).map(|line| format!("{line}\n")).collect()
}

async fn drop_database(recoup: &Recoup) {
    let client = mongodb::Client::with_uri_str(recoup.variable("MONGODB_URI")).await.unwrap();
    client.default_database().unwrap().drop().await.unwrap();
}

#[tokio::test]
async fn the_servers_and_the_file_give_the_same_ledger() {
    let servers = Recoup::on_servers().with("DISPATCH_TARGET", "eventbridge:retries");
    let file = Recoup::on_a_file();
    for recoup in [&servers, &file] {
        recoup.write("log.jsonl", morning());
    }
    let summary = servers.json(&["replay", "--servers", "log.jsonl"]);
    assert_eq!(summary, file.json(&["replay", "log.jsonl"]));
    assert!(summary["retries"]["dispatched"].as_u64().unwrap() > 0, "{summary}");
    let export = servers.ok(&["export"]);
    assert_eq!(export, file.ok(&["export"]));
    servers.ok(&["audit"]);

    let again = servers.json(&["replay", "--servers", "log.jsonl"]);
    assert_eq!(again["credits"], summary["credits"]);
    assert_eq!(servers.ok(&["export"]), export);

    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let prefix = servers.variable("REDIS_KEY_PREFIX");
    let keys: Vec<String> =
        redis::cmd("KEYS").arg(format!("{prefix}*")).query_async(&mut connection).await.unwrap();
    assert!(keys.iter().all(|key| key.starts_with(&format!("{prefix}-replay:"))), "{keys:?}");
    assert!(!keys.contains(&format!("{prefix}-replay:ready")), "{keys:?}");
    drop_database(&servers).await;
}

#[tokio::test]
async fn a_database_with_work_of_todays_is_not_replayed_into() {
    let recoup = Recoup::on_servers();
    recoup.write("log.jsonl", log(&[("10:00:00", CHARGE_J1)]));
    recoup.json(&["replay", "--servers", "log.jsonl"]);
    recoup.charge("today", "a1", 1);
    let why = recoup.refused(1, &["replay", "--servers", "log.jsonl"]);
    assert!(why.starts_with(r#"the database holds job "today", which no replay put there"#), "{why}");
    drop_database(&recoup).await;
}

#[tokio::test]
async fn a_replay_into_an_empty_database_brings_the_validator() {
    let recoup = Recoup::on_servers();
    recoup.write("log.jsonl", log(&[("10:00:00", CHARGE_J1)]));
    recoup.json(&["replay", "--servers", "log.jsonl"]);
    let client = mongodb::Client::with_uri_str(recoup.variable("MONGODB_URI")).await.unwrap();
    let jobs = client.default_database().unwrap().collection::<mongodb::bson::Document>("jobs");
    assert!(jobs.insert_one(doc! { "_id": "j2", "cost": -1 }).await.is_err());
    drop_database(&recoup).await;
}
