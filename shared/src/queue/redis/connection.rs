//! One connection to Redis: made when it is first needed, kept between invocations, made anew after a failure.
//!
//! Three rules, which the client's own connection manager does not keep together:
//!
//! - Every call ends within [`CALL_BOUND`], whether Redis is down, refuses, or is frozen with its connections open.
//! - A connection is used again only while every call on it got its answer. After an error, a time-out, or a call
//!   that its caller dropped (a push has its own, shorter bound), the next call makes a new one. So it follows a
//!   failover by name, and a dead connection that only ever carries short-lived calls does not stay for good.
//! - A kept connection that turns out to be closed (a function sleeps for minutes, a load balancer does not wait)
//!   is replaced once within the call. The command may have been applied before; every command of the queue is
//!   harmless when it is applied twice.
//!
//! Nothing that Redis or the client says while a connection is made reaches an error text, because it may repeat
//! what was sent, and the password is sent there.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, Pipeline, RedisError,
    RedisFuture, RedisResult, TlsCertificates, Value,
};
use tokio::sync::Mutex;

use super::super::QueueError;
use super::OpenError;
use crate::clock::{Deadline, Stopwatch};
use crate::metrics::store_latency;

/// What a call takes at most, connecting included.
pub(super) const CALL_BOUND: Duration = Duration::from_millis(1_500);
/// What connecting to one node takes at most, or its answer to one command.
const NODE_BOUND: Duration = Duration::from_secs(1);
/// Redirections that a call follows while a cluster moves its slots.
const CLUSTER_RETRIES: u32 = 3;
/// Between two of them, in milliseconds.
const CLUSTER_RETRY_WAIT: (u64, u64) = (10, 100);
/// Characters of an answer of the server that an error repeats.
const MAX_SAID: usize = 200;

pub(super) const STORE: &str = "Redis";

/// A connection to one server, or to a cluster.
#[derive(Clone)]
pub(super) enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(connection) => connection.req_packed_command(cmd),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Single(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

enum Address {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
}

/// Makes the connection, and keeps it.
pub(super) struct Connector {
    address: Address,
    kept: Mutex<Option<Kept>>,
}

/// The connection, and whether some call on it went without its answer.
#[derive(Clone)]
struct Kept {
    connection: Connection,
    spoilt: Arc<AtomicBool>,
}

/// Spoils the connection when it is dropped, unless the answer came.
struct Unanswered<'a>(Option<&'a AtomicBool>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(spoilt) = self.0 {
            spoilt.store(true, Ordering::Relaxed);
        }
    }
}

impl Kept {
    fn is_good(&self) -> bool {
        !self.spoilt.load(Ordering::Relaxed)
    }

    async fn call<T, W>(&self, work: &impl Fn(Connection) -> W) -> RedisResult<T>
    where
        W: Future<Output = RedisResult<T>>,
    {
        let mut unanswered = Unanswered(Some(&self.spoilt));
        let answer = work(self.connection.clone()).await?;
        unanswered.0 = None;
        Ok(answer)
    }
}

impl Connector {
    /// Reads the address. Certificates are verified by this authority (PEM), or by those that everybody trusts.
    /// Connects to nothing.
    pub(super) fn new(url: &str, cluster: bool, authority: Option<Vec<u8>>) -> Result<Self, OpenError> {
        let client = Client::open(url).map_err(|_| OpenError::Address)?;
        let info = client.get_connection_info();
        if matches!(info.addr(), ConnectionAddr::TcpTls { insecure: false, .. }) {
            install_tls_provider();
        } else if !matches!(info.addr(), ConnectionAddr::Tcp(..)) {
            return Err(OpenError::Address);
        } else if authority.is_some() {
            return Err(OpenError::AuthorityWithoutTls);
        }
        let certificates = authority.map(|pem| TlsCertificates { client_tls: None, root_cert: Some(pem) });
        let address = if cluster {
            cluster_client(info, certificates).map(Address::Cluster)
        } else {
            single_client(client, certificates).map(Address::Single)
        };
        Ok(Self { address: address.map_err(|_| OpenError::Address)?, kept: Mutex::new(None) })
    }

    /// Runs `work` on the connection, twice where a kept one turns out to be closed.
    ///
    /// # Errors
    /// [`QueueError`], after [`CALL_BOUND`] at the latest.
    pub(super) async fn call<T, W>(&self, work: impl Fn(Connection) -> W) -> Result<T, QueueError>
    where
        W: Future<Output = RedisResult<T>>,
    {
        let watch = Stopwatch::start();
        let answer = Deadline::after(CALL_BOUND).bound(self.call_unbounded(&work)).await;
        store_latency(STORE, watch.elapsed());
        answer.unwrap_or_else(|| Err(unavailable(format!("no answer within {} ms", CALL_BOUND.as_millis()))))
    }

