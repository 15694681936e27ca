//! Why the command ends early, cut by the exit status it ends with.

use std::io;

use recoup::handlers::StoreError;
use recoup::ledger::LedgerError;
use recoup::queue::QueueError;

/// The command does not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    /// Exit status 1: it was refused, or it failed. One line: what, where, what to do.
    #[error("{0}")]
    Refused(String),
    /// Exit status 2: it was asked in a way that can never work.
    #[error("{0}")]
    Usage(String),
    /// Exit status 0: whoever read our output, such as `head`, has seen enough.
    #[error("the output was closed")]
    OutputClosed,
}

impl From<LedgerError> for Stop {
    fn from(error: LedgerError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<QueueError> for Stop {
    fn from(error: QueueError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Only for writing to stdout; reading a file says which file it was.
impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::Refused(format!("the output cannot be written: {error}; nothing is known of its rest"))
        }
    }
}

/// `text` on one line, control characters and the like made visible, so that an id or a reason that came from
/// outside can neither break the line nor steer a terminal.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Characters that turn the direction of writing or have no width: with them one text passes for another.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_shown_instead() {
        assert_eq!(visible("worker \u{1b}[2J timeout\r\n"), "worker \\u{1b}[2J timeout\\u{d}\\u{a}");
        assert_eq!(visible("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(visible("Größe 日本"), "Größe 日本");
    }
}
