//! The retry queue in Redis, 6.2 or later: lists, sorted sets and a hash under one prefix, moved by Lua scripts.
//!
//! ```text
//! <p>:retry            list        new entries, from any producer
//! <p>:retry:parked     sorted set  by not_before in ms
//! <p>:retry:inflight   sorted set  by claim deadline in ms
//! <p>:retry:claims     hash        a member in flight -> "<claims that ran out>:<time of the first claim in ms>"
//! <p>:retry:sweep      string      where the sweep ended
//! <p>:ready, <p>:dead-letter       lists
//! ```
//!
//! Each move is one script in a file of its own under `scripts/`, beside the method that runs it, because each must
//! be whole: a process that dies between two commands would lose an entry or have it twice. The scripts move bytes
//! and compare them; what an entry means is judged here. They take every key as a key, so that they run on a cluster,
//! and every time from the caller, never from Redis. A method is one round trip; one that takes a list of entries, one for
//! each hundred of them, so that no script keeps other clients waiting for long.
//!
//! A caller that sees an error does not know whether its script ran. What holds then, method by method, where the
//! script ran and the caller goes on, or runs it again:
//!
//! | method | ran, and the answer was lost |
//! | --- | --- |
//! | `push` | pushed twice, it is parked once: the canonical form is the same |
//! | `take_new` | run again it finds another head and stops. Where the same bytes stand there again, they are taken too, which is right for a copy |
//! | `claim_due` | the entries stand in flight until the deadline, then count one claim that ran out; the next claim that is answered clears that |
//! | `claim_expired` | the same. Five lost answers in a row for one entry look like five deaths: the job is set aside for a person, its money right |
//! | `hand_over`, `acknowledge` | run again it answers false, and pushes nothing. The caller gives the claim back, which is refused as well |
//! | `give_back` | run again it answers false; the entry waits |
//! | `park_missing` | run again it answers 0: too few in the drain's `swept` |
//! | `keep_sweep_cursor` | run again it writes the same |

use std::fmt;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, Script, ServerErrorKind, ToRedisArgs};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use self::connection::{Connection, Connector};
use super::{Claim, Depths, Intake, List, MAX_LOOK_BYTES, NewEntry, QueueError, RetryEntry, RetryQueue};
use crate::clock::Timestamp;
use crate::config::{Settings, has_hash_tag};

mod connection;

/// Entries that one run of a script moves: well under a millisecond of Redis's one thread.
const CHUNK_ENTRIES: usize = 100;
/// Bytes that are sent with one run of a script, unless a single entry is larger.
const CHUNK_BYTES: usize = MAX_LOOK_BYTES;
/// Entries that one call looks at or claims at most, whatever its `limit`.
const MAX_LIMIT: usize = 1_000;

/// Why a Redis queue cannot be opened. Says which variable is at fault, never what stands in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The address is none.
    #[error(
        "REDIS_URL is not an address of Redis; expected redis:// or, with TLS, rediss://, \
         for example rediss://user:password@cache.example.com:6379"
    )]
    Address,
    /// A cluster keeps keys on different nodes unless a hash tag holds them together.
    #[error(
        "REDIS_KEY_PREFIX has no hash tag, without which REDIS_CLUSTER cannot keep the queue's keys on one node; \
         for example {{jobs}}"
    )]
    NoHashTag,
    /// The authority of its certificates cannot be had.
    #[error("REDIS_CA_FILE is {path:?}, which {problem}; for example REDIS_CA_FILE=/var/task/redis-ca.pem")]
    Authority {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There is an authority, and nothing that would be verified by it.
    #[error("REDIS_CA_FILE is set, but REDIS_URL asks for no TLS; for example rediss://cache.internal:6379")]
    AuthorityWithoutTls,
}

/// The names of the keys.
struct Keys {
    retry: String,
    parked: String,
    in_flight: String,
    claims: String,
    sweep: String,
    ready: String,
    dead_letter: String,
}

impl Keys {
    fn new(prefix: &str) -> Self {
        Self {
            retry: format!("{prefix}:retry"),
            parked: format!("{prefix}:retry:parked"),
            in_flight: format!("{prefix}:retry:inflight"),
            claims: format!("{prefix}:retry:claims"),
            sweep: format!("{prefix}:retry:sweep"),
            ready: format!("{prefix}:ready"),
            dead_letter: format!("{prefix}:dead-letter"),
        }
    }
}

