//! The recorder behind the metrics: CloudWatch's embedded metric format, lines on stdout from which CloudWatch makes
//! metrics by itself. No call to an API, and nothing to lose but the line.

use std::sync::OnceLock;

use metrics_cloudwatch_embedded::{Builder, Collector};

use crate::metrics::{ALL, FUNCTION, NAMESPACE, Unit, begin_latencies};

static COLLECTOR: OnceLock<&Collector> = OnceLock::new();

/// Installs the recorder for this process. A second installation is a test's, whose metrics go nowhere.
pub(super) fn install(function: String) {
    let built = Builder::new().cloudwatch_namespace(NAMESPACE).with_dimension(FUNCTION, function).init();
    if let Ok(collector) = built {
        for metric in ALL {
            let unit = match metric.unit {
                Unit::Count => metrics::Unit::Count,
                Unit::Milliseconds => metrics::Unit::Milliseconds,
                Unit::Seconds => metrics::Unit::Seconds,
            };
            // The recorder keeps one unit for a name, whatever it was described as.
            metrics::describe_histogram!(metric.name, unit, metric.meaning);
        }
        let _ = COLLECTOR.set(collector);
    }
}

/// Writes what the invocation counted: one line for each set of dimensions.
pub(super) fn flush(request_id: &str) {
    begin_latencies();
    if let Some(collector) = COLLECTOR.get() {
        collector.set_property("request_id", request_id);
        if let Err(error) = collector.flush(std::io::stdout().lock()) {
            tracing::warn!(%error, "the metrics could not be written");
        }
    }
}
