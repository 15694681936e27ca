//! Which texts an input gives for a job's id, found without a parser: every string literal behind `"job_id":`, also in
//! the strings that hold JSON themselves. No recursion, so no nesting is too deep for it.

/// Layers of JSON in strings in JSON that are looked into.
const LAYERS: usize = 6;

/// Whether `job_id` is, as it stands, one of the texts that `input` gives for it.
pub(super) fn gives(input: &str, job_id: &str) -> bool {
    let mut layer = vec![input.to_owned()];
    for _ in 0..LAYERS {
        let mut inner = Vec::new();
        for text in &layer {
            if literals_of(text, job_id, &mut inner) {
                return true;
            }
        }
        layer = inner;
    }
    false
}

/// Looks for the id in one layer, and collects the strings that may hold another.
fn literals_of(text: &str, job_id: &str, inner: &mut Vec<String>) -> bool {
    let mut rest = text;
    let mut is_named = false;
    while let Some(start) = rest.find('"') {
        // Whatever stands between a name and its literal but a colon means that the literal is not its value.
        let is_value = is_named && rest[..start].trim() == ":";
        let Some(length) = literal(&rest[start..]) else { return false };
        let (json, after) = rest[start..].split_at(length);
        let read: Option<String> = serde_json::from_str(json).ok();
        if let Some(read) = read {
            if is_value && read == job_id {
                return true;
            }
            is_named = read == "job_id";
            if read.trim_start().starts_with('{') {
                inner.push(read);
            }
        } else {
            is_named = false;
        }
        rest = after;
    }
    false
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
        assert!(gives(r#"{"detail":{"job_id" : "\u006a"}}"#, "j"));
        assert!(gives(r#"{"body":"{\"job_id\":\"j\"}"}"#, "j"));
        for not_given in
            [r#"{"x":"j"}"#, r#"{"job_id":["j"]}"#, r#"{"job_id":{"j":1}}"#, r#"{"job_id":"jj"}"#]
        {
            assert!(!gives(not_given, "j"), "{not_given}");
        }
    }
}
