//! `recoup sources`: the table in force, without a store.

use crate::harness::Recoup;

#[test]
fn the_table_is_printed_a_row_a_line_and_makes_no_store() {
    let recoup = Recoup::on_a_file();
    let rows = recoup.lines(&["sources"]);
    assert_eq!(rows.len(), recoup::sources::TABLE.len());
    let batch = rows.iter().find(|row| row["source"] == "aws.batch").unwrap();
    for (field, value) in [
        ("carrier", serde_json::json!("eventbridge")),
        ("detail_type", serde_json::json!("Batch Job State Change")),
        ("status", serde_json::json!("detail.status")),
        ("success", serde_json::json!(["SUCCEEDED"])),
        ("failure", serde_json::json!(["FAILED"])),
        ("enabled", serde_json::json!(true)),
    ] {
        assert_eq!(batch[field], value, "{field}");
    }
    assert!(!recoup.path("recoup.db").exists());
    let shown = recoup.ok(&["sources"]);
    assert!(shown.contains("MediaConvert Job State Change") && shown.contains("in the address"), "{shown}");
}

#[test]
fn overrides_show_and_wrong_ones_are_refused() {
    let off = Recoup::on_a_file().with("EVENT_SOURCES", r#"{"aws.ecs":{"enabled":false}}"#);
    assert!(off.ok(&["sources"]).contains("aws.ecs is switched off"));
    let wrong = Recoup::on_a_file().with("EVENT_SOURCES", r#"{"aws.esc":{}}"#);
    assert!(
        wrong.refused(2, &["sources"]).starts_with("EVENT_SOURCES names aws.esc, which is none of aws.batch")
    );
}
