//! One JSON object a line on stdout, which Lambda takes as it is.
//!
//! What stands in a line: `timestamp`, `level`, `message`, `target`, the fields of the event at the top, and the span it
//! happened in (`span.request_id`, and `span.message_id` within a batch), so that a warning from deep inside can be
//! traced too. `RUST_LOG` says what is logged; without it, the level that Lambda is configured to, or else `info`. Lambda's
//! `FATAL` is our `error`: nothing of ours is worse.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;

/// Installs the logs for this process, and has panics logged there too.
pub(super) fn install() {
    let level = std::env::var("AWS_LAMBDA_LOG_LEVEL").ok().and_then(|level| level_of(&level));
    let filter = EnvFilter::builder()
        .with_default_directive(level.unwrap_or(LevelFilter::INFO).into())
        .from_env_lossy()
        // It repeats every error that a handler returns, without the fields that ours have.
        .add_directive(directive("lambda_runtime::layers::panic=off"))
        // At TRACE it repeats payloads: the path of a webhook is a proof.
        .add_directive(directive("lambda_runtime::layers::api_response=debug"));
    let logs = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(std::io::stdout)
        .finish();
    // A second installation is a test's, whose logs are already somewhere.
    let _ = tracing::subscriber::set_global_default(logs);
    std::panic::set_hook(Box::new(
        |panic| tracing::error!(%panic, "a panic; the record it happened in fails"),
    ));
}

fn directive(text: &str) -> Directive {
    text.parse().expect("a target and a level are a directive")
}

/// The level that Lambda calls so.
fn level_of(name: &str) -> Option<LevelFilter> {
    if name.eq_ignore_ascii_case("fatal") { Some(LevelFilter::ERROR) } else { name.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_that_lambda_can_be_configured_to_is_understood() {
        for (name, level) in [
            ("TRACE", LevelFilter::TRACE),
            ("DEBUG", LevelFilter::DEBUG),
            ("INFO", LevelFilter::INFO),
            ("WARN", LevelFilter::WARN),
            ("ERROR", LevelFilter::ERROR),
            ("FATAL", LevelFilter::ERROR),
        ] {
            assert_eq!(level_of(name), Some(level), "{name}");
        }
        assert_eq!(level_of("loud"), None);
    }
}
