//! When a replay drains: every so much of the log's time, counted from the first event.
//!
//! A stop at which a drain would change nothing is left out, so a gap of years costs what a gap of minutes does, and
//! a typing error in a year is survived. When that is, the replay works out after each drain and corrects with each
//! event; this only keeps it, and counts.

use std::time::Duration;

use recoup::clock::Timestamp;

/// The stops, in milliseconds since the epoch: plain numbers, since one may lie beyond the last [`Timestamp`].
#[derive(Debug)]
pub(super) struct Schedule {
    every: i64,
    next_stop: i64,
    /// Before this, a drain would change nothing.
    quiet_until: i64,
}

impl Schedule {
    /// The first stop is `every` after `first`.
    pub(super) fn new(first: Timestamp, every: Duration) -> Self {
        let every = i64::try_from(every.as_millis()).unwrap_or(i64::MAX).clamp(1, i64::MAX / 4);
        Self { every, next_stop: first.as_millis() + every, quiet_until: i64::MIN }
    }

    /// The next stop that is not after `at` and not in a quiet time.
    pub(super) fn due(&mut self, at: Timestamp) -> Option<Timestamp> {
        let quiet = self.quiet_until.min(at.as_millis() + 1);
        if self.next_stop < quiet {
            let stops = (quiet - self.next_stop + self.every - 1) / self.every;
            self.next_stop += stops * self.every;
        }
        (self.next_stop <= at.as_millis()).then(|| Timestamp::from_millis(self.next_stop))
    }

    /// The drain that was due ran, and the next one before `quiet_until` would change nothing.
    pub(super) fn ran(&mut self, quiet_until: i64) {
        self.next_stop += self.every;
        self.quiet_until = quiet_until;
    }

    /// Something happened that is a drain's business from `from` on.
    pub(super) fn work_from(&mut self, from: Timestamp) {
        self.quiet_until = self.quiet_until.min(from.as_millis());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn schedule() -> Schedule {
        Schedule::new(at(1_000), Duration::from_millis(100))
    }

    #[test]
    fn stops_are_counted_from_the_first_event() {
        let mut schedule = schedule();
        assert_eq!(schedule.due(at(1_099)), None);
        assert_eq!(schedule.due(at(1_350)), Some(at(1_100)));
        schedule.ran(i64::MIN);
        assert_eq!(schedule.due(at(1_350)), Some(at(1_200)));
        schedule.ran(i64::MIN);
        assert_eq!(schedule.due(at(1_350)), Some(at(1_300)));
        schedule.ran(i64::MIN);
        assert_eq!(schedule.due(at(1_350)), None);
    }

    #[test]
    fn a_quiet_time_is_left_out_and_what_ends_it_is_not() {
        for (quiet_until, stop) in [(1_101, 1_200), (1_999, 2_000), (2_000, 2_000), (2_001, 2_100)] {
            let mut schedule = schedule();
            schedule.ran(quiet_until);
            assert_eq!(schedule.due(at(1_150)), None);
            assert_eq!(schedule.due(at(5_000)), Some(at(stop)), "{quiet_until}");
        }
    }

    #[test]
    fn an_event_ends_a_quiet_time() {
        let mut schedule = schedule();
        schedule.ran(i64::MAX);
        assert_eq!(schedule.due(at(1_250)), None);
        schedule.work_from(at(1_250));
        schedule.work_from(at(9_000));
        assert_eq!(schedule.due(at(1_299)), None);
        assert_eq!(schedule.due(at(1_999)), Some(at(1_300)));
    }

    #[test]
    fn the_end_of_time_is_passed() {
        let mut schedule = Schedule::new(at(i64::MAX), Duration::MAX);
        assert_eq!(schedule.due(at(i64::MAX)), None);
        let mut schedule = Schedule::new(at(i64::MAX), Duration::from_millis(1));
        assert_eq!(schedule.due(at(i64::MAX)), None);
    }
}