/// A script as a command.
struct Command {
    text: &'static str,
    script: Script,
}

macro_rules! command {
    ($(#[$doc:meta])* $name:ident, $file:literal) => {
        $(#[$doc])*
        static $name: LazyLock<Command> = LazyLock::new(|| {
            let text = include_str!(concat!("scripts/", $file));
            Command { text, script: Script::new(text) }
        });
    };
}

/// One run of a command.
struct Run<'a> {
    command: &'static Command,
    keys: &'a [&'a str],
    args: Vec<Vec<u8>>,
}

impl<'a> Run<'a> {
    fn new(command: &'static Command, keys: &'a [&'a str]) -> Self {
        Self { command, keys, args: Vec::new() }
    }

    fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        arg.write_redis_args(&mut self.args);
        self
    }

    fn cmd(&self, name: &str, script: &str) -> Cmd {
        let mut cmd = redis::cmd(name);
        cmd.arg(script).arg(self.keys.len()).arg(self.keys).arg(&self.args);
        cmd
    }

    /// By its digest, and with its text where the node does not know it (new, restarted, or flushed). `EVAL` goes
    /// to the one node that has the keys; `SCRIPT LOAD` would go to all of a cluster, and fail with any of them.
    async fn on<T: FromRedisValue>(&self, mut connection: Connection) -> RedisResult<T> {
        match self.cmd("EVALSHA", self.command.script.get_hash()).query_async(&mut connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.cmd("EVAL", self.command.text).query_async(&mut connection).await
            }
            answer => answer,
        }
    }
}

/// The retry queue in Redis.
pub struct RedisQueue {
    connector: Connector,
    prefix: String,
    keys: Keys,
}

impl fmt::Debug for RedisQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisQueue").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl RedisQueue {
    /// Takes the address, of a server or of any node of a cluster, and the prefix of the keys. Connects to nothing:
    /// the first call does, and each call is an error within a second and a half where Redis does not answer.
    ///
    /// # Errors
    /// [`OpenError`] where no call could ever work.
    pub fn open(url: &str, prefix: &str, cluster: bool) -> Result<Self, OpenError> {
        Self::open_with(url, prefix, cluster, None)
    }

    /// The same as the settings have it: prefix, cluster, and the authority that signs the certificates.
    ///
    /// # Errors
    /// [`OpenError`] where no call could ever work, or the authority cannot be read.
    pub fn with_settings(url: &str, settings: &Settings) -> Result<Self, OpenError> {
        let authority = settings.redis_ca_file.as_deref().map(read_authority).transpose()?;
        Self::open_with(url, &settings.redis_key_prefix, settings.redis_cluster, authority)
    }

    fn open_with(
        url: &str,
        prefix: &str,
        cluster: bool,
        authority: Option<Vec<u8>>,
    ) -> Result<Self, OpenError> {
        if cluster && !has_hash_tag(prefix) {
            return Err(OpenError::NoHashTag);
        }
        let connector = Connector::new(url, cluster, authority)?;
        Ok(Self { connector, prefix: prefix.to_owned(), keys: Keys::new(prefix) })
    }

    async fn run<T: FromRedisValue>(&self, run: Run<'_>) -> Result<T, QueueError> {
        self.connector.call(|connection| run.on(connection)).await
    }

    async fn query<T: FromRedisValue>(&self, cmd: &Cmd) -> Result<T, QueueError> {
        self.connector.call(|mut connection| async move { cmd.query_async(&mut connection).await }).await
    }
}

command!(LOOK_AT_NEW, "look_at_new.lua");
command!(TAKE_NEW, "take_new.lua");
command!(CLAIM_DUE, "claim_due.lua");
command!(CLAIM_EXPIRED, "claim_expired.lua");
command!(HAND_OVER, "hand_over.lua");
command!(ACKNOWLEDGE, "acknowledge.lua");
command!(GIVE_BACK, "give_back.lua");
command!(PARK_MISSING, "park_missing.lua");
command!(MISSING, "missing.lua");
command!(DEPTHS, "depths.lua");

impl RetryQueue for RedisQueue {
    async fn push(&self, entry: &RetryEntry) -> Result<(), QueueError> {
        let mut cmd = redis::cmd("RPUSH");
        self.query(cmd.arg(&self.keys.retry).arg(entry.pushed())).await
    }

