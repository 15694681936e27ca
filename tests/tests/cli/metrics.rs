//! `recoup metrics`: the table of metrics, without a store.

use recoup::metrics::ALL;

use crate::harness::Recoup;

#[test]
fn the_metrics_are_printed_a_row_a_line_and_make_no_store() {
    let recoup = Recoup::on_a_file();
    let expected: Vec<_> = ALL.iter().map(|metric| serde_json::to_value(metric).unwrap()).collect();
    assert_eq!(recoup.lines(&["metrics"]), expected);
    assert!(!recoup.path("recoup.db").exists());
    let shown = recoup.ok(&["metrics"]);
    assert!(ALL.iter().all(|metric| shown.contains(metric.name)), "{shown}");
}