    async fn call_unbounded<T, W>(&self, work: &impl Fn(Connection) -> W) -> Result<T, QueueError>
    where
        W: Future<Output = RedisResult<T>>,
    {
        let kept = self.kept.lock().await.clone().filter(Kept::is_good);
        if let Some(kept) = kept {
            match kept.call(work).await {
                Err(error) if error.is_connection_dropped() => {}
                answer => return answer.map_err(|error| self.in_command(&error)),
            }
        }
        let fresh = self.connect().await.map_err(|error| in_connecting(&error))?;
        fresh.call(work).await.map_err(|error| self.in_command(&error))
    }

    async fn connect(&self) -> RedisResult<Kept> {
        let mut slot = self.kept.lock().await;
        if let Some(made_meanwhile) = slot.as_ref().filter(|kept| kept.is_good()) {
            return Ok(made_meanwhile.clone());
        }
        *slot = None;
        let connection = match &self.address {
            Address::Single(client) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(NODE_BOUND))
                    .set_response_timeout(Some(NODE_BOUND));
                Connection::Single(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Address::Cluster(client) => Connection::Cluster(client.get_async_connection().await?),
        };
        let fresh = Kept { connection, spoilt: Arc::default() };
        *slot = Some(fresh.clone());
        Ok(fresh)
    }

    /// What an answered or unanswered command means for the reader. The server's own words are repeated here: they
    /// name keys and scripts.
    fn in_command(&self, error: &RedisError) -> QueueError {
        let Some(code) = error.code() else { return on_our_side(error) };
        match (code, &self.address) {
            ("MOVED" | "ASK" | "CROSSSLOT", Address::Single(_)) => {
                refused(format!("it answered {code}, so it is a cluster; set REDIS_CLUSTER=true"))
            }
            (code, _) => {
                let said: String = error.detail().unwrap_or_default().chars().take(MAX_SAID).collect();
                by_code(code, format!("{code} {said}").trim_end().to_owned())
            }
        }
    }
}

fn single_client(client: Client, certificates: Option<TlsCertificates>) -> RedisResult<Box<Client>> {
    let Some(certificates) = certificates else { return Ok(Box::new(client)) };
    Client::build_with_tls(client.get_connection_info().clone(), certificates).map(Box::new)
}

fn cluster_client(
    info: &ConnectionInfo,
    certificates: Option<TlsCertificates>,
) -> RedisResult<Box<ClusterClient>> {
    let mut builder = ClusterClient::builder([info.clone()])
        .connection_timeout(NODE_BOUND)
        .response_timeout(NODE_BOUND)
        .retries(CLUSTER_RETRIES)
        .min_retry_wait(CLUSTER_RETRY_WAIT.0)
        .max_retry_wait(CLUSTER_RETRY_WAIT.1);
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    builder.build().map(Box::new)
}

/// The process's TLS needs one cryptography provider. Where another part has installed one, that is used.
fn install_tls_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn unavailable(what: String) -> QueueError {
    QueueError::Unavailable { store: STORE, what }
}

fn refused(what: String) -> QueueError {
    QueueError::Refused { store: STORE, what }
}

fn in_connecting(error: &RedisError) -> QueueError {
    match error.code() {
        Some(code) => by_code(code, format!("it answered {code} while the connection was made")),
        None => on_our_side(error),
    }
}

/// Codes that pass by themselves: it loads its data, fails over, moves slots, runs somebody's long script, or lacks
/// replicas. All others (rights, types, memory, a full disk) need a person.
fn by_code(code: &str, what: String) -> QueueError {
    match code {
        "LOADING" | "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "BUSY"
        | "NOREPLICAS" => unavailable(what),
        _ => refused(what),
    }
}

/// Errors without an answer of the server, in words of our own: the client's may hold the address.
fn on_our_side(error: &RedisError) -> QueueError {
    if matches!(error.kind(), ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig) {
        return refused(error.category().to_owned());
    }
    unavailable(if error.is_timeout() {
        format!("no answer within {} ms", NODE_BOUND.as_millis())
    } else if error.is_connection_refusal() {
        "connection refused".to_owned()
    } else if error.is_connection_dropped() {
        "the connection was closed".to_owned()
    } else {
        error.category().to_owned()
    })
}
