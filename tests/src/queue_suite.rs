//! One suite for every retry queue: what the port promises, as one drain sees it and as many at once do.
//!
//! No clock runs here: each call is told the time.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use recoup::clock::Timestamp;
use recoup::job::{JobId, MAX_ATTEMPT};
use recoup::queue::entry::malformed;
use recoup::queue::{
    Claim, Depths, Intake, List, MAX_LOOK_BYTES, NewEntry, RetryEntry, RetryQueue, parse_entry,
};

pub use crate::queue_rooms::Rooms;

/// How long a claim holds here.
pub const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_MS: i64 = 60_000;
/// Ten o'clock, in ms.
const TEN: i64 = 1_768_471_200_000;

/// So many ms after ten o'clock.
pub fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(TEN + ms)
}

/// The retry of `job` after `attempts` failures, due so many ms after ten.
pub fn retry(job: &str, attempts: u32, due: i64) -> RetryEntry {
    RetryEntry { job_id: JobId::new(job).expect("the tests' ids are ids"), attempts, not_before: at(due) }
}

/// What a drain does with these bytes.
pub fn judged(raw: Vec<u8>) -> NewEntry {
    let intake = match parse_entry(&raw) {
        Ok(entry) => Intake::Park(entry),
        Err(_) => Intake::Malformed(malformed(&raw).to_json()),
    };
    NewEntry { raw, intake }
}

/// Looks at what is new, and takes as much of it as still is the head.
pub async fn take_in(queue: &impl RetryQueue) -> usize {
    let raw = queue.look_at_new(1_000).await.unwrap();
    let entries: Vec<NewEntry> = raw.into_iter().map(judged).collect();
    queue.take_new(&entries).await.unwrap()
}

async fn park(queue: &impl RetryQueue, entries: &[RetryEntry]) {
    for entry in entries {
        queue.push(entry).await.unwrap();
    }
    while take_in(queue).await > 0 {}
}

/// Claims what is due so many ms after ten.
pub async fn claim(queue: &impl RetryQueue, ms: i64) -> Vec<Claim> {
    queue.claim_due(at(ms), TIMEOUT, 100).await.unwrap()
}

/// Claims the entry whose claim ran out first, so many ms after ten.
pub async fn claim_expired(queue: &impl RetryQueue, ms: i64) -> Option<Claim> {
    queue.claim_expired(at(ms), TIMEOUT).await.unwrap()
}

async fn claim_one(queue: &impl RetryQueue, ms: i64) -> Claim {
    let claims = claim(queue, ms).await;
    assert_eq!(claims.len(), 1);
    claims.into_iter().next().expect("there is one")
}

fn members(claims: &[Claim]) -> Vec<String> {
    claims.iter().map(|claim| String::from_utf8(claim.member.clone()).unwrap()).collect()
}

/// The member of this retry and its time, as they stand in parked.
fn standing(entry: &RetryEntry) -> (Vec<u8>, i64) {
    (entry.canonical().into_bytes(), entry.not_before.as_millis())
}

fn standing_until(entry: &RetryEntry, ms: i64) -> (Vec<u8>, i64) {
    (entry.canonical().into_bytes(), TEN + ms)
}

/// The list is first in, first out, and a look leaves it as it is.
pub async fn new_entries_come_in_the_order_of_their_pushing<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    let pushed = [retry("a", 1, 0), retry("b", 1, 0), retry("c", 1, 0)];
    for entry in &pushed {
        q.push(entry).await.unwrap();
    }
    let raw: Vec<Vec<u8>> = pushed.iter().map(|entry| entry.pushed().into_bytes()).collect();
    assert_eq!(q.look_at_new(2).await.unwrap(), raw[..2]);
    assert_eq!(q.look_at_new(10).await.unwrap(), raw);
    assert_eq!(q.look_at_new(0).await.unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(take_in(q).await, 3);
    assert_eq!(q.look_at_new(10).await.unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(rooms.parked().await, pushed.iter().map(standing).collect::<Vec<_>>());
}

/// A page that another drain has taken in part is not taken again, and what stands behind it is not touched.
pub async fn only_what_was_looked_at_is_taken<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    for job in ["a", "b", "c"] {
        q.push(&retry(job, 1, 0)).await.unwrap();
    }
    let page: Vec<NewEntry> = q.look_at_new(3).await.unwrap().into_iter().map(judged).collect();
    assert_eq!(rooms.another().take_new(&page[..1]).await.unwrap(), 1);
    assert_eq!(q.take_new(&page).await.unwrap(), 0, "its head is gone");
    assert_eq!(
        q.take_new(&[page[1].clone(), page[0].clone()]).await.unwrap(),
        1,
        "the second does not follow"
    );
    assert_eq!(q.look_at_new(3).await.unwrap(), [page[2].raw.clone()]);
    assert_eq!(q.take_new(&[]).await.unwrap(), 0);
    assert_eq!(rooms.parked().await.len(), 2);
}

