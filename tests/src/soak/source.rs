//! An at-least-once event source, as SQS is one.
//!
//! An event that was taken comes again after [`VISIBILITY`] unless a function answered without reporting it; then it
//! is gone, but now and then it comes once more all the same. What is taken is drawn at random from what is visible,
//! so nothing keeps its order. Time and randomness come in, so that a test says what happens when.

use std::collections::HashSet;
use std::time::Duration;

use fastrand::Rng;
use recoup::clock::Timestamp;
use recoup::event::Signal;
use serde_json::{Value, json};

/// How long an event that was taken stays away. Shorter than a function may take, so that two work on one event.
pub const VISIBILITY: Duration = Duration::from_millis(2_500);
/// The most that one batch holds.
const LARGEST_BATCH: usize = 10;
/// The longest that an event is held back on its way in.
const LONGEST_DELAY_MS: u64 = 5_000;

/// An event in the source.
#[derive(Clone, Debug)]
struct Letter {
    id: String,
    signal: Signal,
    body: String,
    visible_at: Timestamp,
    /// How often it may still come although it was answered.
    echoes: u8,
    taken: u32,
}

/// What a function is handed: the same id may stand in it twice.
#[derive(Clone, Debug)]
pub struct Batch {
    records: Vec<(String, String)>,
}

impl Batch {
    /// The batch as an SQS event.
    pub fn payload(&self) -> String {
        let records: Vec<Value> = self
            .records
            .iter()
            .map(|(id, body)| json!({ "messageId": id, "body": body, "eventSource": "aws:sqs" }))
            .collect();
        json!({ "Records": records }).to_string()
    }

    /// How many records it holds.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn ids(&self) -> HashSet<&str> {
        self.records.iter().map(|(id, _)| id.as_str()).collect()
    }
}

/// What answers meant for the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Gone for good.
    pub done: u64,
    /// Done, and yet to come once more.
    pub echoed: u64,
    /// Reported as failed: they come again.
    pub failed: u64,
}

/// The source.
#[derive(Debug)]
pub struct Source {
    letters: Vec<Letter>,
    rng: Rng,
    count: u64,
    is_calm: bool,
    loses_events: bool,
}

impl Source {
    /// An empty source. `loses_events` breaks the promise: one in five is never delivered, and what was not done is
    /// lost instead of coming again.
    pub fn new(rng: Rng, loses_events: bool) -> Self {
        Self { letters: Vec::new(), rng, count: 0, is_calm: false, loses_events }
    }

    /// Accepts an event, once or twice, now or a little later. The answer says how often.
    pub fn accept(&mut self, signal: Signal, body: &Value, now: Timestamp) -> u64 {
        let copies = if !self.is_calm && self.rng.f64() < 0.1 { 2 } else { 1 };
        for _ in 0..copies {
            self.count += 1;
            if self.loses_events && self.rng.f64() < 0.2 {
                continue;
            }
            let id = format!("message-{}", self.count);
            let body = self.in_some_envelope(signal, body);
            let visible_at = now.plus(self.delay());
            let echoes = if self.is_calm { 0 } else { 2 };
            self.letters.push(Letter { id, signal, body, visible_at, echoes, taken: 0 });
        }
        copies
    }

    fn in_some_envelope(&mut self, signal: Signal, body: &Value) -> String {
        if self.rng.f64() < 0.75 {
            return body.to_string();
        }
        let detail_type = match signal {
            Signal::Failed => "Job Failed",
            Signal::Succeeded => "Job Succeeded",
        };
        let id = format!("event-{}", self.count);
        json!({ "id": id, "detail-type": detail_type, "source": "soak", "detail": body }).to_string()
    }

    fn delay(&mut self) -> Duration {
        let most = match self.rng.u8(0..10) {
            _ if self.is_calm => 0,
            0 => LONGEST_DELAY_MS,
            1 | 2 => 1_000,
            _ => 0,
        };
        Duration::from_millis(self.rng.u64(0..=most))
    }

    /// Takes 1 to 10 visible events of this kind; they are back after [`VISIBILITY`].
    pub fn take(&mut self, signal: Signal, now: Timestamp) -> Batch {
        let mut visible: Vec<usize> = (0..self.letters.len())
            .filter(|place| {
                let letter = &self.letters[*place];
                letter.signal == signal && letter.visible_at <= now
            })
            .collect();
        self.rng.shuffle(&mut visible);
        visible.truncate(self.rng.usize(1..=LARGEST_BATCH));
        let mut records = Vec::new();
        for place in visible {
            let letter = &mut self.letters[place];
            letter.visible_at = now.plus(VISIBILITY);
            letter.taken += 1;
            records.push((letter.id.clone(), letter.body.clone()));
            if records.len() < LARGEST_BATCH && !self.is_calm && self.rng.f64() < 0.02 {
                records.extend(records.last().cloned());
            }
        }
        Batch { records }
    }

