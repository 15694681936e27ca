//! From a connection string to a client that is safe to keep money with.
//!
//! The string chooses the server, the credentials, TLS and the database; durability and patience are ours, and a
//! string that asks for less durability is refused rather than overruled, since its author meant something by it.
//! No message shows the string or a part of it: where a password is not percent-encoded, any part of it may end up
//! where a host, a port or a database name is expected.

use std::future::{Future, IntoFuture};
use std::time::Duration;

use mongodb::error::ErrorKind;
use mongodb::options::{
    Acknowledgment, ClientOptions, ReadConcern, ReadPreference, SelectionCriteria, ServerMonitoringMode, Tls,
    WriteConcern,
};
use mongodb::{Client, Database};

use super::CALL_BOUND;
use crate::clock::Deadline;

/// The database where the connection string's path names none.
const DEFAULT_DATABASE: &str = "recoup";
/// Connections a process keeps at most: a function works on one event at a time, and a drain on a few.
const MAX_POOL_SIZE: u32 = 10;
/// How long a write may wait for the majority's journals before it is an error.
const WRITE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long to look for a primary.
const SERVER_SELECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection idle for longer is made anew: load balancers and frozen functions lose them without a word.
const MAX_IDLE_TIME: Duration = Duration::from_secs(60);

const EXAMPLE: &str = "for example mongodb+srv://user:password@cluster0.example.mongodb.net/recoup";

/// Why a connection string is refused. The message never shows the string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Nothing that the driver can read.
    #[error(
        "MONGODB_URI is not a MongoDB connection string (special characters in a password must be \
         percent-encoded); {EXAMPLE}"
    )]
    NotAConnectionString,
    /// The host of a `mongodb+srv` address has no SRV record, or a name server said that it could not answer.
    #[error("MONGODB_URI names a host that DNS does not resolve; {EXAMPLE}")]
    Unresolved,
    /// The name servers kept silent.
    #[error(
        "MONGODB_URI names a host for which no name server answered within {} ms; see whether DNS can be reached, \
         and try again", CALL_BOUND.as_millis()
    )]
    NoNameServer,
    /// What stands in its path cannot be a database.
    #[error("MONGODB_URI has a path that is not the name of a database; {EXAMPLE}")]
    BadDatabase,
    /// It asks for a write concern that could lose what was answered.
    #[error(
        "MONGODB_URI asks for {0}, but a ledger write must reach the journals of a majority; leave the option \
         out or use w=majority&journal=true; {EXAMPLE}"
    )]
    WeakWriteConcern(&'static str),
    /// It asks not to look whose certificate the server shows.
    #[error(
        "MONGODB_URI turns off the verification of the server's certificate; leave tlsInsecure and \
         tlsAllowInvalidCertificates out, and for a certificate of your own name its authority with tlsCAFile; {EXAMPLE}"
    )]
    UnverifiedTls,
    /// A file that it names is not there, or not what it should be.
    #[error(
        "MONGODB_URI names a tlsCAFile or tlsCertificateKeyFile that cannot be read or holds no PEM; {EXAMPLE}"
    )]
    TlsFile,
}

/// A client for this connection string, and the ledger's database. Connects with the first operation.
pub(super) async fn connect(uri: &str) -> Result<Database, OpenError> {
    let mut options = within(CALL_BOUND, ClientOptions::parse(uri).into_future()).await?;
    refuse_weak(options.write_concern.as_ref())?;
    refuse_unverified(options.tls.as_ref())?;
    options.write_concern = Some(
        WriteConcern::builder().w(Acknowledgment::Majority).w_timeout(WRITE_TIMEOUT).journal(true).build(),
    );
    options.read_concern = Some(ReadConcern::majority());
    options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    options.server_selection_timeout = Some(SERVER_SELECTION_TIMEOUT);
    options.connect_timeout = Some(CONNECT_TIMEOUT);
    options.max_idle_time = Some(MAX_IDLE_TIME);
    // Asking instead of listening, as the driver does in a function anyway: a look that is wanted at once, after a
    // primary stepped down, does not wait for the end of one that listens. It also saves a connection.
    options.server_monitoring_mode = Some(ServerMonitoringMode::Poll);
    options.max_pool_size =
        Some(options.max_pool_size.map_or(MAX_POOL_SIZE, |size| size.clamp(1, MAX_POOL_SIZE)));
    options.app_name.get_or_insert_with(|| "recoup".to_owned());
    let name = options.default_database.clone().unwrap_or_else(|| DEFAULT_DATABASE.to_owned());
    if name.is_empty() || name.len() > 63 || name.contains(['/', '\\', '.', ' ', '"', '$', '@', ':', '\0']) {
        return Err(OpenError::BadDatabase);
    }
    let client = Client::with_options(options).map_err(|error| {
        let of_tls = matches!(*error.kind, ErrorKind::InvalidTlsConfig { .. } | ErrorKind::Io(_));
        if of_tls { OpenError::TlsFile } else { OpenError::NotAConnectionString }
    })?;
    Ok(client.database(&name))
}