/// However it is spelled and whoever pushes it, a retry waits once, until the earliest of its times.
pub async fn the_same_retry_waits_once_until_its_earliest_time<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    park(q, &[retry("a", 1, 3_000), retry("a", 2, 5_000)]).await;
    rooms
        .push_raw(br#"{ "not_before": "2026-01-15T10:00:01Z", "attempts": 1, "x": [], "job_id": "\u0061" }"#)
        .await;
    park(q, &[retry("a", 1, 2_000)]).await;
    assert_eq!(rooms.parked().await, [standing(&retry("a", 1, 1_000)), standing(&retry("a", 2, 5_000))]);
}

/// An entry that is given back while a copy of it is parked takes the earlier of the two times.
pub async fn giving_back_keeps_the_earlier_time<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    for (parked, given_back, expected) in [(1_000, 2_000, 1_000), (2_000, 1_000, 1_000)] {
        park(q, &[retry("a", 1, 0)]).await;
        let held = claim_one(q, 0).await;
        park(q, &[retry("a", 1, parked)]).await;
        assert!(q.give_back(&held, at(given_back)).await.unwrap());
        assert_eq!(rooms.parked().await, [standing(&retry("a", 1, expected))]);
        assert!(q.acknowledge(&claim_one(q, expected).await).await.unwrap());
    }
}

/// What is parked with a far-off time comes forward where the sweep knows an earlier one; what is parked for a while stays
/// until then, and nothing goes back.
pub async fn the_sweep_keeps_the_earlier_time<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    let far = 9_000;
    park(q, &[retry("far", 1, far + 1), retry("given back", 1, far), retry("due", 1, 1_000)]).await;
    park(q, &[retry("farther", 1, far + 2)]).await;
    let mut found = ["far", "given back", "due", "farther"].map(|job| retry(job, 1, 2_000));
    found[3].not_before = at(far + 3);
    assert_eq!(q.park_missing(&found, at(far)).await.unwrap(), 0);
    let (given_back, farther) = (retry("given back", 1, far), retry("farther", 1, far + 2));
    let parked = [retry("due", 1, 1_000), retry("far", 1, 2_000), given_back, farther];
    assert_eq!(rooms.parked().await, parked.each_ref().map(standing));
}

/// Due means at its time, to the millisecond; the longest due comes first.
pub async fn an_entry_is_due_at_its_time_and_not_before<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    park(q, &[retry("late", 1, 2_000), retry("early", 1, 1_000), retry("latest", 1, 3_000)]).await;
    assert_eq!(claim(q, 999).await, []);
    assert_eq!(q.claim_due(at(3_000), TIMEOUT, 0).await.unwrap(), []);
    let due = claim(q, 2_000).await;
    assert_eq!(members(&due), [retry("early", 1, 0).canonical(), retry("late", 1, 0).canonical()]);
    for held in &due {
        assert_eq!((held.deadline, held.expired_claims, held.first_claim), (at(62_000), 0, at(2_000)));
    }
    assert_eq!(rooms.in_flight().await.len(), 2);
    assert_eq!(q.claim_due(at(9_000), TIMEOUT, 1).await.unwrap().len(), 1);
    assert_eq!(rooms.parked().await, []);
}

/// A claim holds until its deadline, to the millisecond; then it is claimed again, with the same attempts.
pub async fn a_claim_runs_out_at_its_deadline_and_not_before<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    park(q, &[retry("a", 3, 0)]).await;
    let held = claim_one(q, 0).await;
    assert_eq!(claim_expired(q, TIMEOUT_MS - 1).await, None);
    let again = claim_expired(q, TIMEOUT_MS).await.unwrap();
    assert_eq!(again.member, held.member);
    assert_eq!(again.deadline, at(2 * TIMEOUT_MS));
    assert_eq!(claim_expired(q, TIMEOUT_MS).await, None, "it is held again");
    assert_eq!(rooms.in_flight().await, [standing_until(&retry("a", 3, 0), 2 * TIMEOUT_MS)]);
}

