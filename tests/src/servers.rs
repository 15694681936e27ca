//! Real servers for the tests.
//!
//! A test that only needs a server shares the one that `tests/run` started and keeps to a database or a key prefix of
//! its own. A test that stops, freezes or empties a server starts its own here.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `RECOUP_TEST_MONGODB_URI` | the shared MongoDB or compatible server, without a database in its path |
//! | `RECOUP_TEST_MONGOD` or `RECOUP_TEST_SECANTUSD` | the program to start servers of one's own with |
//! | `RECOUP_TEST_REDIS_URL` | the shared Redis |
//! | `RECOUP_TEST_REDIS_SERVER` | the program to start servers of one's own with |
//! | `RECOUP_TEST_MOTO` | `moto_server`, a stand-in for AWS |

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use recoup::clock::{Clock, SystemClock};
use tempfile::TempDir;

/// What `variable` says.
///
/// # Panics
/// Where it says nothing: a test that cannot run must not pass.
pub fn required(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run the tests with tests/run"))
}

/// The program that `variable` names; without it, the one of this name on the PATH, or where `tests/run` puts it.
///
/// # Panics
/// Where there is none.
fn program(variable: &str, name: &str) -> String {
    std::env::var(variable).ok().unwrap_or_else(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = std::env::split_paths(&path).chain([root]);
        let found = places.map(|place| place.join(name)).find(|program| program.is_file());
        found.map_or_else(|| required(variable), |program| program.display().to_string())
    })
}

/// A name that no other test uses, with `what` in it. The time is part of it because process ids come round again
/// while a shared server still has what an earlier test left there.
pub fn unique(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{what}-{}-{}-{count}", std::process::id(), SystemClock.now().as_millis())
}

/// A database of the shared server that no other test uses: a URI with the database in its path.
pub fn fresh_database() -> String {
    with_database(&required("RECOUP_TEST_MONGODB_URI"), &unique("recoup-test"))
}

/// This URI with `database` for its path.
pub fn with_database(uri: &str, database: &str) -> String {
    let (address, options) = uri.split_once('?').map_or((uri, None), |(a, o)| (a, Some(o)));
    let address = address.trim_end_matches('/');
    options.map_or_else(|| format!("{address}/{database}"), |o| format!("{address}/{database}?{o}"))
}

/// The shared Redis.
pub fn redis_url() -> String {
    required("RECOUP_TEST_REDIS_URL")
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port can be had");
    listener.local_addr().expect("a bound listener has an address").port()
}

/// A server process of one's own. It is killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    command: Vec<String>,
    port: u16,
    child: Option<Child>,
    directory: TempDir,
}

impl Server {
    /// A MongoDB or compatible server on a free port, its data in a directory of its own. With `fail_points`, it
    /// takes `configureFailPoint` where it is the compatible one.
    pub fn mongodb(fail_points: bool) -> Self {
        Self::mongodb_stopped(fail_points).started()
    }

    /// The same, not started yet.
    pub fn mongodb_stopped(fail_points: bool) -> Self {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let port = free_port();
        let data = directory.path().display().to_string();
        let command = if let Ok(mongod) = std::env::var("RECOUP_TEST_MONGOD") {
            let mut command = vec![
                mongod,
                "--bind_ip".into(),
                "127.0.0.1".into(),
                "--port".into(),
                port.to_string(),
                "--dbpath".into(),
                data,
            ];
            if fail_points {
                command.extend(["--setParameter".into(), "enableTestCommands=1".into()]);
            }
            command
        } else {
            let program = program("RECOUP_TEST_SECANTUSD", ".tools/venv/bin/secantusd-py");
            let mut command = vec![program, "--port".into(), port.to_string(), "--storage-path".into(), data];
            if fail_points {
                command.push("--enable-test-commands".into());
            }
            command
        };
        Self { command, port, child: None, directory }
    }

    /// A Redis on a free port that keeps nothing on disk.
    pub fn redis(options: &[&str]) -> Self {
        Self::redis_stopped(options).started()
    }

    /// The same, not started yet.
    pub fn redis_stopped(options: &[&str]) -> Self {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let port = free_port();
        let mut command: Vec<String> = vec![
            program("RECOUP_TEST_REDIS_SERVER", "redis-server"),
            "--port".into(),
            port.to_string(),
            "--bind".into(),
            "127.0.0.1".into(),
            "--save".into(),
            String::new(),
            "--dir".into(),
            directory.path().display().to_string(),
        ];
        command.extend(options.iter().map(ToString::to_string));
        Self { command, port, child: None, directory }
    }

    /// A stand-in for AWS.
    pub fn moto() -> Self {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let port = free_port();
        let program = required("RECOUP_TEST_MOTO");
        let command = vec![program, "-H".into(), "127.0.0.1".into(), "-p".into(), port.to_string()];
        Self { command, port, child: None, directory }.started()
    }

    fn started(mut self) -> Self {
        self.start();
        self
    }

    /// Starts the process again, on the same port and data, and waits until it listens.
    pub fn start(&mut self) {
        self.launch();
        self.wait_until_it_listens();
    }

    /// Starts the process, which does not listen yet. The answer is its id.
    pub fn launch(&mut self) -> u32 {
        let log =
            std::fs::File::create(self.directory.path().join("server.log")).expect("the log can be made");
        let child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .stdout(log.try_clone().expect("a file handle can be doubled"))
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", self.command[0]));
        let id = child.id();
        self.child = Some(child);
        id
    }

    /// Waits until the process that was launched listens.
    ///
    /// # Panics
    /// Where that takes more than half a minute.
    pub fn wait_until_it_listens(&self) {
        for _ in 0..600 {
            let address = SocketAddr::from(([127, 0, 0, 1], self.port));
            if TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok() {
                return;
            }
            pause(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.directory.path().join("server.log")).unwrap_or_default();
        panic!("{} did not listen on port {} within 30 s:\n{log}", self.command[0], self.port);
    }

    /// Kills the process, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own child can be killed");
            child.wait().expect("a killed child can be waited for");
        }
    }

    /// Freezes the process (SIGSTOP), or lets it go on (SIGCONT): connections stay open and nothing answers.
    pub fn freeze(&self, frozen: bool) {
        send_signal(self.id(), if frozen { "-STOP" } else { "-CONT" });
    }

    /// The process's id.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn id(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address, were it MongoDB.
    pub fn mongodb_uri(&self, database: &str) -> String {
        format!("mongodb://127.0.0.1:{}/{database}?directConnection=true", self.port)
    }

    /// Its address, were it Redis.
    pub fn redis_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal, such as `-STOP`, to a process that we started.
pub fn send_signal(pid: u32, signal: &str) {
    let done = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(done.is_ok_and(|status| status.success()), "kill {signal} failed");
}

/// Waits; tests are the one other place that may.
#[allow(clippy::disallowed_methods)]
pub fn pause(by: Duration) {
    std::thread::sleep(by);
}

/// Where the binaries of this build are.
pub fn binary(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a program knows its own path");
    let directory = own.parent().expect("a program lies in a directory");
    // Tests lie one below the binaries.
    let directory = if directory.ends_with("deps") { directory.join("..") } else { directory.to_owned() };
    let path = std::env::var_os("RECOUP_TEST_BINARIES").map_or(directory, PathBuf::from).join(name);
    assert!(path.exists(), "{} is not built: run the tests with tests/run", path.display());
    path
}
