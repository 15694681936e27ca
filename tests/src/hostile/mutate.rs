//! Bytes that were good, spoilt: cut, doubled, flipped, joined with others.

use fastrand::Rng;

use super::json::pick;

/// Pieces that parsers trip over.
const PIECES: [&[u8]; 14] = [
    b"\0",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\\ud800",
    b"\"",
    b"\\",
    b"{",
    b"]",
    b",\"job_id\":\"other\"",
    b"1e999",
    b"\xe2\x80\xa8",
    b"\r\n",
];

/// Spoils `bytes` in one to four places.
pub(super) fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..=4) {
        let at = rng.usize(..=bytes.len());
        match rng.u8(..6) {
            0 => bytes.truncate(at),
            1 => {
                bytes.splice(at..at, pick(rng, &PIECES).iter().copied());
            }
            2 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
            3 if at < bytes.len() => {
                bytes.remove(at);
            }
            4 => {
                let end = bytes.len().min(at + rng.usize(..64));
                let doubled = bytes[at..end].to_vec();
                bytes.splice(at..at, doubled);
            }
            _ => bytes.insert(at, rng.u8(..)),
        }
    }
}