/// Claims that ran out are counted, and the first of them is remembered.
pub async fn claims_that_ran_out_are_counted_from_the_first<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    park(q, &[retry("a", 1, 0)]).await;
    claim_one(q, 500).await;
    for times in 1..=7_u32 {
        let again = claim_expired(q, i64::from(times) * 100_000).await.unwrap();
        assert_eq!((again.expired_claims, again.first_claim), (times, at(500)));
    }
}

/// An entry that kills whoever takes it takes no neighbour along: the claim that ran out first comes alone.
pub async fn claims_that_ran_out_are_taken_one_at_a_time<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    park(q, &[retry("b", 1, 0), retry("a", 1, 10)]).await;
    claim_one(q, 0).await;
    claim_one(q, 10).await;
    let first = claim_expired(q, 1_000_000).await.unwrap();
    let second = claim_expired(q, 1_000_000).await.unwrap();
    assert_eq!(members(&[first, second]), [retry("b", 1, 0).canonical(), retry("a", 1, 0).canonical()]);
    assert_eq!(claim_expired(q, 1_000_000).await, None);
}

/// The count is of claims in a row without any answer: each kind of answer clears it.
pub async fn any_answer_clears_the_count_of_claims<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    let mut now = 0;
    for answer in ["given back", "acknowledged", "handed over"] {
        park(q, &[retry("a", 1, now)]).await;
        claim_one(q, now).await;
        now += TIMEOUT_MS;
        let held = claim_expired(q, now).await.unwrap();
        assert_eq!(held.expired_claims, 1, "{answer} comes after one that ran out");
        assert!(match answer {
            "given back" => q.give_back(&held, at(now)).await.unwrap(),
            "acknowledged" => q.acknowledge(&held).await.unwrap(),
            _ => q.hand_over(&held, List::Ready, "{}").await.unwrap(),
        });
        park(q, &[retry("a", 1, now)]).await;
        let afresh = claim_one(q, now).await;
        assert_eq!((afresh.expired_claims, afresh.first_claim), (0, at(now)), "{answer}");
        now += TIMEOUT_MS;
        let again = claim_expired(q, now).await.unwrap();
        assert_eq!((again.expired_claims, again.first_claim), (1, afresh.first_claim), "{answer}");
        assert!(q.acknowledge(&again).await.unwrap());
        now += TIMEOUT_MS;
    }
}

/// Whoever lost a claim can neither push with it nor take it from its new holder.
pub async fn a_claim_that_was_lost_does_nothing<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    park(q, &[retry("a", 1, 0)]).await;
    let lost = claim_one(q, 0).await;
    let held = claim_expired(q, TIMEOUT_MS).await.unwrap();
    let never = Claim { member: b"{}".to_vec(), ..held.clone() };
    for stale in [&lost, &never] {
        assert!(!q.hand_over(stale, List::Ready, "{}").await.unwrap());
        assert!(!q.hand_over(stale, List::DeadLetter, "{}").await.unwrap());
        assert!(!q.acknowledge(stale).await.unwrap());
        assert!(!q.give_back(stale, at(0)).await.unwrap());
    }
    let in_flight = Depths { in_flight: 1, ..Depths::default() };
    assert_eq!(q.depths().await.unwrap(), in_flight);
    assert_eq!(claim_expired(q, 2 * TIMEOUT_MS).await.unwrap().expired_claims, 2, "its history stands too");
}

/// Push and letting go are one step, and it happens once.
pub async fn a_hand_over_pushes_once_and_lets_go<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    park(q, &[retry("a", 1, 0), retry("b", 1, 1)]).await;
    let claims = claim(q, 1).await;
    assert!(q.hand_over(&claims[0], List::Ready, "to work ü").await.unwrap());
    assert!(!q.hand_over(&claims[0], List::Ready, "to work again").await.unwrap());
    assert!(q.hand_over(&claims[1], List::DeadLetter, "set aside").await.unwrap());
    assert!(!q.acknowledge(&claims[1]).await.unwrap());
    assert_eq!(rooms.ready().await, ["to work ü".as_bytes()]);
    assert_eq!(rooms.dead_letters().await, [b"set aside"]);
    assert_eq!(rooms.in_flight().await, []);
    assert_eq!(claim_expired(q, 1_000_000).await, None);
}

