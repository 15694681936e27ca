//! JSON as an attacker writes it: text, not a tree, because a tree cannot hold a field twice, half a surrogate pair or a
//! number that no type has.

use std::fmt::Write as _;

use fastrand::Rng;

/// Levels of the deepest nesting.
const DEEPEST: usize = 100_000;

/// Texts that are ids, however odd: each another job, and none of them a query, a path or a key.
pub const GOOD_IDS: [&str; 30] = [
    "job-1",
    "j",
    "{\"$ne\":1}",
    "{\"$gt\":\"\"}",
    "$where",
    "$gt",
    "$ne",
    "a.b",
    "a.$.b",
    ".",
    "__proto__",
    "constructor",
    "jobs:ready",
    "jobs:retry:parked",
    "*",
    "' OR 1=1 --",
    "\"",
    "\\",
    "\\u0000",
    "%00",
    "../../etc/passwd",
    "${jndi:ldap://x}",
    "null",
    "true",
    "paypal",
    "p\u{430}ypal",
    "\u{202e}boj",
    "job-1 ",
    "jo\u{200b}b-1",
    "\u{feff}job-1",
];

/// Texts that are no ids.
const BAD_IDS: [&str; 8] = ["", " ", "\u{a0}\u{2003}", "a\0", "a\nb", "\u{1b}[2J", "\u{85}", "\t"];

/// Numbers of every kind and size, some of which are none.
const NUMBERS: [&str; 30] = [
    "0",
    "1",
    "2",
    "-0",
    "-1",
    "1.0",
    "1e0",
    "1E2",
    "0.5",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740991",
    "9007199254740992",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "1e999",
    "-1e999",
    "1e-999",
    "01",
    "+1",
    "NaN",
    "Infinity",
    "1768471200000",
    "100000000000000",
    "999999999999",
];

/// One of these.
pub fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

/// Once in `times`.
pub fn once_in(rng: &mut Rng, times: usize) -> bool {
    rng.usize(..times) == 0
}

/// A text that is an id.
pub fn good_id(rng: &mut Rng) -> String {
    match rng.u8(..10) {
        0 => "\u{1f4be}".repeat(256),
        1 => "x".repeat(rng.usize(1..=256)),
        2 => rng.u64(..).to_string(),
        3 => std::iter::once('a').chain((0..20).map(|_| printable(rng))).collect(),
        _ => pick(rng, &GOOD_IDS).to_owned(),
    }
}

fn printable(rng: &mut Rng) -> char {
    let c = rng.char(..);
    if c.is_control() { '-' } else { c }
}

/// A text that may be an id.
pub fn any_id(rng: &mut Rng) -> String {
    match rng.u8(..10) {
        0..6 => good_id(rng),
        6 => "x".repeat(257),
        7 => " ".repeat(rng.usize(..300)),
        _ => pick(rng, &BAD_IDS).to_owned(),
    }
}

/// A JSON string that holds this text, its characters escaped or not as it comes.
pub fn quoted(rng: &mut Rng, text: &str) -> String {
    let plain = serde_json::to_string(text).expect("a text is always JSON");
    // Escaped whole within each other, three layers would be a hundred times as long.
    if text.len() > 400 || !once_in(rng, 4) {
        return plain;
    }
    let mut json = String::from('"');
    for unit in text.encode_utf16() {
        let _ = write!(json, "\\u{unit:04x}");
    }
    json.push('"');
    json
}

/// A JSON value of any kind, some of which are none.
pub fn value(rng: &mut Rng) -> String {
    match rng.u8(..16) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 => "false".to_owned(),
        3..6 => pick(rng, &NUMBERS).to_owned(),
        6 => "{}".to_owned(),
        7 => "[]".to_owned(),
        8 => "{\"$ne\":null}".to_owned(),
        9 => "[\"job-1\"]".to_owned(),
        10 => {
            pick(rng, &["\"\\ud800\"", "\"\\udc00\\ud800\"", "\"\\ud83d\"", "\"\\u12\"", "\"\\x\"", "\"\0\""])
                .to_owned()
        }
        11 if once_in(rng, 60) => deep(rng),
        _ => {
            let text = any_id(rng);
            quoted(rng, &text)
        }
    }
}

/// Nesting deeper than any stack, closed or left open.
pub fn deep(rng: &mut Rng) -> String {
    let levels = if once_in(rng, 20) { DEEPEST } else { rng.usize(1..2_000) };
    let (open, close) =
        pick(rng, &[("[", "]"), ("{\"a\":", "}"), ("{\"job_id\":", "}"), ("{\"detail\":", "}")]);
    let end = if once_in(rng, 4) { String::new() } else { close.repeat(levels) };
    format!("{}1{end}", open.repeat(levels))
}

/// An object of these fields.
pub fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, json)| format!("\"{name}\":{json}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// The same in any order and with white space, which must not matter, and with fields that are not ours.
pub fn shuffled(mut fields: Vec<(&str, String)>, rng: &mut Rng) -> String {
    if once_in(rng, 3) {
        fields.push((
            "unknown",
            pick(rng, &["[[1,{\"job_id\":2}]]", "{\"detail\":{}}", "1.5", "null"]).to_owned(),
        ));
    }
    rng.shuffle(&mut fields);
    let blank = pick(rng, &["", " ", "\n\t", "\r\n"]);
    let fields: Vec<String> =
        fields.iter().map(|(name, json)| format!("{}{blank}:{json}{blank}", quoted(rng, name))).collect();
    format!("{blank}{{{blank}{}}}{blank}", fields.join(","))
}

/// The same with something wrong: fields doubled, also under an escaped name, or missing, or other values in them.
pub fn spoilt(mut fields: Vec<(&str, String)>, rng: &mut Rng) -> String {
    for _ in 0..rng.usize(1..3) {
        let at = rng.usize(..fields.len());
        match rng.u8(..4) {
            0 => fields.push(fields[at].clone()),
            1 => fields[at].1 = value(rng),
            2 => fields.push((fields[at].0, value(rng))),
            _ if fields.len() > 1 => {
                fields.swap_remove(at);
            }
            _ => fields[at].1 = value(rng),
        }
    }
    shuffled(fields, rng)
}