    /// The function answered: these events failed, the others of the batch are done.
    pub fn settle(&mut self, batch: &Batch, failed: &HashSet<String>, now: Timestamp) -> Settled {
        let ids = batch.ids();
        let mut settled = Settled::default();
        let mut kept = Vec::with_capacity(self.letters.len());
        for mut letter in std::mem::take(&mut self.letters) {
            if !ids.contains(letter.id.as_str()) {
                kept.push(letter);
            } else if failed.contains(&letter.id) {
                settled.failed += 1;
                letter.visible_at = now.plus(Duration::from_millis(self.rng.u64(0..300)));
                if !self.loses_events {
                    kept.push(letter);
                }
            } else if letter.echoes > 0 && self.rng.f64() < 0.1 {
                settled.echoed += 1;
                letter.echoes -= 1;
                letter.visible_at = now.plus(Duration::from_millis(self.rng.u64(0..4_000)));
                kept.push(letter);
            } else {
                settled.done += 1;
            }
        }
        self.letters = kept;
        settled
    }

    /// The function did not answer. The events come again by themselves.
    pub fn unanswered(&mut self, batch: &Batch) {
        if self.loses_events {
            let ids = batch.ids();
            self.letters.retain(|letter| !ids.contains(letter.id.as_str()));
        }
    }

    /// From now on nothing is doubled or held back, and what was is there at once.
    pub fn calm_down(&mut self, now: Timestamp) {
        self.is_calm = true;
        for letter in &mut self.letters {
            letter.echoes = 0;
            letter.visible_at = letter.visible_at.min(now.plus(VISIBILITY));
        }
    }

    /// The bodies of the events that are not gone, and how often each was taken.
    pub fn waiting(&self) -> Vec<String> {
        self.letters.iter().map(|letter| format!("{} (taken {} times)", letter.body, letter.taken)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: Signal = Signal::Failed;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn calm(loses_events: bool, events: usize) -> Source {
        let mut source = Source::new(Rng::with_seed(1), loses_events);
        source.calm_down(at(0));
        for n in 0..events {
            source.accept(FAILED, &json!({ "job_id": format!("job-{n}") }), at(0));
        }
        source
    }

    fn take_all(source: &mut Source, now: Timestamp) -> Vec<Batch> {
        std::iter::from_fn(|| Some(source.take(FAILED, now)).filter(|batch| !batch.is_empty())).collect()
    }

    #[test]
    fn what_nobody_answered_comes_again_after_its_time_and_not_before() {
        let mut source = calm(false, 30);
        let first: usize = take_all(&mut source, at(0)).iter().map(Batch::len).sum();
        assert_eq!(first, 30);
        let soon = at(0).plus(VISIBILITY).minus(Duration::from_millis(1));
        assert!(source.take(FAILED, soon).is_empty());
        let again: usize = take_all(&mut source, at(0).plus(VISIBILITY)).iter().map(Batch::len).sum();
        assert_eq!(again, 30);
    }

    #[test]
    fn an_event_leaves_only_when_it_was_answered_and_not_reported() {
        let mut source = calm(false, 10);
        let batches = take_all(&mut source, at(0));
        let failed = HashSet::from(["message-3".to_owned()]);
        let done: u64 = batches.iter().map(|batch| source.settle(batch, &failed, at(0)).done).sum();
        assert_eq!((done, source.waiting().len()), (9, 1));
        assert!(source.waiting()[0].contains("job-2"));
        assert_eq!(take_all(&mut source, at(300)).len(), 1);
    }

    #[test]
    fn batches_hold_one_to_ten_events_and_do_not_keep_their_order() {
        let mut source = calm(false, 200);
        let batches = take_all(&mut source, at(0));
        assert!(batches.iter().all(|batch| (1..=10).contains(&batch.len())));
        let ids: Vec<&String> =
            batches.iter().flat_map(|batch| batch.records.iter().map(|(id, _)| id)).collect();
        let number = |id: &String| id.trim_start_matches("message-").parse::<u64>().unwrap();
        assert!(ids.windows(2).any(|pair| number(pair[0]) > number(pair[1])));
    }

    #[test]
    fn before_it_is_calm_events_are_doubled_delayed_and_come_although_they_were_done() {
        let mut source = Source::new(Rng::with_seed(7), false);
        let copies: u64 = (0..100).map(|n| source.accept(FAILED, &json!({ "job_id": n }), at(0))).sum();
        assert!(copies > 100);
        let batches = take_all(&mut source, at(0));
        let visible: HashSet<&str> = batches.iter().flat_map(Batch::ids).collect();
        assert!((visible.len() as u64) < copies);
        let echoed: u64 =
            batches.iter().map(|batch| source.settle(batch, &HashSet::new(), at(0)).echoed).sum();
        assert!(echoed > 0);
        source.calm_down(at(0));
        for batch in take_all(&mut source, at(0).plus(VISIBILITY)) {
            assert_eq!(source.settle(&batch, &HashSet::new(), at(0)).echoed, 0);
        }
        assert_eq!(source.waiting(), Vec::<String>::new());
    }

    #[test]
    fn a_broken_source_loses_some_events_and_what_was_not_done() {
        let mut source = calm(true, 100);
        assert!((1..100).contains(&source.waiting().len()));
        for batch in take_all(&mut source, at(0)) {
            source.unanswered(&batch);
        }
        assert_eq!(source.waiting(), Vec::<String>::new());
    }
}
