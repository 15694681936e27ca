//! What becomes of one old job: pure, from what the old document and its rows say to a job of this layout.
//!
//! The plain layout wrote flag and row one after the other, so a process that died in between left one without the
//! other. Two rules decide every such case:
//!
//! - **Nothing is guessed unasked.** Where document and rows agree, the job is taken over, and no money moves: the sum
//!   of its entries is the sum of its rows. Where they do not, the job is a [`Plan::Contradiction`] and stays as it is.
//! - **What either says happened, happened.** A repair takes a row for money that moved and a flag for a decision that
//!   was made and whose row was lost; neither is evidence that something did not happen. What this layout cannot
//!   hold (a second refund, a reclaim of nothing, an amount other than the cost) does not count. A status word
//!   moves no money: where it disagrees with flags and rows, they stand, and a person sends the signal that is due.
//!
//! | found | repaired as | moves |
//! | --- | --- | --- |
//! | a flag without its row | the entry is written, dated now | the cost |
//! | a row without its flag | the flag follows | nothing |
//! | no charge row | the charge is written, dated as the job | minus the cost |
//! | two rows of one type | the first counts | the second, back |
//! | a reclaim without a refund | it does not count; delivered | the reclaim, back |
//! | every row moves the same, the cost is another or none | the cost follows | nothing |
//! | a row moves something else than the cost | it counts as the cost | the difference |
//! | a row of an unknown type | it does not count | the row, back |
//! | a row without a time, or older than the one in front | dated as its neighbour | nothing |
//! | said to be completed, but refunded and not reclaimed | failed | nothing |
//! | said to have failed, but never refunded | running | nothing |
//! | ids that are none, flags that are none, no cost anywhere | only by a person | nothing |

use crate::clock::Timestamp;
use crate::job::{AccountId, Cost, Entry, EntryType, Job, JobId, MAX_ATTEMPT, Phase};

/// What an old job document says.
#[derive(Clone, Debug)]
pub(super) struct OldJob {
    pub(super) job_id: JobId,
    pub(super) account_id: AccountId,
    /// The cost, or what is wrong with it.
    pub(super) cost: Result<Cost, String>,
    pub(super) is_refunded: bool,
    pub(super) is_reclaimed: bool,
    pub(super) says: Option<Says>,
    /// Failures that it counted, where it counted any.
    pub(super) attempts: Option<u32>,
    pub(super) created_at: Option<Timestamp>,
    pub(super) delivered_at: Option<Timestamp>,
}

/// What an old document says of its state beyond the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// A word such as `completed`.
    Delivered(String),
    /// A word such as `error`.
    Failed(String),
    /// A word such as `retrying`.
    Waiting,
    /// A word such as `processing`.
    Running,
}

/// One row of the old ledger.
#[derive(Clone, Debug)]
pub(super) struct OldRow {
    /// Its type, or what is wrong with it.
    pub(super) kind: Result<EntryType, String>,
    /// Signed credits, or what is wrong with them.
    pub(super) amount: Result<i64, String>,
    pub(super) created_at: Option<Timestamp>,
}

/// What contradicts itself, and what a repair does about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) found: String,
    /// `None`: only a person can say what is right.
    pub(super) mended: Option<String>,
}

impl Finding {
    /// One that only a person can resolve.
    pub(super) fn for_a_person(found: impl Into<String>) -> Self {
        Self { found: found.into(), mended: None }
    }
}

/// What becomes of an old job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It agrees with itself: the job to write, whose entries add up to what the rows did.
    Import(Job),
    /// It does not. `repair`: the job that a repair writes, and the credits that its account gains by that.
    Contradiction { findings: Vec<Finding>, repair: Option<(Job, i128)> },
}

/// Decides what becomes of `old`, whose rows are `rows` in any order. `max_attempts`: the policy's cap of now.
pub(super) fn plan(old: &OldJob, rows: &[OldRow], max_attempts: u32, now: Timestamp) -> Plan {
    let mut case = Case { old, findings: Vec::new() };
    let rows = case.one_row_of_each_type(rows);
    let Some(cost) = case.cost(&rows) else {
        return Plan::Contradiction { findings: case.findings, repair: None };
    };
    case.amounts(&rows, cost);
    let happened = case.what_happened(&rows, cost);
    let phase = case.phase(&happened);
    let entries = case.entries(&rows, &happened, cost, now);
    let job = job(old, cost, &happened, phase, entries, max_attempts, now);
    if case.findings.is_empty() {
        return Plan::Import(job);
    }
    let moved = i128::from(job.net) - rows.sum;
    Plan::Contradiction { findings: case.findings, repair: Some((job, moved)) }
}

/// The first row of each type, and what all rows add up to.
struct Rows<'a> {
    charge: Option<&'a OldRow>,
    refund: Option<&'a OldRow>,
    reclaim: Option<&'a OldRow>,
    sum: i128,
}

