//! The retry queue in the embedded file.
//!
//! Each method is one transaction of index seeks, so an idle drain costs some microseconds. A claim is one row with its
//! history in it: whoever lets go of the claim deletes the row, and the count is gone with it. Whether a claim is
//! still the caller's is part of that DELETE, `member` and `deadline` together.
//!
//! The tables take any bytes, as the lists and sets of Redis do, whoever puts them there.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, named_params};

use super::{Claim, Depths, Intake, List, MAX_LOOK_BYTES, NewEntry, QueueError, RetryEntry, RetryQueue};
use crate::clock::Timestamp;
use crate::embedded::{Embedded, STORE, is_passing};

/// The queue's handle on the embedded store.
#[derive(Clone, Debug)]
pub struct SqliteQueue {
    store: Arc<Embedded>,
}

impl SqliteQueue {
    /// A handle on `store`.
    pub fn new(store: Arc<Embedded>) -> Self {
        Self { store }
    }
}

impl From<rusqlite::Error> for QueueError {
    fn from(error: rusqlite::Error) -> Self {
        let what = error.to_string();
        if is_passing(&error) {
            Self::Unavailable { store: STORE, what }
        } else {
            Self::Refused { store: STORE, what }
        }
    }
}

const PUSH: &str = "INSERT INTO retry (raw) VALUES (:raw)";

const LOOK: &str = "SELECT raw FROM retry ORDER BY id LIMIT :limit";

/// Compares and pops: nothing where the head is another entry by now.
const POP: &str = "DELETE FROM retry WHERE id = (SELECT min(id) FROM retry) AND raw = :raw";

/// The earlier time wins.
const PARK: &str = "
    INSERT INTO parked (member, due) VALUES (:member, :due)
    ON CONFLICT (member) DO UPDATE SET due = excluded.due WHERE excluded.due < due";

/// Due entries whose member is in flight, from the few in flight: parked until that claim runs out. Where it has
/// run out and nobody has taken it again yet, as long as a claim lasts, so that it is not passed over again and again.
const PASS_OVER: &str = "
    UPDATE parked
    SET due = (SELECT iif(deadline > :now, deadline, :new_deadline) FROM in_flight
               WHERE in_flight.member = parked.member)
    WHERE member IN (SELECT member FROM in_flight) AND +due <= :now";

/// By `parked_due`.
const DUE: &str = "SELECT member FROM parked WHERE due <= :now ORDER BY due, member LIMIT :limit";
const UNPARK: &str = "DELETE FROM parked WHERE member = :member";
const CLAIM: &str = "
    INSERT INTO in_flight (member, deadline, expired_claims, first_claim)
    VALUES (:member, :deadline, 0, :now)";

/// By `in_flight_deadline`. Answers with the one claim that ran out first, taken again.
const CLAIM_AGAIN: &str = "
    UPDATE in_flight SET deadline = :deadline, expired_claims = expired_claims + 1
    WHERE member = (SELECT member FROM in_flight WHERE deadline <= :now ORDER BY deadline, member LIMIT 1)
    RETURNING member, expired_claims, first_claim";

/// Nothing where the claim is no longer the caller's.
const LET_GO: &str = "DELETE FROM in_flight WHERE member = :member AND deadline = :deadline";

const MAKE_READY: &str = "INSERT INTO ready (message) VALUES (:message)";
const KEEP_DEAD_LETTER: &str = "INSERT INTO dead_letter (message) VALUES (:message)";

const IS_PARKED: &str = "SELECT 1 FROM parked WHERE member = :member";
const PARKED_UNTIL: &str = "SELECT due FROM parked WHERE member = :member";
const IS_IN_FLIGHT: &str = "SELECT 1 FROM in_flight WHERE member = :member";

const CURSOR: &str = "SELECT cursor FROM sweep";
/// Writes nothing, and so costs no `fsync`, where the sweep ended at the same place.
const KEEP_CURSOR: &str = "
    INSERT INTO sweep (id, cursor) VALUES (1, :cursor)
    ON CONFLICT (id) DO UPDATE SET cursor = excluded.cursor WHERE cursor <> excluded.cursor";

const DEPTHS: &str = "
    SELECT (SELECT count(*) FROM retry), (SELECT count(*) FROM parked), (SELECT count(*) FROM in_flight),
           (SELECT count(*) FROM ready), (SELECT count(*) FROM dead_letter)";