    async fn look_at_new(&self, limit: usize) -> Result<Vec<Vec<u8>>, QueueError> {
        let keys = [self.keys.retry.as_str()];
        self.run(Run::new(&LOOK_AT_NEW, &keys).arg(limit.min(MAX_LIMIT)).arg(MAX_LOOK_BYTES)).await
    }

    async fn take_new(&self, entries: &[NewEntry]) -> Result<usize, QueueError> {
        let keys = [&*self.keys.retry, &*self.keys.parked, &*self.keys.dead_letter];
        let mut taken = 0;
        while taken < entries.len() {
            let chunk = next_chunk(&entries[taken..]);
            let mut run = Run::new(&TAKE_NEW, &keys);
            for entry in chunk {
                run = match &entry.intake {
                    Intake::Park(parked) => {
                        run.arg(&entry.raw).arg(parked.not_before.as_millis()).arg(parked.canonical())
                    }
                    Intake::Malformed(line) => run.arg(&entry.raw).arg("").arg(line),
                };
            }
            let of_chunk: usize = self.run(run).await?;
            taken += of_chunk;
            if of_chunk < chunk.len() {
                break;
            }
        }
        Ok(taken)
    }

    async fn claim_due(
        &self,
        now: Timestamp,
        timeout: Duration,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        let keys = [&*self.keys.parked, &*self.keys.in_flight, &*self.keys.claims];
        let deadline = now.plus(timeout);
        let run = Run::new(&CLAIM_DUE, &keys)
            .arg(now.as_millis())
            .arg(deadline.as_millis())
            .arg(limit.min(MAX_LIMIT));
        let members: Vec<Vec<u8>> = self.run(run).await?;
        Ok(members
            .into_iter()
            .map(|member| Claim { member, deadline, expired_claims: 0, first_claim: now })
            .collect())
    }

    async fn claim_expired(&self, now: Timestamp, timeout: Duration) -> Result<Option<Claim>, QueueError> {
        let keys = [&*self.keys.in_flight, &*self.keys.claims];
        let deadline = now.plus(timeout);
        let run = Run::new(&CLAIM_EXPIRED, &keys).arg(now.as_millis()).arg(deadline.as_millis());
        let claimed: Option<(Vec<u8>, u32, i64)> = self.run(run).await?;
        Ok(claimed.map(|(member, expired_claims, first)| Claim {
            member,
            deadline,
            expired_claims,
            first_claim: Timestamp::from_millis(first),
        }))
    }

    async fn hand_over(&self, claim: &Claim, to: List, message: &str) -> Result<bool, QueueError> {
        let list = match to {
            List::Ready => &*self.keys.ready,
            List::DeadLetter => &*self.keys.dead_letter,
        };
        let keys = [&*self.keys.in_flight, &*self.keys.claims, list];
        self.run(of_claim(&HAND_OVER, &keys, claim).arg(message)).await
    }

    async fn acknowledge(&self, claim: &Claim) -> Result<bool, QueueError> {
        let keys = [&*self.keys.in_flight, &*self.keys.claims];
        self.run(of_claim(&ACKNOWLEDGE, &keys, claim)).await
    }

    async fn give_back(&self, claim: &Claim, due: Timestamp) -> Result<bool, QueueError> {
        let keys = [&*self.keys.in_flight, &*self.keys.claims, &*self.keys.parked];
        self.run(of_claim(&GIVE_BACK, &keys, claim).arg(due.as_millis())).await
    }

    async fn park_missing(&self, entries: &[RetryEntry], far: Timestamp) -> Result<usize, QueueError> {
        let keys = [&*self.keys.parked, &*self.keys.in_flight];
        let mut parked = 0;
        for chunk in entries.chunks(CHUNK_ENTRIES) {
            let mut run = Run::new(&PARK_MISSING, &keys).arg(far.as_millis());
            for entry in chunk {
                run = run.arg(entry.not_before.as_millis()).arg(entry.canonical());
            }
            parked += self.run::<usize>(run).await?;
        }
        Ok(parked)
    }

    async fn sweep_cursor(&self) -> Result<Option<String>, QueueError> {
        let kept: Option<Vec<u8>> = self.query(redis::cmd("GET").arg(&self.keys.sweep)).await?;
        Ok(kept.and_then(|kept| String::from_utf8(kept).ok()))
    }

    async fn keep_sweep_cursor(&self, cursor: &str) -> Result<(), QueueError> {
        self.query(redis::cmd("SET").arg(&self.keys.sweep).arg(cursor)).await
    }

