//! The list of hand-made faults has not rotted: each can still be made, and the test that must notice it is there.

use std::collections::BTreeSet;
use std::fs;

use recoup_tests::faults::{all, root};

#[test]
fn every_fault_can_be_made() {
    for fault in all() {
        let right = fs::read_to_string(root().join(&fault.file)).expect(&fault.file);
        let wrong = fault.made_in(&right).unwrap_or_else(|error| panic!("{error}"));
        assert_ne!(wrong, right, "{}", fault.name);
    }
}

#[test]
fn every_fault_has_a_name_of_its_own_and_a_reason() {
    let faults = all();
    let names: BTreeSet<&str> = faults.iter().map(|fault| fault.name.as_str()).collect();
    assert_eq!(names.len(), faults.len());
    assert!(faults.iter().all(|fault| !fault.why.is_empty()));
}

#[test]
fn the_test_that_must_notice_a_fault_is_there() {
    for mut fault in all() {
        assert!(fault.test_is_there(), "{}: {} has no test {}", fault.name, fault.suite, fault.test);
        fault.test = "no_such_test".to_owned();
        assert!(!fault.test_is_there(), "{}", fault.suite);
    }
}
