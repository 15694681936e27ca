//! What only the command parses: event logs and arguments. Through the real program, thousands of lines at a time,
//! with a bound on its memory.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use fastrand::Rng;
use serde_json::Value;
use tempfile::TempDir;

use super::json::{any_id, deep, once_in, pick, quoted, shuffled, spoilt, value};
use super::mutate::mutate;
use crate::servers::binary;

/// Lines of one log.
pub const LINES: usize = 1_000;
/// Kilobytes of address space that the command may have.
const MEMORY_KB: u32 = 1_000_000;

/// Runs the command in `directory`, on the file there, with bounded memory and no environment.
fn recoup(directory: &Path, arguments: &[OsString], input: &[u8]) -> Output {
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MEMORY_KB} && exec \"$0\" \"$@\"")])
        .arg(binary("recoup"))
        .args(arguments)
        .env_clear()
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    std::thread::scope(|scope| {
        // One that reads no input may be gone before it is written.
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().expect("our own child can be waited for")
    })
}

fn arguments(texts: &[&str]) -> Vec<OsString> {
    texts.iter().map(OsString::from).collect()
}

/// Replays the random log of this seed.
///
/// # Errors
/// What is wrong with the answer; the seed plays it again.
pub fn log(seed: u64) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let kept = super::corpus("log");
    let mut log: Vec<u8> = Vec::new();
    for _ in 0..LINES {
        let mut line = if once_in(&mut rng, 10) {
            kept[rng.usize(..kept.len())].1.clone()
        } else {
            log_line(&mut rng).into_bytes()
        };
        if once_in(&mut rng, 3) {
            mutate(&mut rng, &mut line);
        }
        log.extend(line);
        log.push(b'\n');
    }
    replay(&log).map_err(|problem| format!("log of seed {seed}: {problem}"))
}

/// Replays a log and checks the answer.
///
/// # Errors
/// What is wrong with the answer.
pub fn replay(log: &[u8]) -> Result<(), String> {
    let directory = TempDir::new().map_err(|error| error.to_string())?;
    let output = recoup(directory.path(), &arguments(&["--json", "replay", "-"]), log);
    let (stdout, stderr) = texts(&output)?;
    let summary: Value =
        serde_json::from_str(&stdout).map_err(|error| format!("{error}: {stdout} {stderr}"))?;
    let outcomes = summary["outcomes"].as_object().ok_or("no outcomes")?;
    let counted: u64 = outcomes.values().filter_map(Value::as_u64).sum();
    let rejected = outcomes["rejected"].as_u64().unwrap_or_default();
    let lines = log.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
    if counted != lines as u64 {
        return Err(format!("{counted} outcomes of {lines} lines: {summary}"));
    }
    let status = output.status.code();
    if status != Some(i32::from(rejected > 0)) {
        return Err(format!("exit status {status:?} with {rejected} lines rejected: {stderr}"));
    }
    let said: HashSet<&str> = stderr
        .lines()
        .filter(|line| line.contains(": rejected: "))
        .filter_map(|line| line.split(':').next())
        .collect();
    if said.len() as u64 != rejected {
        return Err(format!("{rejected} lines rejected, and {} said so", said.len()));
    }
    let audit = recoup(directory.path(), &arguments(&["audit"]), b"");
    if audit.status.success() { Ok(()) } else { Err(format!("the audit after it: {:?}", texts(&audit)?)) }
}

