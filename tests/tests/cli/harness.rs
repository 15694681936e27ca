//! Runs the real `recoup` and takes its answers apart.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use recoup_tests::servers::{binary, fresh_database, redis_url, unique};
use serde_json::Value;
use tempfile::TempDir;

/// What the environment of a developer may hold and a test must not see.
const VARIABLES: [&str; 24] = [
    "MONGODB_URI",
    "REDIS_URL",
    "REDIS_CLUSTER",
    "REDIS_CA_FILE",
    "REDIS_KEY_PREFIX",
    "RETRY_BASE_DELAY",
    "RETRY_MAX_DELAY",
    "RETRY_MAX_ATTEMPTS",
    "RETRY_JITTER",
    "ATTEMPT_TIMEOUT",
    "CLAIM_TIMEOUT",
    "SWEEP_GRACE",
    "DRAIN_FOR",
    "DISPATCH_TARGET",
    "EVENT_SOURCES",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "RECOUP_DB",
    "RUST_LOG",
    "NO_COLOR",
    "CLICOLOR_FORCE",
];

/// The command in a directory and an environment of its own.
pub(crate) struct Recoup {
    directory: TempDir,
    variables: Vec<(String, String)>,
}

/// What one run left behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Recoup {
    /// On the file `recoup.db` of its directory.
    pub(crate) fn on_a_file() -> Self {
        Self { directory: TempDir::new().unwrap(), variables: Vec::new() }
    }

    /// On the shared servers, with a database and a key prefix of its own.
    pub(crate) fn on_servers() -> Self {
        Self::on_a_file()
            .with("MONGODB_URI", &fresh_database())
            .with("REDIS_URL", &redis_url())
            .with("REDIS_KEY_PREFIX", &unique("cli"))
    }

    /// With this variable set.
    pub(crate) fn with(mut self, variable: &str, value: &str) -> Self {
        self.variables.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// What a variable was set to.
    pub(crate) fn variable(&self, name: &str) -> &str {
        &self.variables.iter().find(|(variable, _)| variable == name).unwrap().1
    }

    /// A path in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file into its directory.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        self.run_with_input(args, b"")
    }

    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Run {
        let mut command = Command::new(binary("recoup"));
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.directory.path()).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // One that reads no input may be gone before it is written.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        Run {
            status: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The answer to people of a run that succeeds and says nothing else.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{args:?}: {run:?}");
        run.stdout
    }

    /// The answer to programs of a run that succeeds: one document a line.
    pub(crate) fn lines(&self, args: &[&str]) -> Vec<Value> {
        let args: Vec<&str> = ["--json"].iter().chain(args).copied().collect();
        self.ok(&args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The same, of one document.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut lines = self.lines(args);
        assert_eq!(lines.len(), 1, "{args:?}: {lines:?}");
        lines.remove(0)
    }

    /// The one line with which a run is refused that answers nothing.
    pub(crate) fn refused(&self, status: i32, args: &[&str]) -> String {
        let run = self.run(args);
        assert_eq!((run.status, run.stdout.as_str()), (status, ""), "{args:?}: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{args:?}: {run:?}");
        run.stderr.trim_end().strip_prefix("recoup: ").unwrap().to_owned()
    }

    /// Runs statements on its file with every trigger and constraint out of the way.
    pub(crate) fn tamper(&self, statements: &str) {
        let file = rusqlite::Connection::open(self.path("recoup.db")).unwrap();
        let triggers: Vec<String> = {
            let mut all = file.prepare("SELECT name FROM sqlite_schema WHERE type = 'trigger'").unwrap();
            all.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        for trigger in triggers {
            file.execute_batch(&format!("DROP TRIGGER {trigger}")).unwrap();
        }
        file.execute_batch(&format!(
            "PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF; {statements}"
        ))
        .unwrap();
    }

    /// How many rows a table of its file has.
    pub(crate) fn rows(&self, table: &str) -> i64 {
        let file = rusqlite::Connection::open(self.path("recoup.db")).unwrap();
        file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }

    /// Charges a job.
    pub(crate) fn charge(&self, job: &str, account: &str, cost: i64) -> Value {
        self.json(&["charge", job, "--account", account, "--cost", &cost.to_string()])
    }
}
