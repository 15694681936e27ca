//! The retry queue in Redis: the suite of every queue, and what only a server on a network can do to it.

// A test that cannot go on says so by its panic.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use recoup::clock::Deadline;
use recoup::queue::redis::{OpenError, RedisQueue};
use recoup::queue::{Depths, List, QueueError, RetryQueue};
use recoup_tests::queue_rooms::{RedisRooms, Rooms};
use recoup_tests::queue_suite::{self, at, claim, claim_expired, judged, retry, take_in};
use recoup_tests::servers::{Server, free_port, pause, redis_url};
use redis::cmd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

recoup_tests::queue_suite!(RedisRooms::fresh);

/// Longer than any call may take, on a machine that is busy with something else as well.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer, which must come whatever the server does.
async fn answer<T>(call: impl Future<Output = Result<T, QueueError>>) -> Result<T, QueueError> {
    Deadline::after(PATIENCE).bound(call).await.expect("every call ends by itself")
}

fn is_unavailable<T: std::fmt::Debug>(answer: &Result<T, QueueError>) -> bool {
    matches!(answer, Err(QueueError::Unavailable { .. }))
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, QueueError>) -> String {
    match answer {
        Err(QueueError::Refused { what, .. }) => what,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// Every method, over a server that answers: an entry through all rooms.
async fn works<Q: RetryQueue>(q: &Q) {
    let depths = q.depths().await.unwrap();
    q.push(&retry("works", 1, 0)).await.unwrap();
    assert_eq!(take_in(q).await, 1);
    let held = claim(q, 0).await.remove(0);
    assert!(q.give_back(&held, at(1)).await.unwrap());
    claim(q, 1).await;
    let held = claim_expired(q, 100_000).await.unwrap();
    assert_eq!(q.missing(&[retry("works", 1, 0)]).await.unwrap(), []);
    assert_eq!(q.park_missing(&[retry("works", 1, 0)], at(0)).await.unwrap(), 0);
    assert!(q.hand_over(&held, List::Ready, "{}").await.unwrap());
    assert!(!q.acknowledge(&held).await.unwrap());
    q.keep_sweep_cursor("here").await.unwrap();
    assert_eq!(q.sweep_cursor().await.unwrap().as_deref(), Some("here"));
    assert_eq!(q.depths().await.unwrap(), Depths { ready: depths.ready + 1, ..depths });
}

#[tokio::test]
async fn a_server_that_was_killed_is_found_again() {
    let mut server = Server::redis(&[]);
    let rooms = RedisRooms::at(&server.redis_url(), "jobs", false);
    let q = rooms.queue();
    works(q).await;
    server.kill();
    assert!(is_unavailable(&answer(q.push(&retry("a", 1, 0))).await));
    assert!(is_unavailable(&answer(q.claim_due(at(0), PATIENCE, 1)).await));
    server.start();
    works(q).await;
}

#[tokio::test]
async fn a_restart_between_two_calls_is_not_noticed() {
    let mut server = Server::redis(&[]);
    let rooms = RedisRooms::at(&server.redis_url(), "jobs", false);
    works(rooms.queue()).await;
    server.kill();
    server.start();
    works(rooms.queue()).await;
}

#[tokio::test]
async fn a_frozen_server_is_an_error_and_then_found_again() {
    let server = Server::redis(&[]);
    let rooms = RedisRooms::at(&server.redis_url(), "jobs", false);
    let q = rooms.queue();
    works(q).await;
    server.freeze(true);
    assert!(is_unavailable(&answer(q.depths()).await), "on a connection that stands");
    assert!(is_unavailable(&answer(q.depths()).await), "on a new one");
    let all_at_once = futures_util::future::join_all((0..10).map(|_| answer(q.depths()))).await;
    assert!(all_at_once.iter().all(is_unavailable));
    server.freeze(false);
    works(q).await;
}

#[tokio::test]
async fn a_call_that_its_caller_dropped_takes_its_connection_along() {
    let server = Server::redis(&[]);
    let rooms = RedisRooms::at(&server.redis_url(), "jobs", false);
    let q = rooms.queue();
    works(q).await;
    let ours = async || -> Vec<String> {
        let clients: String = rooms.run(cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal")).await;
        clients
            .lines()
            .filter(|client| client.contains("cmd=evalsha"))
            .map(|client| client.split(' ').next().unwrap().to_owned())
            .collect()
    };
    q.depths().await.unwrap();
    let before = ours().await;
    assert_eq!(before.len(), 1, "one connection is kept from call to call");
    server.freeze(true);
    let dropped = Deadline::after(Duration::from_millis(50)).bound(q.depths()).await;
    assert!(dropped.is_none(), "nobody answers");
    server.freeze(false);
    q.depths().await.unwrap();
    let after = ours().await;
    assert_eq!(after.len(), 1, "the old one is closed");
    assert_ne!(after, before);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_of_each_call() {
    let port = free_port();
    let q = RedisQueue::open(&format!("redis://127.0.0.1:{port}"), "jobs", false).unwrap();
    for _ in 0..2 {
        assert!(is_unavailable(&answer(q.push(&retry("a", 1, 0))).await));
        assert!(is_unavailable(&answer(q.sweep_cursor()).await));
    }
}

/// Emptied between any two steps of an entry's way: no step is an error, and nothing is left stuck behind.
#[tokio::test]
async fn emptied_at_any_moment_it_goes_on() {
    let rooms = RedisRooms::fresh();
    let q = rooms.queue();
    for emptied_after in 0..5 {
        let step = async |done: usize| {
            if done == emptied_after {
                rooms.empty().await;
            }
        };
        q.push(&retry("a", 1, 0)).await.unwrap();
        step(0).await;
        let page: Vec<_> = q.look_at_new(10).await.unwrap().into_iter().map(judged).collect();
        step(1).await;
        let taken = q.take_new(&page).await.unwrap();
        assert_eq!(taken, usize::from(emptied_after > 1));
        step(2).await;
        let claims = claim(q, 0).await;
        assert_eq!(claims.len(), usize::from(emptied_after > 2));
        step(3).await;
        for held in &claims {
            let ours = emptied_after > 3;
            assert_eq!(q.hand_over(held, List::Ready, "{}").await.unwrap(), ours);
            assert!(!q.give_back(held, at(0)).await.unwrap());
        }
        step(4).await;
        assert_eq!(claim_expired(q, 1_000_000).await, None);
        assert_eq!(q.missing(&[retry("a", 1, 0)]).await.unwrap().len(), 1, "the sweep would see it");
        assert_eq!(q.park_missing(&[retry("a", 1, 0)], at(0)).await.unwrap(), 1);
        works_again(q).await;
        rooms.empty().await;
    }
}

async fn works_again<Q: RetryQueue>(q: &Q) {
    for held in claim(q, 0).await {
        assert!(q.acknowledge(&held).await.unwrap());
    }
    works(q).await;
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_taught_them_again() {
    let rooms = RedisRooms::fresh();
    works(rooms.queue()).await;
    rooms.run::<()>(cmd("SCRIPT").arg("FLUSH")).await;
    works(rooms.queue()).await;
}

/// The hash of claims does not grow with what was claimed, nor does any other key.
#[tokio::test]
async fn nothing_is_left_of_a_claim_that_was_answered() {
    let rooms = RedisRooms::fresh();
    let q = rooms.queue();
    for job in ["acknowledged", "handed over", "given back"] {
        q.push(&retry(job, 1, 0)).await.unwrap();
    }
    take_in(q).await;
    let claims = claim(q, 0).await;
    assert!(q.acknowledge(&claims[0]).await.unwrap());
    assert!(q.hand_over(&claims[1], List::Ready, "{}").await.unwrap());
    assert!(q.give_back(&claims[2], at(0)).await.unwrap());
    let mut keys: Vec<String> = rooms.run(cmd("KEYS").arg(rooms.key("*"))).await;
    keys.sort();
    assert_eq!(keys, [rooms.key("ready"), rooms.key("retry:parked")]);
}

/// A key that another program uses for something else: the answer says so, and what stands elsewhere is not lost.
#[tokio::test]
async fn a_key_of_the_wrong_type_is_refused_and_loses_nothing() {
    for wrong in ["retry", "retry:parked", "retry:inflight", "retry:claims", "ready", "dead-letter"] {
        let rooms = RedisRooms::fresh();
        let q = rooms.queue();
        q.push(&retry("a", 1, 0)).await.unwrap();
        take_in(q).await;
        let held = claim(q, 0).await.remove(0);
        q.push(&retry("b", 1, 0)).await.unwrap();
        take_in(q).await;
        q.push(&retry("c", 1, 0)).await.unwrap();
        rooms.push_raw(b"junk").await;
        let page: Vec<_> = q.look_at_new(10).await.unwrap().into_iter().map(judged).collect();
        let before = q.depths().await.unwrap();

        let (key, aside) = (rooms.key(wrong), rooms.key("aside"));
        let moved: i64 = rooms.run(cmd("EXISTS").arg(&key)).await;
        if moved == 1 {
            rooms.run::<()>(cmd("RENAME").arg(&key).arg(&aside)).await;
        }
        rooms.run::<()>(cmd("SET").arg(&key).arg("somebody else's")).await;
        let refusals: Vec<String> = [
            q.push(&retry("d", 1, 0)).await.err(),
            q.take_new(&page[..1]).await.err(),
            q.take_new(&page[1..]).await.err(),
            q.claim_due(at(0), PATIENCE, 10).await.err(),
            q.claim_expired(at(100_000), PATIENCE).await.err(),
            q.hand_over(&held, List::Ready, "{}").await.err(),
            q.hand_over(&held, List::DeadLetter, "{}").await.err(),
            q.depths().await.err(),
        ]
        .into_iter()
        .flatten()
        .map(|error| refusal::<()>(Err(error)))
        .collect();
        assert!(!refusals.is_empty(), "{wrong}");
        assert!(refusals.iter().all(|what| what.starts_with("WRONGTYPE ")), "{wrong}: {refusals:?}");

        rooms.run::<()>(cmd("DEL").arg(&key)).await;
        if moved == 1 {
            rooms.run::<()>(cmd("RENAME").arg(&aside).arg(&key)).await;
        }
        let after = q.depths().await.unwrap();
        if wrong == "retry:claims" {
            assert_eq!(after.in_flight, before.in_flight, "nobody holds what was not answered");
        }
        let all = |d: Depths| d.retry + d.parked + d.in_flight + d.ready + d.dead_letter;
        let pushed = u64::from(wrong != "retry");
        assert_eq!(all(after), all(before) + pushed, "{wrong}: {before:?} became {after:?}");
    }
}

#[tokio::test]
async fn a_full_or_read_only_server_says_what_to_do_next() {
    let server = Server::redis(&[]);
    let rooms = RedisRooms::at(&server.redis_url(), "jobs", false);
    let q = rooms.queue();
    q.push(&retry("a", 1, 0)).await.unwrap();
    take_in(q).await;
    let held = claim(q, 0).await.remove(0);

    rooms.run::<()>(cmd("CONFIG").arg("SET").arg("maxmemory").arg("1")).await;
    assert!(refusal(q.push(&retry("b", 1, 0)).await).starts_with("OOM "));
    assert!(refusal(q.hand_over(&held, List::Ready, "{}").await).starts_with("OOM "));
    rooms.run::<()>(cmd("CONFIG").arg("SET").arg("maxmemory").arg("0")).await;
    assert_eq!(q.depths().await.unwrap(), Depths { in_flight: 1, ..Depths::default() });

    let nowhere = free_port().to_string();
    rooms.run::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(nowhere)).await;
    assert!(is_unavailable(&q.push(&retry("b", 1, 0)).await), "it fails over");
    assert!(is_unavailable(&q.hand_over(&held, List::Ready, "{}").await));
    rooms.run::<()>(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
    assert!(q.hand_over(&held, List::Ready, "{}").await.unwrap());
    works(q).await;
}

#[tokio::test]
async fn a_password_opens_the_server_and_is_shown_nowhere() {
    let server = Server::redis(&["--requirepass", "s3cret"]);
    let with = |credentials: &str| format!("redis://{credentials}127.0.0.1:{}", server.port());
    let right = RedisQueue::open(&with(":s3cret@"), "jobs", false).unwrap();
    works(&right).await;
    let named = RedisQueue::open(&with("default:s3cret@"), "jobs", false).unwrap();
    works(&named).await;
    let none = RedisQueue::open(&with(""), "jobs", false).unwrap();
    assert!(refusal(none.depths().await).starts_with("NOAUTH"));
    let wrong = RedisQueue::open(&with(":wr0ng@"), "jobs", false).unwrap();
    let refused = wrong.depths().await.unwrap_err();
    assert!(matches!(refused, QueueError::Refused { .. }), "{refused:?}");
    for text in [format!("{right:?}"), format!("{wrong:?}"), format!("{refused:?}"), refused.to_string()] {
        assert!(!text.contains("s3cret") && !text.contains("wr0ng") && !text.contains("127.0.0.1"), "{text}");
    }
    server.freeze(true);
    let frozen = answer(right.depths()).await.unwrap_err();
    server.freeze(false);
    assert!(!format!("{frozen:?} {frozen}").contains("s3cret"));
}

/// Something that is no Redis, or not quite one, may repeat what it was sent; the password was.
#[tokio::test]
async fn what_is_said_while_connecting_is_not_repeated() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let parrot = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = vec![0; 4096];
            let length = stream.read(&mut heard).await.unwrap();
            let heard = String::from_utf8_lossy(&heard[..length]).replace("\r\n", " ");
            stream.write_all(format!("-ODD {heard}\r\n").repeat(9).as_bytes()).await.unwrap();
        }
    });
    for protocol in ["", "?protocol=resp3"] {
        let url = format!("redis://:s3cret@127.0.0.1:{port}/{protocol}");
        let q = RedisQueue::open(&url, "jobs", false).unwrap();
        let said = answer(q.depths()).await.unwrap_err();
        assert!(matches!(said, QueueError::Refused { .. }), "{said:?}");
        assert!(!format!("{said:?} {said}").contains("s3cret"), "{said:?}");
    }
    parrot.abort();
}

/// TLS finds its provider of cryptography; that nobody here speaks TLS is an error like any other.
#[tokio::test]
async fn a_tls_address_of_a_plain_server_is_an_error() {
    let q = RedisQueue::open(&redis_url().replace("redis://", "rediss://"), "jobs", false).unwrap();
    let refused = answer(q.depths()).await;
    assert!(is_unavailable(&refused), "{refused:?}");
}

/// A cluster of one node with all slots, once it says that it is one.
async fn cluster() -> (Server, RedisRooms) {
    let server = Server::redis(&["--cluster-enabled", "yes"]);
    let rooms = RedisRooms::at(&server.redis_url(), "{jobs}", true);
    assert!(is_unavailable(&answer(rooms.queue().depths()).await), "nobody has the slots yet");
    rooms.run::<()>(cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16_383)).await;
    await_cluster(&rooms).await;
    (server, rooms)
}

