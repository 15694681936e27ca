//! A Lambda Runtime API on a free port, and a real function binary that polls it.
//!
//! What Lambda does is small: `GET …/invocation/next` hangs until there is an event, and the function posts its answer
//! to `…/invocation/<id>/response` or `…/error`. Here a test hands over any bytes with any deadline and gets the answer
//! back. The process starts with an empty environment besides what the test gives it, and what it writes to stdout
//! and stderr is kept.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use recoup::clock::{Clock, Deadline, SystemClock};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use crate::servers;

/// What an invocation was answered with.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To `…/response`.
    Response(Value),
    /// To `…/error`: `errorType` and `errorMessage`.
    Error(Value),
    /// Not at all: the process ended.
    Died,
}

impl Answer {
    /// The response.
    ///
    /// # Panics
    /// Where it was none.
    pub fn response(self) -> Value {
        match self {
            Self::Response(value) => value,
            Self::Error(_) | Self::Died => panic!("expected a response, not {self:?}"),
        }
    }

    /// The error's message.
    ///
    /// # Panics
    /// Where it was none.
    pub fn error(self) -> String {
        match self {
            Self::Error(value) => value["errorMessage"].as_str().expect("an error has a message").to_owned(),
            Self::Response(_) | Self::Died => panic!("expected an error, not {self:?}"),
        }
    }
}

struct Waiting {
    request_id: String,
    payload: Vec<u8>,
    deadline_ms: i64,
}

#[derive(Default)]
struct State {
    next: VecDeque<Waiting>,
    answers: HashMap<String, oneshot::Sender<Answer>>,
    count: u64,
}

#[derive(Default)]
struct Api {
    state: Mutex<State>,
    arrived: Notify,
    polled: Notify,
}

impl Api {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds the state")
    }

    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            ["2018-06-01", "runtime", "invocation", "next"] => self.next().await,
            ["2018-06-01", "runtime", "invocation", id, kind @ ("response" | "error")] => {
                let body = request.into_body().collect().await.expect("the function sends its answer whole");
                let value = serde_json::from_slice(&body.to_bytes()).expect("an answer is JSON");
                let answer = if *kind == "response" { Answer::Response(value) } else { Answer::Error(value) };
                if let Some(sender) = self.state().answers.remove(*id) {
                    // A test that no longer waits does not matter.
                    let _ = sender.send(answer);
                }
                reply(StatusCode::ACCEPTED)
            }
            ["2018-06-01", "runtime", "init", "error"] => reply(StatusCode::ACCEPTED),
            _ => reply(StatusCode::NOT_FOUND),
        }
    }

    async fn next(&self) -> Response<Full<Bytes>> {
        self.polled.notify_one();
        let waiting = loop {
            let arrived = self.arrived.notified();
            if let Some(waiting) = self.state().next.pop_front() {
                break waiting;
            }
            arrived.await;
        };
        Response::builder()
            .header("Lambda-Runtime-Aws-Request-Id", waiting.request_id)
            .header("Lambda-Runtime-Deadline-Ms", waiting.deadline_ms)
            .header(
                "Lambda-Runtime-Invoked-Function-Arn",
                "arn:aws:lambda:us-east-1:000000000000:function:test",
            )
            .header("Lambda-Runtime-Trace-Id", "Root=1-00000000-000000000000000000000000")
            .header("Content-Type", "application/json")
            .body(Full::from(waiting.payload))
            .expect("these headers are in shape")
    }
}

