//! The searches, as `docs/MODEL.md` tells of them. After a change: `cargo run -p recoup-model -- docs docs/MODEL.md`.

use recoup_model::report::{Part, Report, guards, searches};

fn assert_as_documented(part: Part, report: &Report) {
    assert!(report.wrong.is_empty(), "{}", report.wrong.join("\n"));
    let document = include_str!("../../docs/MODEL.md");
    let stands = part.of(document).expect("the document has the marks of this part");
    assert_eq!(stands, report.text, "run `cargo run -p recoup-model -- docs docs/MODEL.md`");
}

#[test]
fn every_state_is_right_and_leads_to_a_good_end_as_documented() {
    let report = searches(&mut |line| println!("{line}"));
    assert_as_documented(Part::Searches, &report);
}

#[test]
fn each_guard_taken_out_makes_the_search_fail_as_documented() {
    let report = guards(&mut |line| println!("{line}"));
    assert_as_documented(Part::Guards, &report);
}