impl RetryQueue for SqliteQueue {
    async fn push(&self, entry: &RetryEntry) -> Result<(), QueueError> {
        self.store.write(|file| {
            file.prepare_cached(PUSH)?.execute(named_params! { ":raw": entry.pushed().as_bytes() })?;
            Ok(())
        })
    }

    async fn look_at_new(&self, limit: usize) -> Result<Vec<Vec<u8>>, QueueError> {
        self.store.read(|file| {
            let mut statement = file.prepare_cached(LOOK)?;
            let mut rows = statement.query(named_params! { ":limit": as_limit(limit) })?;
            let mut entries = Vec::new();
            let mut bytes = 0;
            while let Some(row) = rows.next()? {
                let raw = row.get_ref(0)?.as_bytes().map_err(rusqlite::Error::from)?;
                bytes += raw.len();
                if bytes > MAX_LOOK_BYTES && !entries.is_empty() {
                    break;
                }
                entries.push(raw.to_vec());
            }
            Ok(entries)
        })
    }

    async fn take_new(&self, entries: &[NewEntry]) -> Result<usize, QueueError> {
        if entries.is_empty() {
            return Ok(0);
        }
        self.store.write_several(|file| {
            let mut taken = 0;
            for NewEntry { raw, intake } in entries {
                if file.prepare_cached(POP)?.execute(named_params! { ":raw": raw })? == 0 {
                    break;
                }
                match intake {
                    Intake::Park(entry) => park(file, entry.canonical().as_bytes(), entry.not_before)?,
                    Intake::Malformed(line) => append(file, List::DeadLetter, line)?,
                }
                taken += 1;
            }
            Ok(taken)
        })
    }

    async fn claim_due(
        &self,
        now: Timestamp,
        timeout: Duration,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        // An idle drain takes no write lock.
        if self.store.read(|file| due(file, now, 1))?.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = now.plus(timeout);
        self.store.write_several(|file| {
            file.prepare_cached(PASS_OVER)?.execute(named_params! {
                ":now": now.as_millis(), ":new_deadline": deadline.as_millis(),
            })?;
            let members = due(file, now, limit)?;
            let mut unpark = file.prepare_cached(UNPARK)?;
            let mut claim = file.prepare_cached(CLAIM)?;
            for member in &members {
                unpark.execute(named_params! { ":member": member })?;
                claim.execute(named_params! {
                    ":member": member, ":deadline": deadline.as_millis(), ":now": now.as_millis(),
                })?;
            }
            let claimed = |member| Claim { member, deadline, expired_claims: 0, first_claim: now };
            Ok(members.into_iter().map(claimed).collect())
        })
    }

    async fn claim_expired(&self, now: Timestamp, timeout: Duration) -> Result<Option<Claim>, QueueError> {
        let deadline = now.plus(timeout);
        self.store.write(|file| {
            let params = named_params! { ":now": now.as_millis(), ":deadline": deadline.as_millis() };
            let claim = file.prepare_cached(CLAIM_AGAIN)?.query_row(params, |row| {
                let first_claim = Timestamp::from_millis(row.get(2)?);
                Ok(Claim { member: row.get(0)?, deadline, expired_claims: row.get(1)?, first_claim })
            });
            Ok(claim.optional()?)
        })
    }

    async fn hand_over(&self, claim: &Claim, to: List, message: &str) -> Result<bool, QueueError> {
        self.store.write_several(|file| {
            let ours = let_go(file, claim)?;
            if ours {
                append(file, to, message)?;
            }
            Ok(ours)
        })
    }

    async fn acknowledge(&self, claim: &Claim) -> Result<bool, QueueError> {
        self.store.write(|file| Ok(let_go(file, claim)?))
    }

    async fn give_back(&self, claim: &Claim, due: Timestamp) -> Result<bool, QueueError> {
        self.store.write_several(|file| {
            let ours = let_go(file, claim)?;
            if ours {
                park(file, &claim.member, due)?;
            }
            Ok(ours)
        })
    }

    async fn park_missing(&self, entries: &[RetryEntry], far: Timestamp) -> Result<usize, QueueError> {
        if entries.is_empty() {
            return Ok(0);
        }
        self.store.write_several(|file| {
            let mut added = 0;
            for entry in entries {
                let member = entry.canonical();
                if stands(file, IS_IN_FLIGHT, &member)? {
                    continue;
                }
                let due = parked_until(file, &member)?;
                if due.is_none_or(|due| due > far.as_millis()) {
                    added += usize::from(due.is_none());
                    park(file, member.as_bytes(), entry.not_before)?;
                }
            }
            Ok(added)
        })
    }

