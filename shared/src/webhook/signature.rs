//! The signatures of providers that sign their calls, where a deployment has told us with what.
//!
//! Replicate signs as Standard Webhooks has it (<https://www.standardwebhooks.com/>): HMAC-SHA256 over
//! `<webhook-id>.<webhook-timestamp>.<body>`. fal.ai signs with Ed25519, by one of the keys of its key set, over request
//! id, user id, timestamp and the SHA-256 of the body, with a line feed between them
//! (<https://docs.fal.ai/model-endpoints/webhooks>). RunPod does not sign.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::{digest, hmac, signature};
use serde::Deserialize;

use super::Call;
use crate::clock::Timestamp;

/// How far a call's time may be from ours, either way.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// The keys of Standard Webhooks: `whsec_` and base64; several with blanks between them while one is replaced by another.
pub(super) fn standard_keys(text: &str) -> Option<Vec<hmac::Key>> {
    let key = |word: &str| {
        let bytes = STANDARD.decode(word.strip_prefix("whsec_")?).ok()?;
        // What the specification asks for at least.
        (bytes.len() >= 24).then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
    };
    let keys: Vec<hmac::Key> = text.split_whitespace().map(key).collect::<Option<_>>()?;
    (!keys.is_empty()).then_some(keys)
}

/// Whether one of the signatures of the call is by one of these keys, and its time is ours.
pub(super) fn is_standard(call: &Call<'_>, keys: &[hmac::Key], now: Timestamp) -> bool {
    let signed = || {
        let (id, time) = (call.header("webhook-id")?, call.header("webhook-timestamp")?);
        is_recent(time, now).then_some(())?;
        let text = [id.as_bytes(), b".", time.as_bytes(), b".", call.body].concat();
        let signatures = call.header("webhook-signature")?.split(' ');
        let signatures = signatures.filter_map(|word| STANDARD.decode(word.strip_prefix("v1,")?).ok());
        let is_by = |code: &[u8]| keys.iter().any(|key| hmac::verify(key, &text, code).is_ok());
        Some(signatures.take(10).any(|code| is_by(&code)))
    };
    signed().unwrap_or(false)
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    kty: String,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    x: String,
}

/// The Ed25519 keys of a key set (RFC 7517, RFC 8037); any other kind of key is passed over.
pub(super) fn ed25519_keys(text: &str) -> Option<Vec<Vec<u8>>> {
    let set: KeySet = serde_json::from_str(text).ok()?;
    let ours = set.keys.iter().filter(|key| key.kty == "OKP" && key.crv == "Ed25519");
    let keys: Vec<Vec<u8>> = ours.map(|key| URL_SAFE_NO_PAD.decode(&key.x).ok()).collect::<Option<_>>()?;
    (!keys.is_empty() && keys.iter().all(|key| key.len() == 32)).then_some(keys)
}

/// Whether the call is signed by one of fal.ai's keys, and its time is ours.
pub(super) fn is_fal(call: &Call<'_>, keys: &[Vec<u8>], now: Timestamp) -> bool {
    let signed = || {
        let header = |name: &str| call.header(&format!("x-fal-webhook-{name}"));
        let (request, user, time) = (header("request-id")?, header("user-id")?, header("timestamp")?);
        is_recent(time, now).then_some(())?;
        let body = hex::encode(digest::digest(&digest::SHA256, call.body));
        let text = [request, user, time, &body].join("\n");
        let code = hex::decode(header("signature")?).ok()?;
        Some(keys.iter().any(|key| {
            signature::UnparsedPublicKey::new(&signature::ED25519, key).verify(text.as_bytes(), &code).is_ok()
        }))
    };
    signed().unwrap_or(false)
}