    async fn depths(&self) -> Result<Depths, QueueError> {
        let keys = [
            &*self.keys.retry,
            &*self.keys.parked,
            &*self.keys.in_flight,
            &*self.keys.ready,
            &*self.keys.dead_letter,
        ];
        let (retry, parked, in_flight, ready, dead_letter) = self.run(Run::new(&DEPTHS, &keys)).await?;
        Ok(Depths { retry, parked, in_flight, ready, dead_letter })
    }

    async fn missing(&self, entries: &[RetryEntry]) -> Result<Vec<RetryEntry>, QueueError> {
        let keys = [&*self.keys.parked, &*self.keys.in_flight];
        let mut missing = Vec::new();
        for chunk in entries.chunks(CHUNK_ENTRIES) {
            let mut run = Run::new(&MISSING, &keys);
            for entry in chunk {
                run = run.arg(entry.canonical());
            }
            let positions: Vec<usize> = self.run(run).await?;
            missing.extend(positions.into_iter().filter_map(|position| chunk.get(position)).cloned());
        }
        Ok(missing)
    }
}

fn of_claim<'a>(command: &'static Command, keys: &'a [&'a str], claim: &Claim) -> Run<'a> {
    Run::new(command, keys).arg(&claim.member).arg(claim.deadline.as_millis())
}

/// The certificates of an authority, in PEM.
fn read_authority(path: &Path) -> Result<Vec<u8>, OpenError> {
    let wrong = |problem: String| OpenError::Authority { path: path.display().to_string(), problem };
    let pem = std::fs::read(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(pem),
        Ok(_) => Err(wrong("holds no certificate in PEM".to_owned())),
        Err(error) => Err(wrong(format!("is no PEM: {error}"))),
    }
}

/// As many of the first entries as go into one run: one at least.
fn next_chunk(entries: &[NewEntry]) -> &[NewEntry] {
    let mut bytes = 0;
    let fitting = entries
        .iter()
        .take(CHUNK_ENTRIES)
        .take_while(|entry| {
            bytes += entry.raw.len();
            bytes <= CHUNK_BYTES
        })
        .count();
    &entries[..fitting.max(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tag_is_what_redis_takes_for_one() {
        for tagged in ["{jobs}", "a{b}c", "{{a}", "x{y}{}"] {
            assert!(has_hash_tag(tagged), "{tagged}");
        }
        for plain in ["jobs", "{}", "{jobs", "jobs}", "}{", "{}{jobs}"] {
            assert!(!has_hash_tag(plain), "{plain}");
        }
    }

    #[test]
    fn what_cannot_be_an_address_is_refused_without_being_shown() {
        for url in [
            "",
            "localhost",
            "http://user:s3cret@localhost",
            "redis://user:s3cret@localhost:x",
            "redis://user:s3cret@localhost/jobs",
            "unix:///var/run/s3cret.sock",
            "rediss://user:s3cret@localhost/#insecure",
        ] {
            let refused = RedisQueue::open(url, "jobs", false).expect_err(url);
            assert_eq!(refused, OpenError::Address);
            assert!(refused.to_string().starts_with("REDIS_URL ") && !refused.to_string().contains("s3cret"));
        }
        assert_eq!(
            RedisQueue::open("redis://localhost", "jobs", true).expect_err("no tag"),
            OpenError::NoHashTag
        );
    }

    #[test]
    fn opening_connects_to_nothing_and_shows_no_address() {
        let queue = RedisQueue::open("rediss://user:s3cret@nowhere.invalid:1", "jobs", false).unwrap();
        assert_eq!(format!("{queue:?}"), r#"RedisQueue { prefix: "jobs", .. }"#);
    }

    #[test]
    fn a_chunk_is_bounded_in_entries_and_in_bytes() {
        let entry =
            |bytes: usize| NewEntry { raw: vec![b'x'; bytes], intake: Intake::Malformed(String::new()) };
        assert_eq!(next_chunk(&vec![entry(1); 250]).len(), CHUNK_ENTRIES);
        assert_eq!(next_chunk(&[entry(CHUNK_BYTES / 2), entry(CHUNK_BYTES / 2), entry(1)]).len(), 2);
        assert_eq!(next_chunk(&[entry(CHUNK_BYTES + 1), entry(1)]).len(), 1);
    }
}