/// A copy that comes in while its original is claimed is parked, and the claim does not notice.
pub async fn a_copy_of_a_claimed_entry_changes_nothing_in_flight<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    let entry = retry("a", 1, 0);
    park(q, slice::from_ref(&entry)).await;
    claim_one(q, 0).await;
    let held = claim_expired(q, TIMEOUT_MS).await.unwrap();
    let deadline = 2 * TIMEOUT_MS;
    park(q, slice::from_ref(&entry)).await;
    assert_eq!(rooms.in_flight().await, [standing_until(&entry, deadline)]);
    assert_eq!(rooms.parked().await, [standing(&entry)]);

    assert_eq!(claim(q, TIMEOUT_MS + 5).await, [], "passed over");
    assert_eq!(rooms.in_flight().await, [standing_until(&entry, deadline)]);
    assert_eq!(rooms.parked().await, [standing_until(&entry, deadline)], "until the claim runs out");
    let again = claim_expired(q, deadline).await.unwrap();
    assert_eq!((again.expired_claims, again.first_claim), (2, at(0)), "the history is the claim's");
    assert!(!q.acknowledge(&held).await.unwrap());
    assert!(q.acknowledge(&again).await.unwrap());
    assert_eq!(claim(q, deadline).await.len(), 1, "then the copy has its turn");
}

/// A page full of copies whose originals' claims ran out does not keep the others from their turn.
pub async fn copies_of_claims_that_ran_out_block_nobody<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    let copies = [retry("a", 1, 0), retry("b", 1, 0)];
    park(q, &copies).await;
    assert_eq!(claim(q, 0).await.len(), 2);
    park(q, &copies).await;
    let later = 2 * TIMEOUT_MS;
    park(q, &[retry("c", 1, later)]).await;
    let mut claimed = Vec::new();
    for _ in 0..3 {
        claimed.extend(q.claim_due(at(later), TIMEOUT, 2).await.unwrap());
    }
    assert_eq!(members(&claimed), [retry("c", 1, 0).canonical()]);
    assert_eq!(claim_expired(q, later).await.unwrap().expired_claims, 1, "they are another call's");
}

/// Thirty-two drains at two hundred entries: each entry is claimed once.
pub async fn two_drains_at_once_never_hold_the_same_claim<R: Rooms>(rooms: R) {
    let rooms = Arc::new(rooms);
    let entries: Vec<RetryEntry> = (0..200).map(|n| retry(&format!("job-{n}"), 1, 0)).collect();
    park(rooms.queue(), &entries).await;
    let drains = (0..32).map(|_| {
        let queue = rooms.another();
        tokio::spawn(async move {
            let mut claimed = Vec::new();
            loop {
                let page = queue.claim_due(at(0), TIMEOUT, 3).await.unwrap();
                if page.is_empty() {
                    return claimed;
                }
                claimed.extend(page);
            }
        })
    });
    let claims: Vec<Claim> = join_all(drains).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(claims.len(), entries.len());
    assert_eq!(members(&claims).into_iter().collect::<BTreeSet<_>>().len(), entries.len());

    let again = (0..32).map(|_| {
        let queue = rooms.another();
        tokio::spawn(async move {
            let mut claimed = Vec::new();
            while let Some(one) = queue.claim_expired(at(TIMEOUT_MS), TIMEOUT).await.unwrap() {
                claimed.push(one);
            }
            claimed
        })
    });
    let claims: Vec<Claim> = join_all(again).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(claims.len(), entries.len());
    assert!(claims.iter().all(|claim| claim.expired_claims == 1));
}

