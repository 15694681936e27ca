//! The retry schedule: how long a job waits before its next attempt.
//!
//! Pure arithmetic that saturates instead of overflowing, whatever the number of attempts. A store that must count
//! an attempt it has not read yet (a failure signal without an attempt number) cannot be handed one delay: it gets
//! the whole schedule as a short table ([`Delays`]) and picks from it inside the guarded write, so that no second
//! copy of this arithmetic stands in a database's expression language.

use std::time::Duration;

/// When a failed job is tried again, and when no more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The unit that doubles; at least a millisecond.
    pub base_delay: Duration,
    /// The longest wait; at least `base_delay`.
    pub max_delay: Duration,
    /// Failures after which a job is dead-lettered; at least 1.
    pub max_attempts: u32,
    /// The share of a delay that is random, 0 to 1.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            base_delay: Duration::from_secs(2),
            max_delay: Duration::from_secs(15 * 60),
            max_attempts: 5,
            jitter: 0.0,
        }
    }
}

/// A random number from 0 (included) to 1, drawn by the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roll(f64);

impl Roll {
    /// The roll under which jitter takes nothing off.
    pub const FULL: Self = Self(1.0);

    /// Holds `value` to 0 to 1; not a number counts as 1.
    pub fn new(value: f64) -> Self {
        Self(if value.is_nan() { 1.0 } else { value.clamp(0.0, 1.0) })
    }
}

impl RetryPolicy {
    /// The wait after `attempts` failures, in milliseconds: `min(base * 2^attempts, max)`, of which the share
    /// `jitter` is scaled by `roll`. Never more than the maximum and never less than a millisecond.
    pub fn delay_ms(&self, attempts: u32, roll: Roll) -> i64 {
        let base = millis(self.base_delay);
        let max = millis(self.max_delay);
        let full = base.saturating_mul(2_i64.saturating_pow(attempts)).min(max);
        // Exact for every delay below 2^53 ms, which is 285,000 years.
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        let off = (full as f64 * self.jitter * (1.0 - roll.0)) as i64;
        (full - off).max(1)
    }

    /// The schedule as a table, up to the attempt from which on it no longer grows.
    pub fn delays(&self, roll: Roll) -> Delays {
        let last = (0..64).find(|n| self.delay_ms(*n, Roll::FULL) == millis(self.max_delay)).unwrap_or(63);
        Delays((0..=last).map(|n| self.delay_ms(n, roll)).collect())
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(1)
}

/// The waits in milliseconds by number of failures, from 0 on; the last one holds for every larger number. At most
/// 64 long, since 63 doublings saturate any delay.
#[derive(Clone, Debug, PartialEq)]
pub struct Delays(Vec<i64>);

impl Delays {
    /// The wait in milliseconds after `attempts` failures.
    pub fn after(&self, attempts: u32) -> i64 {
        let last = self.0.len() - 1;
        self.0[usize::try_from(attempts).unwrap_or(last).min(last)]
    }

    /// The table itself.
    pub fn as_slice(&self) -> &[i64] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(base_ms: u64, max_ms: u64, jitter: f64) -> RetryPolicy {
        RetryPolicy {
            base_delay: Duration::from_millis(base_ms),
            max_delay: Duration::from_millis(max_ms),
            max_attempts: 5,
            jitter,
        }
    }

    #[test]
    fn the_default_schedule_doubles_up_to_a_quarter_of_an_hour() {
        let delays = RetryPolicy::default().delays(Roll::FULL);
        let seconds: Vec<i64> = (1..=11).map(|n| delays.after(n) / 1000).collect();
        assert_eq!(seconds, [4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]);
        assert_eq!(delays.after(u32::MAX), 900_000);
        assert_eq!(
            delays.as_slice(),
            [2, 4, 8, 16, 32, 64, 128, 256, 512, 900].map(|seconds| seconds * 1000)
        );
    }

    #[test]
    fn jitter_takes_off_its_share_and_never_adds() {
        let jittered = policy(1_000, 60_000, 0.5);
        assert_eq!(jittered.delay_ms(1, Roll::new(0.0)), 1_000);
        assert_eq!(jittered.delay_ms(1, Roll::new(0.5)), 1_500);
        assert_eq!(jittered.delay_ms(1, Roll::FULL), 2_000);
        assert_eq!(jittered.delay_ms(1, Roll::new(f64::NAN)), 2_000);
    }

    proptest! {
        #[test]
        fn the_table_is_the_formula(base in 1_u64..1 << 40, extra in 0_u64..1 << 45, jitter in 0.0..=1.0_f64,
                                    roll in 0.0..=1.0_f64, attempts in any::<u32>()) {
            let policy = policy(base, base + extra, jitter);
            let roll = Roll::new(roll);
            let delays = policy.delays(roll);
            prop_assert!(delays.as_slice().len() <= 64);
            prop_assert_eq!(delays.after(attempts), policy.delay_ms(attempts, roll));
            prop_assert!((1..=i64::try_from(base + extra).unwrap()).contains(&delays.after(attempts)));
            let exact = u128::from(base).saturating_mul(1_u128.checked_shl(attempts).unwrap_or(u128::MAX));
            prop_assert_eq!(policy.delay_ms(attempts, Roll::FULL) as u128, exact.min(u128::from(base + extra)));
        }
    }
}