fn reply(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// A function that runs. It is killed when this is dropped.
pub struct Function {
    api: Arc<Api>,
    server: tokio::task::JoinHandle<()>,
    process: Process,
}

impl Function {
    /// Starts the binary with these variables and no others, besides those that Lambda sets.
    pub async fn start(name: &str, environment: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port can be had");
        let address = listener.local_addr().expect("a bound listener has an address").to_string();
        let api = Arc::new(Api::default());
        let served = Arc::clone(&api);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let api = Arc::clone(&served);
                let service = service_fn(move |request| {
                    let api = Arc::clone(&api);
                    async move { Ok::<_, Infallible>(api.handle(request).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        let mut variables = vec![
            ("AWS_LAMBDA_RUNTIME_API", address.as_str()),
            ("AWS_LAMBDA_FUNCTION_NAME", name),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
        ];
        variables.extend(environment);
        let process = Process::start(name, &[], &variables);
        Self { api, server, process }
    }

    /// Invokes it with half a minute to its deadline.
    pub async fn invoke(&mut self, payload: impl Into<Vec<u8>>) -> Answer {
        self.invoke_within(payload, Duration::from_secs(30)).await
    }

    /// Invokes it with this long to its deadline. Nobody kills it when the deadline has passed, but no test waits more
    /// than 20 s longer.
    pub async fn invoke_within(&mut self, payload: impl Into<Vec<u8>>, deadline: Duration) -> Answer {
        let (sender, answer) = oneshot::channel();
        let deadline_ms = SystemClock.now().plus(deadline).as_millis();
        {
            let mut state = self.api.state();
            state.count += 1;
            let request_id = format!("request-{}", state.count);
            state.answers.insert(request_id.clone(), sender);
            state.next.push_back(Waiting { request_id, payload: payload.into(), deadline_ms });
        }
        self.api.arrived.notify_one();
        tokio::select! {
            answer = answer => answer.expect("the sender lives as long as the state"),
            () = self.process.ended() => Answer::Died,
            () = SystemClock.sleep(deadline + Duration::from_secs(20)) => {
                panic!("no answer long after the deadline:\n{}", self.process.output())
            }
        }
    }

    /// Returns once it waits for its first invocation.
    ///
    /// # Panics
    /// Where it ends instead.
    pub async fn ready(&mut self) {
        tokio::select! {
            () = self.api.polled.notified() => {}
            () = self.process.ended() => panic!("the function ended:\n{}", self.process.output()),
        }
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills it, as a crash would, and gives back what it wrote to stdout, a line each.
    pub fn kill(mut self) -> Vec<String> {
        self.process.kill();
        self.process.stdout().lines().map(ToOwned::to_owned).collect()
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A binary of this build that runs, with all it writes. It is killed when this is dropped.
pub struct Process {
    child: Child,
    stdout: Captured,
    stderr: Captured,
}

impl Process {
    /// Starts the binary with these arguments and exactly these variables.
    pub fn start(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(servers::binary(name));
        command.args(arguments).env_clear().envs(environment.iter().copied());
        // By this mark tests/run finds what a test left behind.
        if let Some(run) = std::env::var_os("RECOUP_TEST_RUN") {
            command.env("RECOUP_TEST_RUN", run);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let stdout = Captured::new(child.stdout.take().expect("stdout is a pipe"));
        let stderr = Captured::new(child.stderr.take().expect("stderr is a pipe"));
        Self { child, stdout, stderr }
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns once the process has ended.
    pub async fn ended(&mut self) {
        while self.child.try_wait().expect("our own child can be asked").is_none() {
            SystemClock.sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for its end and gives back its exit status.
    ///
    /// # Panics
    /// Where it does not end within 20 s.
    pub async fn status(&mut self) -> ExitStatus {
        let ended = Deadline::after(Duration::from_secs(20)).bound(self.ended()).await;
        assert!(ended.is_some(), "the process does not end:\n{}", self.output());
        self.stdout.join();
        self.stderr.join();
        self.child.wait().expect("our own child can be waited for")
    }

    /// What it wrote to stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it wrote to stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// All it wrote so far.
    pub fn output(&self) -> String {
        format!("{}{}", self.stdout(), self.stderr())
    }

    /// Kills it, and waits until all it wrote is there.
    pub fn kill(&mut self) {
        // One that has ended by itself cannot be killed.
        let _ = self.child.kill();
        self.child.wait().expect("our own child can be waited for");
        self.stdout.join();
        self.stderr.join();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What came through a pipe so far.
struct Captured {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Captured {
    fn new(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                written.lock().expect("no reader panics").extend_from_slice(&buffer[..count]);
            }
        });
        Self { bytes, reader: Some(reader) }
    }

    /// Waits for the end of the pipe.
    fn join(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("a reader does not panic");
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("no reader panics")).into_owned()
    }
}
