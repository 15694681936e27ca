//! Breaks the setup on purpose, to show that the checks find it.
//!
//! No function is built otherwise for it. What a guard prevents is shown by a proxy that takes the guard out of the
//! request on its way to the server; what a setting is for, by leaving it off; what the source and the checks are
//! for, by a hand that does what nobody may.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use recoup::clock::{Clock, SystemClock};
use tokio::task::JoinSet;

use super::checks::Rule;
use super::proxy::Rewrite;
use super::world::{PREFIX, Stage, World};

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The event source loses what a function failed to do.
    LoseEvents,
    /// The guard that keeps delivered work from being refunded is cut out of the failure handler's requests.
    NoDeliveredGuard,
    /// The guard that lets a failure count once is cut out in the same way.
    NoAttemptGuard,
    /// The sweep never finds a retry that Redis lost.
    NoSweep,
    /// Silence is no failure, so that work which was lost stays lost.
    NoAttemptTimeout,
    /// Somebody takes refunds back out of the ledger, leaving documents that are valid each by itself.
    RemoveEntries,
    /// Somebody puts work on `ready` that was never dispatched.
    ForgeWork,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::LoseEvents,
        Self::NoDeliveredGuard,
        Self::NoAttemptGuard,
        Self::NoSweep,
        Self::NoAttemptTimeout,
        Self::RemoveEntries,
        Self::ForgeWork,
    ];

    /// Its name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LoseEvents => "lose-events",
            Self::NoDeliveredGuard => "no-delivered-guard",
            Self::NoAttemptGuard => "no-attempt-guard",
            Self::NoSweep => "no-sweep",
            Self::NoAttemptTimeout => "no-attempt-timeout",
            Self::RemoveEntries => "remove-entries",
            Self::ForgeWork => "forge-work",
        }
    }

    /// The rule that it breaks.
    pub fn breaks(self) -> Rule {
        match self {
            Self::LoseEvents => Rule::DeliveryLost,
            Self::NoDeliveredGuard | Self::NoAttemptGuard => Rule::WentBack,
            Self::RemoveEntries => Rule::EntryChanged,
            Self::NoSweep | Self::NoAttemptTimeout => Rule::NotAtRest,
            Self::ForgeWork => Rule::Unaccounted,
        }
    }
}

impl FromStr for Sabotage {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::as_str).join(", ");
        let found = Self::ALL.into_iter().find(|sabotage| sabotage.as_str() == name);
        found.ok_or_else(|| format!("there is no {name:?}, only: {names}"))
    }
}

/// Settings that differ from the soak's own.
pub(super) fn settings(sabotage: Option<Sabotage>) -> Vec<(&'static str, String)> {
    match sabotage {
        Some(Sabotage::NoSweep) => vec![("SWEEP_GRACE", "24h".to_owned())],
        Some(Sabotage::NoAttemptTimeout) => vec![("ATTEMPT_TIMEOUT", "0s".to_owned())],
        Some(
            Sabotage::LoseEvents
            | Sabotage::NoDeliveredGuard
            | Sabotage::NoAttemptGuard
            | Sabotage::RemoveEntries
            | Sabotage::ForgeWork,
        )
        | None => Vec::new(),
    }
}

/// What the proxy in front of the ledger changes.
pub(super) fn rewrite(sabotage: Option<Sabotage>) -> Option<Rewrite> {
    match sabotage {
        Some(Sabotage::NoDeliveredGuard) => Some(without_the_delivered_guard),
        Some(Sabotage::NoAttemptGuard) => Some(without_the_attempt_guard),
        Some(
            Sabotage::LoseEvents
            | Sabotage::NoSweep
            | Sabotage::NoAttemptTimeout
            | Sabotage::RemoveEntries
            | Sabotage::ForgeWork,
        )
        | None => None,
    }
}

