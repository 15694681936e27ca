//! Wrong use: one line that says what is wrong and what to do, and the exit status that goes with it.

use crate::harness::Recoup;

#[test]
fn what_cannot_be_understood_is_exit_status_two() {
    let recoup = Recoup::on_a_file();
    for (args, said) in [
        (&["frobnicate"][..], "unrecognized subcommand 'frobnicate'"),
        (&["--jsn", "audit"], "tip: a similar argument exists: '--json'"),
        (&["charge"], "required arguments were not provided"),
        (&["charge", "j", "--account", "a"], "--cost <CREDITS>"),
        (&["charge", "", "--account", "a", "--cost", "1"], "is empty; give 1 to 256 characters"),
        (&["charge", " ", "--account", "a", "--cost", "1"], "consists of blanks only"),
        (&["charge", "j", "--account", "a\nb", "--cost", "1"], "holds the control character U+000A"),
        (&["failed", "j", "--attempt", "0"], "an attempt is a whole number from 1 to 2147483647"),
        (&["failed", "j", "--attempt", "-1"], "an attempt is a whole number from 1 to 2147483647"),
        (&["succeeded", "j", "--attempt", "2147483648"], "an attempt is a whole number"),
        (&["failed", "j", "--event-id", ""], "is empty; give 1 to 256 characters"),
        (&["replay"], "<FILE>"),
        (&["replay", "x", "--drain-every", "0s"], "give a duration of a millisecond or more"),
        (&["replay", "x", "--drain-every", "-1s"], "give a duration of a millisecond or more"),
        (&["replay", "x", "--servers"], "--servers needs MONGODB_URI and REDIS_URL"),
        (&["--db", "f", "replay", "x", "--servers"], "--servers and --db exclude each other"),
        (&["export", "--format", "xml"], "possible values: jsonl, csv"),
        (&["completions", "tcsh"], "possible values: bash"),
    ] {
        let why = recoup.refused(2, args);
        assert!(why.contains(said), "{args:?}: {why}");
    }
    let long = "x".repeat(257);
    assert!(recoup.refused(2, &["job", &long]).contains("has 257 characters; at most 256"));
    assert!(!recoup.path("recoup.db").exists());
}

#[test]
fn help_is_an_answer_and_its_absence_a_wrong_use() {
    let recoup = Recoup::on_a_file();
    assert!(recoup.ok(&["--help"]).contains("dead-letters"));
    assert!(recoup.ok(&["replay", "--help"]).contains("--drain-every"));
    assert!(recoup.ok(&["--version"]).starts_with("recoup "));
    let run = recoup.run(&[]);
    assert_eq!((run.status, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("Usage: recoup"), "{run:?}");
}

#[test]
fn one_address_without_the_other_is_refused() {
    for (set, missing) in [("MONGODB_URI", "REDIS_URL"), ("REDIS_URL", "MONGODB_URI")] {
        let address = if set == "REDIS_URL" { "redis://localhost" } else { "mongodb://localhost/x" };
        let recoup = Recoup::on_a_file().with(set, address).with(missing, "");
        let why = recoup.refused(2, &["audit"]);
        assert!(why.starts_with(&format!("{set} is set and {missing} is not; set both")), "{why}");
        assert!(recoup.ok(&["--db", "f.db", "init"]).contains("f.db"), "--db wins over both");
    }
}

#[test]
fn a_bad_setting_is_named_with_an_example_and_an_address_is_never_repeated() {
    let recoup = Recoup::on_a_file().with("ATTEMPT_TIMEOUT", "soon");
    let why = recoup.refused(2, &["audit"]);
    assert!(why.starts_with("ATTEMPT_TIMEOUT is \"soon\"") && why.contains("ATTEMPT_TIMEOUT=24h"), "{why}");
    let recoup = Recoup::on_a_file()
        .with("MONGODB_URI", "http://user:hunter2@localhost/x")
        .with("REDIS_URL", "redis://localhost");
    let why = recoup.refused(2, &["audit"]);
    assert!(why.starts_with("MONGODB_URI ") && !why.contains("hunter2"), "{why}");
}

#[test]
fn a_file_that_is_not_there_is_made_by_commands_that_begin_something_only() {
    let recoup = Recoup::on_a_file();
    for args in [
        &["job", "j"][..],
        &["balance", "a"],
        &["statement", "a"],
        &["export"],
        &["audit"],
        &["drain"],
        &["dead-letters"],
        &["failed", "j"],
        &["succeeded", "j"],
    ] {
        let why = recoup.refused(1, args);
        assert!(why.starts_with("there is no file recoup.db; name another one"), "{args:?}: {why}");
    }
    assert!(!recoup.path("recoup.db").exists());
    recoup.charge("j1", "a1", 40);
    assert!(recoup.path("recoup.db").exists());
}

#[test]
fn the_file_is_named_by_the_argument_then_by_the_environment() {
    let recoup = Recoup::on_a_file().with("RECOUP_DB", "env.db");
    recoup.json(&["init"]);
    recoup.json(&["init", "--db", "arg.db"]);
    assert!(recoup.path("env.db").exists() && recoup.path("arg.db").exists());
    assert!(!recoup.path("recoup.db").exists());
}

#[test]
fn a_file_that_is_something_else_is_refused_and_left_alone() {
    let recoup = Recoup::on_a_file();
    recoup.write("notes.txt", "not a database, but long enough to be looked at as one. ".repeat(20));
    let before = std::fs::read(recoup.path("notes.txt")).unwrap();
    let why = recoup.refused(1, &["--db", "notes.txt", "audit"]);
    assert!(why.starts_with("notes.txt is not a SQLite database"), "{why}");
    assert_eq!(std::fs::read(recoup.path("notes.txt")).unwrap(), before);
    let why = recoup.refused(1, &["--db", "no/such/dir/f.db", "init"]);
    assert!(why.contains("cannot be opened"), "{why}");
}

#[test]
fn an_output_that_nobody_reads_to_its_end_is_no_error() {
    let recoup = Recoup::on_a_file();
    let log: String = (0..5_000)
        .map(|n| {
            format!(
                "{{\"at\":\"2026-01-15T10:00:00Z\",\"type\":\"charge\",\"job_id\":\"j{n}\",\"account_id\":\"a\",\
                 \"cost\":1}}\n"
            )
        })
        .collect();
    recoup.write("log.jsonl", log);
    recoup.json(&["replay", "log.jsonl"]);
    let script = format!(
        "{} --db {} export | head -n 1; echo status ${{PIPESTATUS[0]}}",
        recoup_tests::servers::binary("recoup").display(),
        recoup.path("recoup.db").display()
    );
    let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.ends_with("status 0\n"), "{stdout}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
