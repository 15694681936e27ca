//! The address that proves a call: it carries provider, job and attempt, and an HMAC of the three.
//!
//! `<base>/<provider>/<job>/<attempt>/<proof>`, where job is the job's id and proof the code, both as base64url without
//! padding (RFC 4648 §5), because gateways decode and encode other characters of a path as they like. The charge is
//! made before a provider names its job, so the address is the one place where our own id can stand. What is signed is
//! `recoup-webhook-v1`, provider, attempt and job id, with a line feed between them: none of the first three can hold
//! one, so no two addresses sign the same text.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use crate::job::{JobId, MAX_ATTEMPT};
use crate::sources::Provider;

const VERSION: &str = "recoup-webhook-v1";

/// What a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Who calls.
    pub provider: Provider,
    /// The job, by the platform's own id.
    pub job_id: JobId,
    /// Which attempt of it, counted from 1.
    pub attempt: u32,
}

impl Subject {
    fn signed_text(&self) -> String {
        format!("{VERSION}\n{}\n{}\n{}", self.provider.as_str(), self.attempt, self.job_id)
    }

    /// The code that proves it, as it stands in the address.
    pub(super) fn proof(&self, secret: &hmac::Key) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(secret, self.signed_text().as_bytes()))
    }

    /// The address below `base`, such as `https://x.lambda-url.eu-west-1.on.aws`.
    pub(super) fn address(&self, base: &str, secret: &hmac::Key) -> String {
        let job = URL_SAFE_NO_PAD.encode(self.job_id.as_str());
        let base = base.trim_end_matches('/');
        format!("{base}/{}/{job}/{}/{}", self.provider.as_str(), self.attempt, self.proof(secret))
    }

    /// Reads and verifies the last four parts of a path; what stands before them is a stage or a mapping of a gateway.
    /// `None` for whatever is wrong: a caller without a proof is told nothing. Compared in constant time.
    pub(super) fn believe(path: &str, secrets: &[hmac::Key]) -> Option<Self> {
        let mut parts = path.rsplit('/');
        let (proof, attempt, job, provider) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let job = String::from_utf8(URL_SAFE_NO_PAD.decode(job).ok()?).ok()?;
        let subject = Self {
            provider: provider.parse().ok()?,
            job_id: JobId::new(job).ok()?,
            attempt: attempt_of(attempt)?,
        };
        let proof = URL_SAFE_NO_PAD.decode(proof).ok()?;
        let text = subject.signed_text();
        secrets.iter().any(|secret| hmac::verify(secret, text.as_bytes(), &proof).is_ok()).then_some(subject)
    }
}

/// As we write it: no sign and no leading zero.
fn attempt_of(text: &str) -> Option<u32> {
    let attempt: u32 = text.parse().ok()?;
    ((1..=MAX_ATTEMPT).contains(&attempt) && attempt.to_string() == text).then_some(attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes())
    }

    fn subject(job: &str) -> Subject {
        Subject { provider: Provider::Fal, job_id: JobId::new(job).unwrap(), attempt: 2 }
    }

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn the_address_is_as_worked_out_by_another_program() {
        // Python: base64.urlsafe_b64encode(hmac.new(SECRET, b"recoup-webhook-v1\nfal\n2\njob/1", "sha256").digest())
        assert_eq!(
            subject("job/1").address("https://h/stage/", &key(SECRET)),
            "https://h/stage/fal/am9iLzE/2/IO_2Wm20J0aFACPzn0fOuqqSujt9NMIq1sMlKDyKQYw"
        );
    }

    #[test]
    fn any_id_comes_back_from_its_address() {
        for job in
            ["j", "a/b", "../..", "é\u{1F600}", "%2F", "a b", &"x".repeat(256), &"\u{1F600}".repeat(256)]
        {
            let subject = subject(job);
            let address = subject.address("https://h", &key(SECRET));
            assert!(
                address["https://h".len()..]
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"/-_".contains(&b))
            );
            for path in [&address["https://h".len()..], &format!("/stage{}", &address["https://h".len()..])] {
                assert_eq!(Subject::believe(path, &[key("another"), key(SECRET)]), Some(subject.clone()));
            }
            assert_eq!(Subject::believe(&address, &[key("another")]), None);
        }
    }

    #[test]
    fn whatever_was_changed_is_not_believed() {
        let secret = key(SECRET);
        let address = subject("job-1").address("", &secret);
        let other = subject("job-2").address("", &secret);
        let [_, provider, job, attempt, proof] = address.split('/').collect::<Vec<_>>().try_into().unwrap();
        let other_job = other.split('/').nth(2).unwrap();
        let forged = [
            format!("/runpod/{job}/{attempt}/{proof}"),
            format!("/FAL/{job}/{attempt}/{proof}"),
            format!("/{provider}/{other_job}/{attempt}/{proof}"),
            format!("/{provider}/{job}=/{attempt}/{proof}"),
            format!("/{provider}/{job}/3/{proof}"),
            format!("/{provider}/{job}/02/{proof}"),
            format!("/{provider}/{job}/+2/{proof}"),
            format!("/{provider}/{job}/{attempt}/{proof}="),
            format!("/{provider}/{job}/{attempt}/{proof}A"),
            format!("/{provider}/{job}/{attempt}/{}", &proof[..proof.len() - 1]),
            format!("/{provider}/{job}/{attempt}/{}", proof.to_lowercase()),
            format!("/{provider}/{job}/{attempt}/"),
            format!("/{provider}/{job}/{attempt}/{proof}/"),
            format!("/{provider}/{job}/{attempt}"),
            format!("{address}/more"),
            String::new(),
            "////".to_owned(),
        ];
        for path in forged {
            assert_eq!(Subject::believe(&path, std::slice::from_ref(&secret)), None, "{path}");
        }
        for place in 0..address.len() {
            let mut changed = address.clone().into_bytes();
            changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(Subject::believe(&changed, std::slice::from_ref(&secret)), None, "{changed}");
        }
    }
}