/// `{"phase": {"$ne": "delivered"}}` becomes true of every phase, in the failure handler's requests alone.
fn without_the_delivered_guard(request: &mut [u8]) {
    if is_of_a_failure(request) {
        replace(request, b"$ne\0\x0a\0\0\0delivered\0", b"$ne\0\x0a\0\0\0delivereX\0");
    }
}

/// `{"attempts": {"$lt": k}}` becomes true of every number but k.
fn without_the_attempt_guard(request: &mut [u8]) {
    if is_of_a_failure(request) {
        replace(request, b"$lt\0", b"$ne\0");
    }
}

/// Only a failure's update writes this field.
fn is_of_a_failure(request: &[u8]) -> bool {
    let field = b"refunded_at\0";
    request.windows(field.len()).any(|window| window == field)
}

fn replace<const N: usize>(bytes: &mut [u8], from: &[u8; N], to: &[u8; N]) {
    for start in 0..=bytes.len().saturating_sub(N) {
        if bytes[start..].starts_with(from) {
            bytes[start..start + N].copy_from_slice(to);
        }
    }
}

/// The hand that does what nobody may.
pub(super) fn start(world: &Arc<World>, rooms: &mut JoinSet<()>) {
    match world.plan.sabotage {
        Some(Sabotage::RemoveEntries) => drop(rooms.spawn(remove_entries(Arc::clone(world)))),
        Some(Sabotage::ForgeWork) => drop(rooms.spawn(forge_work(Arc::clone(world)))),
        Some(
            Sabotage::LoseEvents
            | Sabotage::NoDeliveredGuard
            | Sabotage::NoAttemptGuard
            | Sabotage::NoSweep
            | Sabotage::NoAttemptTimeout,
        )
        | None => {}
    }
}

/// Refund and reclaim of delivered jobs, as if they had never been.
async fn remove_entries(world: Arc<World>) {
    let update = vec![
        doc! { "$set": {
            "entries": { "$slice": ["$entries", 1] },
            "net": { "$multiply": ["$cost", -1_i64] },
            "attempts": 0, "is_refunded": false, "is_reclaimed": false,
        } },
        doc! { "$unset": ["refunded_at", "reclaimed_at", "last_error", "counted_events", "dispatched_at"] },
    ];
    while world.stage() == Stage::Faults {
        SystemClock.sleep(Duration::from_secs(1)).await;
        let jobs = world.database.collection::<Document>("jobs");
        // Where the server is down, the next turn will do.
        let _ = jobs.update_one(doc! { "is_reclaimed": true }, update.clone()).await;
    }
}

/// The first attempt of a job comes from the platform, never from a dispatch.
async fn forge_work(world: Arc<World>) {
    let message = r#"{"job_id":"job-0000001","account_id":"account-0","attempt":1}"#;
    while world.stage() == Stage::Faults {
        SystemClock.sleep(Duration::from_secs(1)).await;
        if let Some(mut redis) = world.redis_connection().await {
            let _ =
                redis::cmd("RPUSH").arg(format!("{PREFIX}:ready")).arg(message).exec_async(&mut redis).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_cut_out_of_a_failures_request_and_of_no_other() {
        let guard = b"..phase\0....$ne\0\x0a\0\0\0delivered\0..$lt\0..";
        let mut success = guard.to_vec();
        without_the_delivered_guard(&mut success);
        without_the_attempt_guard(&mut success);
        assert_eq!(success, guard);
        let mut failure = [guard.as_slice(), b"refunded_at\0"].concat();
        without_the_delivered_guard(&mut failure);
        assert!(failure.windows(10).any(|window| window == b"delivereX\0"));
        without_the_attempt_guard(&mut failure);
        assert!(!failure.windows(4).any(|window| window == b"$lt\0"));
    }

    #[test]
    fn every_sabotage_is_known_by_its_name() {
        for sabotage in Sabotage::ALL {
            assert_eq!(sabotage.as_str().parse(), Ok(sabotage));
        }
        assert!("none".parse::<Sabotage>().is_err());
    }
}
