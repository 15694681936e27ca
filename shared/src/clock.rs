//! The one place that reads the wall clock, sleeps or draws a random number.
//!
//! Everything else takes a [`Timestamp`], a [`Clock`] or a [`Roll`] as an argument, so that
//! a replay runs three weeks in three seconds and a test says exactly when things happen. `clippy.toml` keeps the
//! calls made here out of every other file.
#![allow(clippy::disallowed_methods)]

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::backoff::Roll;

/// A moment, in milliseconds since 1970-01-01T00:00:00Z: what BSON dates and Redis scores hold exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(i64);

/// The last millisecond of the year 9999, the largest that RFC 3339 can write.
const MAX_MS: i64 = 253_402_300_799_999;
/// The first millisecond of the year 0000.
const MIN_MS: i64 = -62_167_219_200_000;

impl Timestamp {
    /// From milliseconds since the epoch, held to the years 0000 to 9999 so that it can always be written.
    pub fn from_millis(ms: i64) -> Self {
        Self(ms.clamp(MIN_MS, MAX_MS))
    }

    /// Milliseconds since the epoch.
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// Reads an RFC 3339 time with an offset (`2026-01-01T00:00:00Z`). Parts of a millisecond are cut off.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        let ms = at.unix_timestamp_nanos().div_euclid(1_000_000);
        i64::try_from(ms).ok().filter(|ms| (MIN_MS..=MAX_MS).contains(ms)).map(Self)
    }

    /// This moment and `by` after it; held at the end of the year 9999.
    pub fn plus(self, by: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }

    /// This moment and `by` before it; held at the year 0000.
    pub fn minus(self, by: Duration) -> Self {
        Self::from_millis(self.0.saturating_sub(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// RFC 3339 in UTC with three decimals, `2026-01-01T00:00:00.000Z`: the same width for every moment, so that text
/// sorts as time does.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000)
            .expect("a Timestamp lies between the years 0000 and 9999");
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            at.year(),
            u8::from(at.month()),
            at.day(),
            at.hour(),
            at.minute(),
            at.second(),
            at.millisecond()
        )
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Returns once `now` has moved on by `by`.
    fn sleep(&self, by: Duration) -> impl Future<Output = ()> + Send;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let ms = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        };
        Timestamp::from_millis(ms)
    }

    async fn sleep(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }
}

/// A clock that stands still until it is told otherwise, and never goes back.
#[derive(Debug)]
pub struct VirtualClock(AtomicI64);

impl VirtualClock {
    /// A clock that stands at `at`.
    pub fn new(at: Timestamp) -> Self {
        Self(AtomicI64::new(at.as_millis()))
    }

    /// Moves the clock to `at`, or leaves it where it is if that is later.
    pub fn advance_to(&self, at: Timestamp) {
        self.0.fetch_max(at.as_millis(), Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }

    async fn sleep(&self, by: Duration) {
        self.advance_to(self.now().plus(by));
    }
}

/// A real-time bound on work: a function's deadline, which no virtual clock moves.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No bound at all: a laptop, a replay.
    pub const NONE: Self = Self(None);

    /// `by` from now.
    pub fn after(by: Duration) -> Self {
        Self(Instant::now().checked_add(by))
    }

    /// What is left, zero once it has passed; without a bound, a year.
    pub fn left(self) -> Duration {
        self.0.map_or(Duration::from_secs(31_536_000), |at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether it has passed.
    pub fn passed(self) -> bool {
        self.left().is_zero()
    }

    /// The earlier of this and `by` from now.
    pub fn at_most(self, by: Duration) -> Self {
        if self.left() <= by { self } else { Self::after(by) }
    }

    /// This bound, `by` sooner.
    pub fn sooner(self, by: Duration) -> Self {
        self.0.map_or(self, |_| Self::after(self.left().saturating_sub(by)))
    }

    /// Runs `work` until it is done or the bound has passed; `None` where it was not done.
    pub async fn bound<T>(self, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(self.left(), work).await.ok()
    }
}

/// Measures how long something takes; nothing is ever decided by it.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts it.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// How long ago that was.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A random roll from the system's seed.
pub fn roll() -> Roll {
    Roll::new(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_it_was_read() {
        for text in ["2026-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z", "0000-01-01T00:00:00.000Z"] {
            assert_eq!(Timestamp::parse_rfc3339(text).unwrap().to_string(), text);
        }
        assert_eq!(
            Timestamp::parse_rfc3339("2026-01-01T01:00:00.0009+01:00").unwrap().to_string(),
            "2026-01-01T00:00:00.000Z"
        );
        assert_eq!(Timestamp::parse_rfc3339("2026-01-01T00:00:00"), None, "no offset");
    }

    #[test]
    fn a_virtual_clock_never_goes_back() {
        let clock = VirtualClock::new(Timestamp::from_millis(1_000));
        clock.advance_to(Timestamp::from_millis(500));
        assert_eq!(clock.now().as_millis(), 1_000);
    }

    #[test]
    fn arithmetic_on_times_is_held_at_the_ends() {
        let end = Timestamp::from_millis(i64::MAX);
        assert_eq!(end.plus(Duration::from_secs(1)), end);
        assert_eq!(end.to_string(), "9999-12-31T23:59:59.999Z");
        let start = Timestamp::from_millis(i64::MIN);
        assert_eq!(start.minus(Duration::MAX), start);
    }
}
