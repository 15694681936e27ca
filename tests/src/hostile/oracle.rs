//! Which texts an input gives for a job's id, found without a parser: every string literal behind `"job_id":`, also in
//! the strings that hold JSON themselves. No recursion, so no nesting is too deep for it.

use std::collections::HashSet;

/// Layers of JSON in strings in JSON that are looked into.
const LAYERS: usize = 6;

/// The texts that `input` gives for a job's id.
pub(super) fn given(input: &str) -> HashSet<String> {
    let mut ids = HashSet::new();
    let mut layer = vec![input.to_owned()];
    for _ in 0..LAYERS {
        layer = layer.iter().flat_map(|text| inner(text, &mut ids)).collect();
    }
    ids
}

/// Collects the ids of one layer, and answers with the strings that may hold another.
fn inner(text: &str, ids: &mut HashSet<String>) -> Vec<String> {
    let mut inner = Vec::new();
    let mut rest = text;
    let mut is_named = false;
    while let Some(start) = rest.find('"') {
        // Only a colon may stand between the name and its value.
        let is_value = is_named && rest[..start].trim() == ":";
        let Some(length) = literal(&rest[start..]) else { break };
        let (json, after) = rest[start..].split_at(length);
        rest = after;
        let Ok(read) = serde_json::from_str::<String>(json) else {
            is_named = false;
            continue;
        };
        is_named = read == "job_id";
        if is_value {
            ids.insert(read.clone());
        }
        if read.trim_start().starts_with('{') {
            inner.push(read);
        }
    }
    inner
}

/// The length of the string literal that `text` starts with.
fn literal(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_string_behind_the_name_is_given() {
        for is_given in [r#"{"detail":{"job_id" : "\u006a"}}"#, r#"{"body":"{\"job_id\":\"j\"}"}"#] {
            assert!(given(is_given).contains("j"), "{is_given}");
        }
        for not_given in
            [r#"{"x":"j"}"#, r#"{"job_id":["j"]}"#, r#"{"job_id":{"j":1}}"#, r#"{"job_id":"jj"}"#]
        {
            assert!(!given(not_given).contains("j"), "{not_given}");
        }
    }
}
