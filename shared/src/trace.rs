//! The trace that an event belongs to, carried from a failure over its retry to the workers.
//!
//! It rides in the job document, beside the reason of the failure, and not in the queue: there the same retry must be the
//! same bytes whoever pushed it, and a queue that Redis lost is rebuilt from the jobs. Nothing is ever decided by it.

use std::fmt;

use serde::Serialize;

/// The longest trace that is kept, in bytes.
const MAX_BYTES: usize = 256;

/// An AWS X-Ray header (`Root=1-…;Parent=…;Sampled=1`) or a W3C `traceparent`, as the sender wrote it: 1 to 256
/// printable ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceContext(String);

impl TraceContext {
    /// Takes what may be a trace; `None` for anything else, which counts as no trace at all.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let fits = (1..=MAX_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then_some(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The X-Ray header that AWS takes beside a message, with the parts that AWS knows; `None` for a trace of another
    /// kind, or a header out of shape, for which SQS would refuse the whole message.
    pub fn xray_header(&self) -> Option<String> {
        let part = |name: &str| {
            let mut parts = self.0.split(';').filter_map(|part| part.split_once('='));
            parts.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let root = part("Root").filter(|root| is_root(root))?;
        let mut header = format!("Root={root}");
        if let Some(parent) = part("Parent").filter(|parent| is_hex(parent, 16)) {
            header.push_str(";Parent=");
            header.push_str(parent);
        }
        if let Some(sampled) = part("Sampled").filter(|sampled| matches!(*sampled, "0" | "1")) {
            header.push_str(";Sampled=");
            header.push_str(sampled);
        }
        Some(header)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `1-<8 hexadecimal digits>-<24>`.
fn is_root(text: &str) -> bool {
    let mut parts = text.split('-');
    let (version, time, id) = (parts.next(), parts.next(), parts.next());
    version == Some("1")
        && time.is_some_and(|time| is_hex(time, 8))
        && id.is_some_and(|id| is_hex(id, 24))
        && parts.next().is_none()
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "Root=1-63441c4a-abcdef012345678912345678";

    #[test]
    fn printable_text_of_a_bounded_length_is_a_trace() {
        assert_eq!(TraceContext::new(ROOT).unwrap().as_str(), ROOT);
        assert!(TraceContext::new("x".repeat(256)).is_some());
        for text in ["", "a b", "a\nb", "ä", &"x".repeat(257)] {
            assert_eq!(TraceContext::new(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_xray_header_is_made_of_what_fits() {
        let header = |text: &str| TraceContext::new(text).unwrap().xray_header();
        assert_eq!(header(ROOT).as_deref(), Some(ROOT));
        let whole = format!("{ROOT};Parent=0123456789abcdef;Sampled=1");
        assert_eq!(header(&whole).as_deref(), Some(whole.as_str()));
        assert_eq!(header(&format!("Self=1;{ROOT};Parent=x;Sampled=?;Lineage=a:0")).as_deref(), Some(ROOT));
        for text in [
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "Root=1-63441c4a-abcdef01234567891234567",
            "Root=1-63441c4a-abcdef012345678912345678-0",
            "Root=2-63441c4a-abcdef012345678912345678",
            "Sampled=1",
        ] {
            assert_eq!(header(text), None, "{text}");
        }
    }
}