/// What the driver makes of the string. It asks the name servers where that is a `mongodb+srv` address, and has no
/// bound on how long all of them may keep silent.
async fn within(
    bound: Duration,
    parse: impl Future<Output = mongodb::error::Result<ClientOptions>>,
) -> Result<ClientOptions, OpenError> {
    let parsed = Deadline::after(bound).bound(parse).await.ok_or(OpenError::NoNameServer)?;
    parsed.map_err(|error| {
        let unresolved = matches!(*error.kind, ErrorKind::DnsResolve { .. });
        if unresolved { OpenError::Unresolved } else { OpenError::NotAConnectionString }
    })
}

fn refuse_weak(asked: Option<&WriteConcern>) -> Result<(), OpenError> {
    let Some(asked) = asked else { return Ok(()) };
    match asked.w {
        None | Some(Acknowledgment::Majority) => {}
        Some(Acknowledgment::Nodes(0)) => return Err(OpenError::WeakWriteConcern("w=0")),
        Some(Acknowledgment::Nodes(_)) => return Err(OpenError::WeakWriteConcern("a w that is a number")),
        Some(_) => return Err(OpenError::WeakWriteConcern("a w that is not majority")),
    }
    if asked.journal == Some(false) {
        return Err(OpenError::WeakWriteConcern("journal=false"));
    }
    Ok(())
}

/// The driver takes a certificate of anybody where it is told to, and so would hand the password to anybody.
fn refuse_unverified(asked: Option<&Tls>) -> Result<(), OpenError> {
    match asked {
        Some(Tls::Enabled(tls)) if tls.allow_invalid_certificates == Some(true) => {
            Err(OpenError::UnverifiedTls)
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn name_servers_that_keep_silent_are_not_waited_for() {
        let silent = within(Duration::from_millis(1), std::future::pending()).await.unwrap_err();
        assert_eq!(silent, OpenError::NoNameServer);
        assert!(silent.to_string().starts_with("MONGODB_URI names a host for which no name server answered"));
    }

    #[tokio::test]
    async fn durability_and_reads_are_ours_whatever_the_string_says() {
        for options in [
            "",
            "?w=majority&wtimeoutMS=0",
            "?journal=true",
            "?readPreference=secondary&readConcernLevel=local",
        ] {
            let database = connect(&format!("mongodb://127.0.0.1:1/{options}")).await.unwrap();
            let write = database.write_concern().unwrap();
            assert_eq!((&write.w, write.journal), (&Some(Acknowledgment::Majority), Some(true)), "{options}");
            assert_eq!(write.w_timeout, Some(WRITE_TIMEOUT), "{options}");
            assert_eq!(database.read_concern(), Some(&ReadConcern::majority()), "{options}");
            let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
            assert_eq!(database.selection_criteria(), Some(&primary), "{options}");
        }
    }

    #[tokio::test]
    async fn a_certificate_is_always_looked_at() {
        for options in ["tlsInsecure=true", "tlsAllowInvalidCertificates=true", "TLSInsecure=true"] {
            for scheme in ["", "tls=true&", "ssl=true&"] {
                let refused = connect(&format!("mongodb://u:hunter2@127.0.0.1:1/?{scheme}{options}")).await;
                assert_eq!(refused.unwrap_err(), OpenError::UnverifiedTls, "{scheme}{options}");
            }
        }
        for options in
            ["tls=true", "tls=true&tlsInsecure=false", "tls=true&tlsAllowInvalidCertificates=false"]
        {
            connect(&format!("mongodb://127.0.0.1:1/?{options}")).await.expect(options);
        }
        for file in ["tlsCAFile", "tlsCertificateKeyFile"] {
            let refused = connect(&format!("mongodb://127.0.0.1:1/?tls=true&{file}=/nowhere.pem")).await;
            assert_eq!(refused.unwrap_err(), OpenError::TlsFile, "{file}");
        }
    }
}
