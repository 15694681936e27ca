//! What the driver says, cut by what to do next.
//!
//! By kind and code, never by text. What is passed on is the code, its name and the server's message, cut to length:
//! not the driver's whole error, which holds the server's reply with the document in it.
// The driver's enums are open: what it adds is a refusal, which a person looks at.
#![allow(clippy::wildcard_enum_match_arm)]

use mongodb::error::{CommandError, Error, ErrorKind, WriteFailure};

use crate::ledger::LedgerError;

/// The store's name in errors.
pub(super) const STORE: &str = "MongoDB";
/// The most characters of a server's message that are passed on.
const MAX_TEXT: usize = 400;
/// A key that is there already.
const DUPLICATE_KEY: i32 = 11_000;

/// Codes that pass by themselves, from <https://www.mongodb.com/docs/manual/reference/error-codes/>: a primary that
/// steps down or shuts down, networks between servers, time limits, locks, and load that is turned away.
const PASSING: [i32; 34] = [
    6, 7, 24, 43, 46, 50, 63, 64, 89, 91, 100, 112, 133, 134, 150, 175, 189, 202, 225, 237, 244, 246, 251,
    262, 317, 384, 462, 9001, 10_107, 11_600, 11_601, 11_602, 13_435, 13_436,
];
/// The labels with which servers and driver say that trying again may help.
const PASSING_LABELS: [&str; 4] =
    ["RetryableWriteError", "RetryableError", "SystemOverloadedError", "TransientTransactionError"];

/// Could not be reached or not confirmed; trying again is harmless.
pub(super) fn unavailable(what: impl Into<String>) -> LedgerError {
    LedgerError::Unavailable { store: STORE, what: what.into() }
}

/// A driver's error as the ledger's.
pub(super) fn from_driver(error: &Error) -> LedgerError {
    let what = describe(error);
    let code = command_code(error);
    let passes = match error.kind.as_ref() {
        // A write concern that was not met says nothing about whether the write will stand.
        ErrorKind::Write(WriteFailure::WriteConcernError(_))
        | ErrorKind::ServerSelection { .. }
        | ErrorKind::Io(_)
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::DnsResolve { .. }
        | ErrorKind::Shutdown => true,
        ErrorKind::InsertMany(failed) => failed.write_concern_error.is_some(),
        _ => false,
    };
    if passes
        || code.is_some_and(|code| PASSING.contains(&code))
        || PASSING_LABELS.iter().any(|label| error.contains_label(label))
    {
        unavailable(what)
    } else {
        LedgerError::Refused { store: STORE, what }
    }
}

/// Whether an insert failed because the key is there already. Whether what is there will stand is for a majority
/// read to say.
pub(super) fn is_duplicate_key(error: &Error) -> bool {
    match error.kind.as_ref() {
        ErrorKind::Write(WriteFailure::WriteError(failed)) => failed.code == DUPLICATE_KEY,
        ErrorKind::Command(failed) => failed.code == DUPLICATE_KEY,
        _ => false,
    }
}

/// The code of a command that failed or of a write that was refused.
pub(super) fn command_code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(CommandError { code, .. }) => Some(*code),
        ErrorKind::Write(WriteFailure::WriteError(failed)) => Some(failed.code),
        _ => None,
    }
}

fn describe(error: &Error) -> String {
    let text = match error.kind.as_ref() {
        ErrorKind::Command(failed) => coded(failed.code, &failed.code_name, &failed.message),
        ErrorKind::Write(WriteFailure::WriteError(failed)) => {
            coded(failed.code, failed.code_name.as_deref().unwrap_or_default(), &failed.message)
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(failed)) => {
            format!("write concern not met: {}", coded(failed.code, &failed.code_name, &failed.message))
        }
        ErrorKind::Io(io) => io.to_string(),
        ErrorKind::ServerSelection { message, .. } => not_selected(message),
        other => other.to_string(),
    };
    text.char_indices().nth(MAX_TEXT).map_or_else(|| text.clone(), |(end, _)| format!("{}…", &text[..end]))
}

/// The first server that said why, and what it said. The driver's text goes on with the whole topology, each server
/// with its labels, further causes and raw replies: `… Servers: [ { Address: db:27017, Type: Unknown, Error: Kind: I/O
/// error: connection refused, labels: {…} … }, …`.
fn not_selected(message: &str) -> String {
    let first = || {
        let (servers, said) = message.split_once("Error: Kind: ")?;
        let (_, server) = servers.rsplit_once("Address: ")?;
        let address = server.split([',', ' ']).next()?;
        let reason = said.split(", labels:").next()?.trim_end_matches(['}', ']', ' ', ',']);
        Some(format!("no server could be selected: {address}: {reason}"))
    };
    first().unwrap_or_else(|| "no server could be selected: none of them is a primary".to_owned())
}

fn coded(code: i32, name: &str, message: &str) -> String {
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    format!("code {code}{name}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_topology_the_first_reason_is_passed_on() {
        let message = "Server selection timeout: No available servers. Topology: { Type: ReplicaSetNoPrimary, Set \
                       Name: rs0, Servers: [ { Address: a.example:27017, Type: RsSecondary }, { Address: \
                       b.example:27017, Type: Unknown, Error: Kind: I/O error: Connection refused (os error 111), \
                       labels: {}, source: None }, { Address: c.example:27017, Type: Unknown, Error: Kind: other, \
                       labels: {} } ] }";
        assert_eq!(
            not_selected(message),
            "no server could be selected: b.example:27017: I/O error: Connection refused (os error 111)"
        );
        let nobody = "Server selection timeout: No available servers. Topology: { Type: ReplicaSetNoPrimary, Servers: \
                      [ { Address: a.example:27017, Type: RsSecondary } ] }";
        assert_eq!(not_selected(nobody), "no server could be selected: none of them is a primary");
    }
}