impl<'a> Rows<'a> {
    fn of(&self, kind: EntryType) -> Option<&'a OldRow> {
        match kind {
            EntryType::Charge => self.charge,
            EntryType::Refund => self.refund,
            EntryType::Reclaim => self.reclaim,
        }
    }

    fn time_of(&self, kind: EntryType) -> Option<Timestamp> {
        self.of(kind).and_then(|row| row.created_at)
    }

    /// The cost on which all of these rows agree, the charge among them.
    fn agree_on(&self) -> Option<Cost> {
        let charged = self.charge?.amount.as_ref().ok()?;
        let cost = Cost::new(charged.checked_neg()?).ok()?;
        let agrees = |kind: EntryType| self.of(kind).is_none_or(|row| row.amount == Ok(kind.amount(cost)));
        EntryType::ALL.into_iter().all(agrees).then_some(cost)
    }
}

/// What happened to a job, by flags and rows together.
struct Happened {
    is_refunded: bool,
    is_reclaimed: bool,
    is_delivered: bool,
}

/// One job under examination.
struct Case<'a> {
    old: &'a OldJob,
    findings: Vec<Finding>,
}

impl Case<'_> {
    fn found(&mut self, found: impl Into<String>, mended: impl Into<String>) {
        self.findings.push(Finding { found: found.into(), mended: Some(mended.into()) });
    }

    fn one_row_of_each_type<'r>(&mut self, rows: &'r [OldRow]) -> Rows<'r> {
        let mut in_order: Vec<&OldRow> = rows.iter().collect();
        in_order.sort_by_key(|row| row.created_at.map_or(i64::MAX, Timestamp::as_millis));
        for row in rows {
            if let Err(what) = &row.kind {
                self.found(what, "it does not count");
            }
        }
        let mut first = |kind: EntryType| {
            let of_kind: Vec<&OldRow> = in_order.iter().copied().filter(|row| row.kind == Ok(kind)).collect();
            if of_kind.len() > 1 {
                self.found(format!("there are {} {kind} rows", of_kind.len()), "the first one counts");
            }
            of_kind.first().copied()
        };
        Rows {
            charge: first(EntryType::Charge),
            refund: first(EntryType::Refund),
            reclaim: first(EntryType::Reclaim),
            sum: rows
                .iter()
                .filter_map(|row| row.amount.as_ref().ok())
                .map(|amount| i128::from(*amount))
                .sum(),
        }
    }

    /// The document's own cost, unless the rows, which the account was shown, agree on another one.
    fn cost(&mut self, rows: &Rows<'_>) -> Option<Cost> {
        match (&self.old.cost, rows.agree_on()) {
            (Ok(cost), None) => Some(*cost),
            (Ok(cost), Some(agreed)) if *cost == agreed => Some(*cost),
            (Ok(cost), Some(agreed)) => {
                let agreed_credits = agreed.credits();
                self.found(
                    format!("the cost is {}, but every row moves {agreed_credits}", cost.credits()),
                    format!("the cost is {agreed_credits}, as the account was charged"),
                );
                Some(agreed)
            }
            (Err(what), Some(agreed)) => {
                self.found(
                    what.clone(),
                    format!("the cost is {}, as the account was charged", agreed.credits()),
                );
                Some(agreed)
            }
            (Err(what), None) => {
                self.findings.push(Finding::for_a_person(what.clone()));
                None
            }
        }
    }

    fn amounts(&mut self, rows: &Rows<'_>, cost: Cost) {
        for kind in EntryType::ALL {
            let Some(row) = rows.of(kind) else { continue };
            let expected = kind.amount(cost);
            match &row.amount {
                Ok(amount) if *amount == expected => {}
                Ok(amount) => self.found(
                    format!("the {kind} row moves {amount:+}, but the cost asks for {expected:+}"),
                    format!("it counts as {expected:+}"),
                ),
                Err(what) => {
                    self.found(format!("the {kind} row's {what}"), format!("it counts as {expected:+}"));
                }
            }
        }
    }

    fn what_happened(&mut self, rows: &Rows<'_>, cost: Cost) -> Happened {
        let OldJob { is_refunded, is_reclaimed, .. } = *self.old;
        if rows.charge.is_none() {
            let amount = EntryType::Charge.amount(cost);
            self.found("there is no charge row", format!("a charge entry of {amount:+} is written"));
        }
        self.flag_and_row("is_refunded", is_refunded, EntryType::Refund, rows, cost);
        let was_refunded = is_refunded || rows.refund.is_some();
        let was_reclaimed = is_reclaimed || rows.reclaim.is_some();
        if was_reclaimed && !was_refunded {
            self.found(
                "it is reclaimed, but was never refunded",
                "the reclaim does not count, and the job is delivered",
            );
        } else {
            self.flag_and_row("is_reclaimed", is_reclaimed, EntryType::Reclaim, rows, cost);
        }
        Happened {
            is_refunded: was_refunded,
            is_reclaimed: was_reclaimed && was_refunded,
            is_delivered: was_reclaimed,
        }
    }

    fn flag_and_row(&mut self, name: &str, flag: bool, kind: EntryType, rows: &Rows<'_>, cost: Cost) {
        match (flag, rows.of(kind)) {
            (true, None) => self.found(
                format!("{name} is true, but there is no {kind} row"),
                format!("a {kind} entry of {:+} is written", kind.amount(cost)),
            ),
            (false, Some(_)) => {
                self.found(
                    format!("there is a {kind} row, but {name} is not true"),
                    format!("{name} is set"),
                );
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Reclaimed is delivered. Refunded is failed, since no retry is known, unless the document knows of one. What is
    /// neither runs, unless the document says that it was delivered.
    fn phase(&mut self, happened: &Happened) -> Phase {
        if happened.is_delivered {
            return Phase::Delivered;
        }
        match (&self.old.says, happened.is_refunded) {
            (Some(Says::Delivered(word)), true) => {
                let found = format!("it is said to be {word:?}, but was refunded and never reclaimed");
                self.found(found, "it is taken over as failed; `recoup succeeded` takes the refund back");
                Phase::Failed
            }
            (Some(Says::Failed(word)), false) => {
                let found = format!("it is said to be {word:?}, but was never refunded");
                self.found(found, "it is taken over as running; `recoup failed` refunds it");
                Phase::Running
            }
            (Some(Says::Delivered(_)), false) => Phase::Delivered,
            (Some(Says::Failed(_)) | None, true) => Phase::Failed,
            (Some(Says::Waiting), true) => Phase::RetryWaiting,
            (Some(Says::Running), true) | (Some(Says::Waiting | Says::Running) | None, false) => {
                Phase::Running
            }
        }
    }

    /// The entries with their times. An entry that no row gave is dated as the job, for the charge, and else now,
    /// when the money moves; but never after an entry behind it that a row did give.
    fn entries(&mut self, rows: &Rows<'_>, happened: &Happened, cost: Cost, now: Timestamp) -> Vec<Entry> {
        let kinds: Vec<EntryType> = EntryType::ALL
            .into_iter()
            .filter(|kind| match kind {
                EntryType::Charge => true,
                EntryType::Refund => happened.is_refunded,
                EntryType::Reclaim => happened.is_reclaimed,
            })
            .collect();
        let mut entries: Vec<Entry> = Vec::with_capacity(kinds.len());
        for (position, &kind) in kinds.iter().enumerate() {
            let behind = kinds[position + 1..].iter().find_map(|kind| rows.time_of(*kind));
            let wanted = match kind {
                EntryType::Charge => self.old.created_at.or(behind).unwrap_or(now),
                EntryType::Refund | EntryType::Reclaim => now,
            };
            let otherwise = behind.map_or(wanted, |behind| wanted.min(behind));
            let in_front = entries.last().map(|entry| entry.created_at);
            let created_at = match (rows.of(kind), rows.time_of(kind)) {
                (Some(_), Some(at)) => at,
                (Some(_), None) => {
                    self.found(format!("the {kind} row has no time"), "it is dated as its neighbour");
                    in_front.unwrap_or(otherwise)
                }
                (None, _) => otherwise,
            };
            if in_front.is_some_and(|in_front| created_at < in_front) {
                self.found(
                    format!("the {kind} row is older than the entry in front of it"),
                    "it is dated as that one",
                );
            }
            let created_at = in_front.map_or(created_at, |in_front| created_at.max(in_front));
            entries.push(Entry { kind, amount: kind.amount(cost), created_at });
        }
        entries
    }
}

fn job(
    old: &OldJob,
    cost: Cost,
    happened: &Happened,
    phase: Phase,
    entries: Vec<Entry>,
    max_attempts: u32,
    now: Timestamp,
) -> Job {
    let written = |kind: EntryType| entries.iter().find(|entry| entry.kind == kind).map(|e| e.created_at);
    let charged_at = written(EntryType::Charge).expect("the entries begin with the charge");
    let reclaimed_at = written(EntryType::Reclaim);
    let counted = old.attempts.filter(|attempts| (1..=MAX_ATTEMPT).contains(attempts)).unwrap_or(1);
    Job {
        job_id: old.job_id.clone(),
        account_id: old.account_id.clone(),
        cost,
        is_refunded: happened.is_refunded,
        refunded_at: written(EntryType::Refund),
        is_reclaimed: happened.is_reclaimed,
        reclaimed_at,
        delivered_at: if phase == Phase::Delivered { reclaimed_at.or(old.delivered_at) } else { None },
        phase,
        attempts: if happened.is_refunded { counted } else { 0 },
        max_attempts,
        // A retry that the old document knew of is due; one that it said was under way counts as handed over now.
        not_before: (phase == Phase::RetryWaiting).then_some(now),
        dispatched_at: (phase == Phase::Running && happened.is_refunded).then_some(now),
        last_error: None,
        counted_events: Vec::new(),
        redriven_at: None,
        net: entries.iter().map(|entry| entry.amount).sum(),
        entries,
        created_at: old.created_at.unwrap_or(charged_at),
        updated_at: now,
        replayed: false,
        imported: true,
    }
}

#[cfg(test)]
mod tests;