async fn await_cluster(rooms: &RedisRooms) {
    for _ in 0..200 {
        let info: String = rooms.run(cmd("CLUSTER").arg("INFO")).await;
        if info.contains("cluster_state:ok") {
            return;
        }
        pause(Duration::from_millis(50));
    }
    panic!("the cluster does not come up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_it_is_the_same_queue() {
    let (mut server, rooms) = cluster().await;
    let q = rooms.queue();
    works(q).await;
    rooms.run::<()>(cmd("SCRIPT").arg("FLUSH")).await;
    works(q).await;

    let url = server.redis_url();
    let under = |prefix: &str| RedisRooms::at(&url, prefix, true);
    queue_suite::any_answer_clears_the_count_of_claims(under("{a}")).await;
    queue_suite::two_drains_at_once_never_hold_the_same_claim(under("{b}")).await;
    queue_suite::bytes_of_any_kind_stop_nothing(under("x{c}y")).await;

    server.freeze(true);
    assert!(is_unavailable(&answer(q.depths()).await));
    server.freeze(false);
    works(q).await;
    server.kill();
    assert!(is_unavailable(&answer(q.depths()).await));
    server.start();
    await_cluster(&rooms).await;
    works(q).await;
}

#[tokio::test]
async fn on_a_cluster_a_prefix_without_a_hash_tag_is_refused() {
    let refused = RedisQueue::open(&redis_url(), "jobs", true).unwrap_err();
    assert_eq!(refused, OpenError::NoHashTag);
    assert!(refused.to_string().contains("REDIS_KEY_PREFIX") && refused.to_string().contains("{jobs}"));
}
