//! The functions under the Lambda runtime: start-up, the run loops, and nothing of the ledger's rules.
//!
//! A function's `main` wires: settings, addresses, clients, and then one of [`serve_events`], [`serve_schedule`]
//! and [`serve_audit`]. They take the ports, or a closure over them, so that this module names no store and a function
//! links only the adapters that its own `main` opens.
//!
//! Everything that can be known to be wrong at start is an error before the first poll: one line on stderr and exit
//! status 1, so that a bad deployment fails as a whole instead of once an event. A server that is out of reach is not
//! such an error; the clients connect with their first operation, and again after each outage.
//!
//! One thread is enough: Lambda gives one invocation at a time, and a batch waits for servers, not for the processor.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::FutureExt;
use lambda_runtime::tower::util::MapRequestLayer;
use lambda_runtime::{Context, Diagnostic, LambdaEvent, LambdaInvocation, Runtime, service_fn};
use serde::Serialize;
use serde_json::value::RawValue;
use tracing::Instrument;

use crate::aws;
use crate::clock::{Clock, Deadline, SystemClock};
use crate::config::{Address, ConfigError, Needs, Secret, Server, Settings};
use crate::handlers::StoreError;

mod audit;
#[cfg(feature = "webhook")]
mod calls;
mod emf;
mod events;
mod logs;
mod schedule;

pub use audit::serve_audit;
#[cfg(feature = "webhook")]
pub use calls::serve_calls;
pub use events::serve_events;
pub use schedule::serve_schedule;

/// Kept free before the function's deadline, for the answer to get out.
const MARGIN: Duration = Duration::from_millis(500);

/// Why a function does not start; its text is the one line on stderr.
pub type StartError = Box<dyn std::error::Error>;

/// Runs a function: `main` in all but name. Returns when start-up fails or the runtime goes away.
pub fn run(function: impl Future<Output = Result<(), StartError>>) -> ExitCode {
    logs::install();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(StartError::from).and_then(|runtime| runtime.block_on(function));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.to_string().replace(['\n', '\r'], " "));
            ExitCode::FAILURE
        }
    }
}

/// What the process's environment says of `name`.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The settings, from the process's environment.
///
/// # Errors
/// [`ConfigError`] for the first variable that is missing or bad.
pub fn settings(needs: Needs) -> Result<Settings, ConfigError> {
    Settings::read(needs, environment)
}

/// The address of a server, fetched where it is kept elsewhere.
///
/// # Errors
/// [`ConfigError`] where it is not set, cannot be fetched or is none.
pub async fn address(server: Server, address: Option<&Address>) -> Result<Secret, ConfigError> {
    let address = address.ok_or_else(|| server.error("is not set"))?;
    aws::resolve(server, address, environment).await
}

/// One invocation, as far as the handlers need to know it.
struct Invocation {
    request_id: String,
    /// When the work must be done for the answer to get out in time.
    deadline: Deadline,
}

impl Invocation {
    fn new(context: &Context, now_ms: i64) -> Self {
        let deadline_ms = i64::try_from(context.deadline).unwrap_or(i64::MAX);
        let left = Duration::from_millis(deadline_ms.saturating_sub(now_ms).max(0).unsigned_abs());
        let deadline = Deadline::after(left).sooner(MARGIN.min(left / 4));
        Self { request_id: context.request_id.clone(), deadline }
    }
}

/// Why an invocation as a whole is answered with an error.
#[derive(Debug)]
struct Failed {
    /// What kind of error, for whoever counts them.
    kind: &'static str,
    /// What happened and what to do.
    message: String,
}

impl From<Failed> for Diagnostic {
    fn from(failed: Failed) -> Self {
        Self { error_type: failed.kind.to_owned(), error_message: failed.message }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        let kind = match error {
            StoreError::Ledger(_) => "LedgerError",
            StoreError::Queue(_) => "QueueError",
        };
        Self { kind, message: error.to_string() }
    }
}

/// Does all of an invocation's work, called `what`: one that fails, hangs or panics fails the invocation. It comes boxed,
/// because what it holds of driver and client is deep enough to overflow the compiler's limits.
async fn in_time<T>(
    what: &str,
    deadline: Deadline,
    work: Pin<Box<impl Future<Output = Result<T, StoreError>>>>,
) -> Result<T, Failed> {
    match deadline.bound(AssertUnwindSafe(work).catch_unwind()).await {
        Some(Ok(result)) => result.map_err(Failed::from),
        Some(Err(panic)) => {
            let message = format!("the {what} panicked: {}", panic_text(panic.as_ref()));
            Err(Failed { kind: "Panic", message })
        }
        None => {
            let message = format!("the {what} did not end before the function's deadline");
            Err(Failed { kind: "Deadline", message })
        }
    }
}

/// Polls for invocations and answers each with what `invoke` makes of its payload.
async fn serve<R: Serialize>(
    invoke: impl AsyncFn(&str, &Invocation) -> Result<R, Failed>,
) -> Result<(), StartError> {
    check_runtime()?;
    emf::install(environment("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_default());
    let invoke = &invoke;
    let service = service_fn(|event: LambdaEvent<Box<RawValue>>| async move {
        let invocation = Invocation::new(&event.context, SystemClock.now().as_millis());
        let span = tracing::info_span!("invocation", request_id = invocation.request_id);
        let result = invoke(event.payload.get(), &invocation).instrument(span).await;
        if let Err(failed) = &result {
            tracing::error!(
                request_id = invocation.request_id,
                error_type = failed.kind,
                error = failed.message,
                "the invocation failed"
            );
        }
        emf::flush(&invocation.request_id);
        result
    });
    let runtime = Runtime::new(service).layer(MapRequestLayer::new(as_json));
    runtime.run().await.map_err(|error| -> StartError { error })
}

/// The runtime ends the process over a body that is not UTF-8 and answers for us where it is not JSON. Such a body
/// becomes a JSON string, which the handlers refuse, or take, like any other payload.
fn as_json(mut invocation: LambdaInvocation) -> LambdaInvocation {
    if serde_json::from_slice::<&RawValue>(&invocation.body).is_err() {
        let text = String::from_utf8_lossy(&invocation.body).into_owned();
        invocation.body = serde_json::Value::String(text).to_string().into();
    }
    invocation
}

/// What the runtime's client would otherwise panic over.
fn check_runtime() -> Result<(), ConfigError> {
    for (variable, example) in [
        ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001"),
        ("AWS_LAMBDA_FUNCTION_NAME", "job-failed"),
        ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
    ] {
        let value = environment(variable).unwrap_or_default();
        if value.is_empty()
            || (variable == "AWS_LAMBDA_FUNCTION_MEMORY_SIZE" && value.parse::<i32>().is_err())
        {
            let problem =
                "is not what the Lambda runtime sets; on a laptop, `cargo lambda watch` does".to_owned();
            return Err(ConfigError { variable, problem, example: example.into() });
        }
    }
    Ok(())
}

/// What a panic said.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