fn log_line(rng: &mut Rng) -> String {
    if once_in(rng, 400) {
        return deep(rng);
    }
    if once_in(rng, 2_000) {
        return "x".repeat(6 << 20);
    }
    let job_id = if once_in(rng, 3) { any_id(rng) } else { format!("j{}", rng.u8(..40)) };
    let at = pick(
        rng,
        &[
            "\"2026-01-15T10:00:00Z\"",
            "\"2026-01-15T10:05:00.5+01:00\"",
            "\"0001-01-01T00:00:00Z\"",
            "\"9999-12-31T23:59:59Z\"",
            "1768471200000",
        ],
    );
    // The clock never goes back, so the end of time is for few.
    let at = if at.contains("9999") && !once_in(rng, 200) { "\"2026-01-16T00:00:00Z\"" } else { at };
    let fields = vec![
        ("at", at.to_owned()),
        (
            "type",
            pick(rng, &["\"charge\"", "\"charge\"", "\"failed\"", "\"succeeded\"", "\"refund\""]).to_owned(),
        ),
        ("job_id", quoted(rng, &job_id)),
        ("account_id", "\"a-1\"".to_owned()),
        ("cost", pick(rng, &["1", "40", "9007199254740991", "0", "-1", "1.0"]).to_owned()),
        ("attempt", pick(rng, &["1", "2", "2147483647", "null"]).to_owned()),
    ];
    let line = if once_in(rng, 3) { spoilt(fields, rng) } else { shuffled(fields, rng) };
    if once_in(rng, 3) { line } else { line.replace(['\n', '\r'], " ") }
}

const WORDS: [&str; 34] = [
    "init",
    "charge",
    "failed",
    "succeeded",
    "drain",
    "job",
    "balance",
    "statement",
    "export",
    "dead-letters",
    "audit",
    "list",
    "show",
    "redrive",
    "completions",
    "--account",
    "--cost",
    "--attempt",
    "--reason",
    "--no-retry",
    "--since",
    "--until",
    "--format",
    "--all",
    "--failed",
    "--event-id",
    "--json",
    "--help",
    "--",
    "-",
    "csv",
    "bash",
    "1",
    "40",
];

/// Runs the command with the random arguments of this seed.
///
/// # Errors
/// What is wrong with the answer; the seed plays it again.
pub fn arguments_of(seed: u64) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let directory = TempDir::new().map_err(|error| error.to_string())?;
    let typed: Vec<OsString> = (0..rng.usize(..7)).map(|_| argument(&mut rng)).collect();
    let output = recoup(directory.path(), &typed, b"");
    check_answer(&output).map_err(|problem| format!("arguments of seed {seed}, {typed:?}: {problem}"))
}

fn argument(rng: &mut Rng) -> OsString {
    let text = match rng.u8(..10) {
        0..6 => pick(rng, &WORDS).to_owned(),
        6 => any_id(rng),
        7 => value(rng),
        8 => format!("{}={}", pick(rng, &WORDS), any_id(rng)),
        _ => {
            let mut bytes = pick(rng, &WORDS).as_bytes().to_vec();
            mutate(rng, &mut bytes);
            bytes.retain(|byte| *byte != 0);
            return OsString::from_vec(bytes);
        }
    };
    // No program can be given a NUL, and the deepest nesting is longer than an argument can be.
    text.replace('\0', "").chars().take(20_000).collect::<String>().into()
}

/// Done, refused or wrong usage, never a panic, and in the last two cases one line on stderr.
fn check_answer(output: &Output) -> Result<(), String> {
    let (stdout, stderr) = texts(output)?;
    let is_help = stderr.contains("Usage:") && stdout.is_empty();
    match output.status.code() {
        Some(0) => Ok(()),
        Some(2) if is_help => Ok(()),
        Some(1 | 2) if stderr.lines().count() == 1 && stderr.starts_with("recoup: ") => Ok(()),
        status => Err(format!("exit status {status:?}, stdout {stdout:?}, stderr {stderr:?}")),
    }
}

/// What it wrote, which steers no terminal.
fn texts(output: &Output) -> Result<(String, String), String> {
    let text = |bytes: &[u8]| {
        let text =
            String::from_utf8(bytes.to_vec()).map_err(|error| format!("the output is no text: {error}"))?;
        let steers =
            |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{202e}' | '\u{2028}');
        if text.contains(steers) { Err(format!("the output steers a terminal: {text:?}")) } else { Ok(text) }
    };
    let (stdout, stderr) = (text(&output.stdout)?, text(&output.stderr)?);
    if stderr.contains("panicked at") { Err(stderr) } else { Ok((stdout, stderr)) }
}