/// Two drains take in what a producer pushes meanwhile: what went in stands somewhere, once.
pub async fn two_takers_and_a_producer_lose_nothing_and_double_nothing<R: Rooms>(rooms: R) {
    let rooms = Arc::new(rooms);
    let pushing = Arc::new(AtomicBool::new(true));
    let takers: Vec<_> = (0..2)
        .map(|_| {
            let (queue, pushing) = (rooms.another(), Arc::clone(&pushing));
            tokio::spawn(async move {
                let mut taken = 0;
                loop {
                    let more = pushing.load(Ordering::SeqCst);
                    match take_in(&queue).await {
                        0 if !more && queue.look_at_new(1).await.unwrap().is_empty() => return taken,
                        some => taken += some,
                    }
                }
            })
        })
        .collect();
    let mut lines = BTreeMap::new();
    for n in 0..300 {
        if n % 3 == 0 {
            // Every second one the same bytes: each is a dead letter of its own.
            let junk = format!("junk {}", n % 2 * n);
            *lines.entry(malformed(junk.as_bytes()).to_json()).or_insert(0) += 1;
            rooms.push_raw(junk.as_bytes()).await;
        } else {
            rooms.queue().push(&retry(&format!("job-{n}"), 1, n)).await.unwrap();
        }
    }
    pushing.store(false, Ordering::SeqCst);
    let taken: usize = join_all(takers).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(taken, 300);
    assert_eq!(rooms.parked().await.len(), 200);
    let mut kept = BTreeMap::new();
    for line in rooms.dead_letters().await {
        *kept.entry(String::from_utf8(line).unwrap()).or_insert(0) += 1;
    }
    assert_eq!(kept, lines);
}

/// Bytes are compared and moved, never read: empty ones, binary ones, a megabyte of them, the same ones twice.
pub async fn bytes_of_any_kind_stop_nothing<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    let huge = vec![b'x'; 1 << 20];
    let junk: [&[u8]; 8] = [b"", b"\xff\x00\r\n\xfe", b"null", b"", b"''", b"$1\r\nx", &huge, &huge];
    for raw in junk {
        rooms.push_raw(raw).await;
    }
    q.push(&retry("a", MAX_ATTEMPT, 0)).await.unwrap();
    while take_in(q).await > 0 {}
    let kept: Vec<Vec<u8>> = junk.iter().map(|raw| malformed(raw).to_json().into_bytes()).collect();
    assert_eq!(rooms.dead_letters().await, kept);
    assert_eq!(rooms.parked().await, [standing(&retry("a", MAX_ATTEMPT, 0))]);
}

/// What a small function can hold, but one entry at least, else a large one would stop everything behind it.
pub async fn a_look_is_bounded_in_bytes<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    let sizes = [MAX_LOOK_BYTES / 2, MAX_LOOK_BYTES / 2, 1, MAX_LOOK_BYTES + 1, 1];
    for size in sizes {
        rooms.push_raw(&vec![b'x'; size]).await;
    }
    let mut seen = Vec::new();
    loop {
        let page = q.look_at_new(10).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.push(page.iter().map(Vec::len).collect::<Vec<_>>());
        let page: Vec<NewEntry> = page.into_iter().map(judged).collect();
        assert_eq!(q.take_new(&page).await.unwrap(), page.len());
    }
    assert_eq!(seen, [vec![sizes[0], sizes[1]], vec![sizes[2]], vec![sizes[3]], vec![sizes[4]]]);
}

/// More entries than any one step of a store moves.
pub async fn a_long_page_is_handled_whole<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    let entries: Vec<RetryEntry> = (0..450).map(|n| retry(&format!("job-{n}"), 1, n)).collect();
    for entry in &entries[..250] {
        q.push(entry).await.unwrap();
    }
    assert_eq!(take_in(q).await, 250);
    assert!(q.missing(&entries).await.unwrap() == entries[250..]);
    assert_eq!(q.park_missing(&entries, at(0)).await.unwrap(), 200);
    assert_eq!(q.missing(&entries).await.unwrap(), []);
    assert!(rooms.parked().await == entries.iter().map(standing).collect::<Vec<_>>());
}

/// The sweep adds what stands nowhere, and nothing that waits or is being worked on.
pub async fn only_what_stands_nowhere_is_missing<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    let (claimed, parked, nowhere) = (retry("a", 1, 0), retry("b", 1, 9_000), retry("a", 2, 0));
    park(q, &[claimed.clone(), parked.clone()]).await;
    claim_one(q, 0).await;
    let all = [claimed.clone(), parked.clone(), nowhere.clone()];
    assert_eq!(q.missing(&all).await.unwrap(), all[2..]);
    assert_eq!(q.park_missing(&all, at(9_000)).await.unwrap(), 1);
    assert_eq!(q.park_missing(&all, at(9_000)).await.unwrap(), 0);
    assert_eq!(rooms.parked().await, [standing(&nowhere), standing(&parked)]);
    assert_eq!(rooms.in_flight().await, [standing_until(&claimed, TIMEOUT_MS)]);
    assert_eq!(q.missing(&[]).await.unwrap(), []);
    assert_eq!(q.park_missing(&[], at(0)).await.unwrap(), 0);
}

