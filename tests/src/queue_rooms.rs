//! The retry queue's rooms seen from outside: what another program finds in them, and what it may do to them.

use std::future::Future;

use recoup::queue::RetryQueue;
use recoup::queue::redis::RedisQueue;
use redis::{Client, Cmd, FromRedisValue, cmd};

use crate::servers::{redis_url, unique};

/// A queue of its own for one test, and the back door to it.
pub trait Rooms: Send + Sync + 'static {
    /// The adapter under test.
    type Queue: RetryQueue + 'static;

    /// The queue.
    fn queue(&self) -> &Self::Queue;

    /// Another handle on the same rooms, as another process has one.
    fn another(&self) -> Self::Queue;

    /// Appends these bytes to the list of new entries.
    fn push_raw(&self, raw: &[u8]) -> impl Future<Output = ()> + Send;

    /// Puts this member into parked.
    fn park_raw(&self, member: &[u8], due: i64) -> impl Future<Output = ()> + Send;

    /// Loses the sweep's cursor.
    fn lose_cursor(&self) -> impl Future<Output = ()> + Send;

    /// The members that are parked and their times, by time.
    fn parked(&self) -> impl Future<Output = Vec<(Vec<u8>, i64)>> + Send;

    /// The members in flight and their deadlines, by deadline.
    fn in_flight(&self) -> impl Future<Output = Vec<(Vec<u8>, i64)>> + Send;

    /// The workers' list, oldest first.
    fn ready(&self) -> impl Future<Output = Vec<Vec<u8>>> + Send;

    /// The dead-letter list, oldest first.
    fn dead_letters(&self) -> impl Future<Output = Vec<Vec<u8>>> + Send;
}

/// The keys under one prefix of a Redis.
#[derive(Debug)]
pub struct RedisRooms {
    queue: RedisQueue,
    url: String,
    prefix: String,
    cluster: bool,
}

impl RedisRooms {
    /// Under a prefix of its own on the shared server.
    pub fn fresh() -> Self {
        Self::at(&redis_url(), &unique("queue"), false)
    }

    /// Under this prefix of this server.
    pub fn at(url: &str, prefix: &str, cluster: bool) -> Self {
        let queue = RedisQueue::open(url, prefix, cluster).expect("the address and the prefix are good");
        Self { queue, url: url.to_owned(), prefix: prefix.to_owned(), cluster }
    }

    /// The key `<prefix>:<name>`.
    pub fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    /// Runs a command on a connection of its own.
    ///
    /// # Panics
    /// Where it fails.
    pub async fn run<T: FromRedisValue>(&self, cmd: &Cmd) -> T {
        let client = Client::open(self.url.as_str()).expect("the address is good");
        let mut connection =
            client.get_multiplexed_async_connection().await.expect("the server can be reached");
        cmd.query_async(&mut connection).await.expect("the server takes the command")
    }

    /// All of the list `<prefix>:<name>`.
    pub async fn list(&self, name: &str) -> Vec<Vec<u8>> {
        self.run(cmd("LRANGE").arg(self.key(name)).arg(0).arg(-1)).await
    }

    /// All of the sorted set `<prefix>:<name>`.
    pub async fn scores(&self, name: &str) -> Vec<(Vec<u8>, i64)> {
        let scores: Vec<(Vec<u8>, f64)> =
            self.run(cmd("ZRANGE").arg(self.key(name)).arg(0).arg(-1).arg("WITHSCORES")).await;
        scores.into_iter().map(|(member, score)| (member, score as i64)).collect()
    }

    /// Loses everything under the prefix, as an emptied Redis would.
    pub async fn empty(&self) {
        let keys: Vec<Vec<u8>> = self.run(cmd("KEYS").arg(self.key("*"))).await;
        for key in keys {
            self.run::<()>(cmd("DEL").arg(key)).await;
        }
    }
}

impl Rooms for RedisRooms {
    type Queue = RedisQueue;

    fn queue(&self) -> &RedisQueue {
        &self.queue
    }

    fn another(&self) -> RedisQueue {
        RedisQueue::open(&self.url, &self.prefix, self.cluster).expect("it was opened before")
    }

    async fn push_raw(&self, raw: &[u8]) {
        self.run(cmd("RPUSH").arg(self.key("retry")).arg(raw)).await
    }

    async fn park_raw(&self, member: &[u8], due: i64) {
        self.run(cmd("ZADD").arg(self.key("retry:parked")).arg(due).arg(member)).await
    }

    async fn lose_cursor(&self) {
        self.run(cmd("DEL").arg(self.key("retry:sweep"))).await
    }

    async fn parked(&self) -> Vec<(Vec<u8>, i64)> {
        self.scores("retry:parked").await
    }

    async fn in_flight(&self) -> Vec<(Vec<u8>, i64)> {
        self.scores("retry:inflight").await
    }

    async fn ready(&self) -> Vec<Vec<u8>> {
        self.list("ready").await
    }

    async fn dead_letters(&self) -> Vec<Vec<u8>> {
        self.list("dead-letter").await
    }
}