    async fn sweep_cursor(&self) -> Result<Option<String>, QueueError> {
        self.store.read(|file| Ok(file.prepare_cached(CURSOR)?.query_row([], |row| row.get(0)).optional()?))
    }

    async fn keep_sweep_cursor(&self, cursor: &str) -> Result<(), QueueError> {
        self.store.write(|file| {
            file.prepare_cached(KEEP_CURSOR)?.execute(named_params! { ":cursor": cursor })?;
            Ok(())
        })
    }

    async fn depths(&self) -> Result<Depths, QueueError> {
        self.store.read(|file| {
            let counts = file
                .prepare_cached(DEPTHS)?
                .query_row([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]))?;
            let [retry, parked, in_flight, ready, dead_letter] = counts.map(i64::unsigned_abs);
            Ok(Depths { retry, parked, in_flight, ready, dead_letter })
        })
    }

    async fn missing(&self, entries: &[RetryEntry]) -> Result<Vec<RetryEntry>, QueueError> {
        self.store.read(|file| {
            let mut missing = Vec::new();
            for entry in entries {
                let member = entry.canonical();
                if !stands(file, IS_PARKED, &member)? && !stands(file, IS_IN_FLIGHT, &member)? {
                    missing.push(entry.clone());
                }
            }
            Ok(missing)
        })
    }
}

fn as_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn due(file: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<Vec<Vec<u8>>> {
    let params = named_params! { ":now": now.as_millis(), ":limit": as_limit(limit) };
    file.prepare_cached(DUE)?.query_map(params, |row| row.get(0))?.collect()
}

fn park(file: &Connection, member: &[u8], due: Timestamp) -> rusqlite::Result<()> {
    file.prepare_cached(PARK)?.execute(named_params! { ":member": member, ":due": due.as_millis() })?;
    Ok(())
}

fn let_go(file: &Connection, claim: &Claim) -> rusqlite::Result<bool> {
    let params = named_params! { ":member": claim.member, ":deadline": claim.deadline.as_millis() };
    Ok(file.prepare_cached(LET_GO)?.execute(params)? == 1)
}

fn append(file: &Connection, to: List, message: &str) -> rusqlite::Result<()> {
    let sql = match to {
        List::Ready => MAKE_READY,
        List::DeadLetter => KEEP_DEAD_LETTER,
    };
    file.prepare_cached(sql)?.execute(named_params! { ":message": message })?;
    Ok(())
}

fn parked_until(file: &Connection, member: &str) -> rusqlite::Result<Option<i64>> {
    let params = named_params! { ":member": member.as_bytes() };
    file.prepare_cached(PARKED_UNTIL)?.query_row(params, |row| row.get(0)).optional()
}

fn stands(file: &Connection, sql: &str, member: &str) -> rusqlite::Result<bool> {
    file.prepare_cached(sql)?.exists(named_params! { ":member": member.as_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::tests::plan;

    #[test]
    fn every_step_of_an_idle_drain_is_a_seek() {
        assert_eq!(plan(DUE), ["SEARCH parked USING COVERING INDEX parked_due (due<?)"]);
        assert_eq!(
            plan(LOOK),
            ["SCAN retry"],
            "in the order of the primary key, and only as far as the limit"
        );
        assert_eq!(plan(CURSOR), ["SCAN sweep"], "of its one row");
        for step in [POP, PASS_OVER, UNPARK, CLAIM_AGAIN, LET_GO, IS_PARKED, IS_IN_FLIGHT] {
            let plan = plan(step);
            assert!(
                !plan.iter().any(|line| line.contains("SCAN") || line.contains("TEMP")),
                "{step}: {plan:#?}"
            );
        }
        let from_those_in_flight = "SEARCH parked USING PRIMARY KEY (member=?)".to_owned();
        assert!(plan(PASS_OVER).contains(&from_those_in_flight));
        let first_to_run_out =
            "SEARCH in_flight USING COVERING INDEX in_flight_deadline (deadline<?)".to_owned();
        assert!(plan(CLAIM_AGAIN).contains(&first_to_run_out));
    }
}