/// Seconds since 1970, as both write them.
fn is_recent(time: &str, now: Timestamp) -> bool {
    let seconds: Option<i64> = time.parse().ok();
    let apart = seconds.and_then(|time| time.checked_mul(1_000)).map(|time| time.abs_diff(now.as_millis()));
    apart.is_some_and(|ms| Duration::from_millis(ms) <= TOLERANCE)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use ring::signature::KeyPair;

    use super::*;

    /// The example of the specification.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const TIME: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn standard() -> HashMap<String, String> {
        [
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    fn call<'a>(headers: &'a HashMap<String, String>, body: &'a [u8]) -> Call<'a> {
        Call { method: "POST", path: "", headers, body }
    }

    #[test]
    fn the_example_of_standard_webhooks_is_believed_and_nothing_near_it() {
        let keys = standard_keys(SECRET).unwrap();
        let good = standard();
        assert!(is_standard(&call(&good, BODY), &keys, at(TIME)));
        let both = format!("whsec_{} {SECRET}", STANDARD.encode([7; 24]));
        assert!(is_standard(&call(&good, BODY), &standard_keys(&both).unwrap(), at(TIME)), "rotated");
        let several = format!("v1,bm9uZQ== v1a,x {}", good["webhook-signature"]);
        let with = |name: &str, value: &str| {
            let mut headers = standard();
            headers.insert(name.to_owned(), value.to_owned());
            headers
        };
        assert!(is_standard(&call(&with("webhook-signature", &several), BODY), &keys, at(TIME)));

        assert!(!is_standard(&call(&good, b"{}"), &keys, at(TIME)), "another body");
        for (name, value) in [
            ("webhook-id", "msg_x"),
            ("webhook-timestamp", "1614265331"),
            ("webhook-timestamp", "9999999999999999999"),
            ("webhook-timestamp", ""),
            ("webhook-signature", ""),
            ("webhook-signature", "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
            ("webhook-signature", "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ] {
            assert!(!is_standard(&call(&with(name, value), BODY), &keys, at(TIME)), "{name}={value}");
        }
        for name in standard().into_keys() {
            let mut headers = standard();
            headers.remove(&name);
            assert!(!is_standard(&call(&headers, BODY), &keys, at(TIME)), "no {name}");
        }
        for (now, is_believed) in
            [(TIME - 301, false), (TIME - 300, true), (TIME + 300, true), (TIME + 301, false)]
        {
            assert_eq!(is_standard(&call(&good, BODY), &keys, at(now)), is_believed, "{now}");
        }
    }

    #[test]
    fn a_call_of_fal_is_believed_by_any_of_its_keys() {
        let pair = signature::Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
        let jwk =
            |x: &[u8]| format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{}"}}"#, URL_SAFE_NO_PAD.encode(x));
        let other = signature::Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap();
        let set = |own: &[u8]| {
            let other = jwk(other.public_key().as_ref());
            format!(r#"{{"keys":[{{"kty":"RSA","n":"x"}},{other},{}]}}"#, jwk(own))
        };
        let keys = ed25519_keys(&set(pair.public_key().as_ref())).unwrap();
        let text = format!("r-1\nu-1\n{TIME}\n{}", hex::encode(digest::digest(&digest::SHA256, BODY)));
        let signed: HashMap<String, String> = [
            ("x-fal-webhook-request-id", "r-1".to_owned()),
            ("x-fal-webhook-user-id", "u-1".to_owned()),
            ("x-fal-webhook-timestamp", TIME.to_string()),
            ("x-fal-webhook-signature", hex::encode(pair.sign(text.as_bytes()))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        assert!(is_fal(&call(&signed, BODY), &keys, at(TIME)));
        assert!(!is_fal(&call(&signed, b"{}"), &keys, at(TIME)));
        assert!(!is_fal(&call(&signed, BODY), &keys, at(TIME + 301)));
        assert!(!is_fal(&call(&signed, BODY), &keys[..1], at(TIME)), "by another key");
        for name in signed.keys() {
            let mut headers = signed.clone();
            headers.insert(name.clone(), "0".to_owned());
            assert!(!is_fal(&call(&headers, BODY), &keys, at(TIME)), "{name}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_%"] {
            assert!(standard_keys(text).is_none(), "{text}");
        }
        for text in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}"#] {
            assert!(ed25519_keys(text).is_none(), "{text}");
        }
    }
}