/// Members that another program parked are claimed like any other, with the bytes they have.
pub async fn foreign_members_of_parked_come_back_with_their_bytes<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    let foreign: [&[u8]; 4] = [b"", b"\xff\x00", b"not an entry", br#"{"attempts":1,"job_id":"a"}"#];
    for (due, member) in foreign.iter().enumerate() {
        rooms.park_raw(member, TEN + due as i64).await;
    }
    let claims = claim(q, 10).await;
    assert_eq!(claims.iter().map(|claim| claim.member.as_slice()).collect::<Vec<_>>(), foreign);
    assert!(q.give_back(&claims[0], at(20)).await.unwrap());
    assert!(q.hand_over(&claims[1], List::DeadLetter, "{}").await.unwrap());
    assert_eq!(claim_expired(q, 1_000_000).await.unwrap().member, foreign[2]);
    assert_eq!(rooms.parked().await, [(foreign[0].to_vec(), TEN + 20)]);
}

/// The next drain goes on where the last one's sweep ended, whichever process runs it; or from the start.
pub async fn the_sweep_cursor_is_kept_and_may_be_lost<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    assert_eq!(q.sweep_cursor().await.unwrap(), None);
    q.keep_sweep_cursor("first").await.unwrap();
    q.keep_sweep_cursor(r#"{"after":"jöb"}"#).await.unwrap();
    assert_eq!(rooms.another().sweep_cursor().await.unwrap().as_deref(), Some(r#"{"after":"jöb"}"#));
    rooms.lose_cursor().await;
    assert_eq!(q.sweep_cursor().await.unwrap(), None);
}

/// Each room is counted by itself.
pub async fn depths_count_every_room<R: Rooms>(rooms: R) {
    let q = rooms.queue();
    assert_eq!(q.depths().await.unwrap(), Depths::default());
    park(q, &(1..=10).map(|n| retry("a", n, i64::from(n))).collect::<Vec<_>>()).await;
    let claims = claim(q, 8).await;
    for held in &claims[..3] {
        q.hand_over(held, List::Ready, "{}").await.unwrap();
    }
    q.hand_over(&claims[3], List::DeadLetter, "{}").await.unwrap();
    for n in 1..=5 {
        q.push(&retry("b", n, 0)).await.unwrap();
    }
    let depths = Depths { retry: 5, parked: 2, in_flight: 4, ready: 3, dead_letter: 1 };
    assert_eq!(q.depths().await.unwrap(), depths);
}

/// The whole suite, for a function that makes [`Rooms`] of their own for each test.
#[macro_export]
macro_rules! queue_suite {
    ($make:path) => {
        $crate::queue_suite!(@each $make:
            new_entries_come_in_the_order_of_their_pushing,
            only_what_was_looked_at_is_taken,
            the_same_retry_waits_once_until_its_earliest_time,
            giving_back_keeps_the_earlier_time,
            the_sweep_keeps_the_earlier_time,
            an_entry_is_due_at_its_time_and_not_before,
            a_claim_runs_out_at_its_deadline_and_not_before,
            claims_that_ran_out_are_counted_from_the_first,
            claims_that_ran_out_are_taken_one_at_a_time,
            any_answer_clears_the_count_of_claims,
            a_claim_that_was_lost_does_nothing,
            a_hand_over_pushes_once_and_lets_go,
            a_copy_of_a_claimed_entry_changes_nothing_in_flight,
            copies_of_claims_that_ran_out_block_nobody,
            two_drains_at_once_never_hold_the_same_claim,
            two_takers_and_a_producer_lose_nothing_and_double_nothing,
            bytes_of_any_kind_stop_nothing,
            a_look_is_bounded_in_bytes,
            a_long_page_is_handled_whole,
            only_what_stands_nowhere_is_missing,
            foreign_members_of_parked_come_back_with_their_bytes,
            the_sweep_cursor_is_kept_and_may_be_lost,
            depths_count_every_room,
        );
    };
    (@each $make:path: $($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::queue_suite::$name($make()).await;
            }
        )*
    };
}
