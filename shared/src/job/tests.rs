//! The shape of ids and costs, and what counts as a violation.

use super::*;

#[test]
fn ids_are_held_to_their_shape_and_compared_exactly() {
    assert_eq!(JobId::new(""), Err(IdError::Empty));
    assert_eq!(JobId::new(" \u{2003}"), Err(IdError::Blank));
    assert_eq!(JobId::new("a\nb"), Err(IdError::Control(10)));
    assert_eq!(JobId::new("\t"), Err(IdError::Control(9)));
    assert_eq!(JobId::new("é".repeat(257)), Err(IdError::TooLong(257)));
    assert!(JobId::new("é".repeat(256)).is_ok());
    assert_ne!(JobId::new("a"), JobId::new("a "));
    assert!(JobId::new("$where").is_ok(), "an operator's name is an id like any other");
}

#[test]
fn costs_are_whole_credits_that_a_double_holds() {
    assert_eq!(MAX_COST, 9_007_199_254_740_991);
    for bad in [0, -1, i64::MIN, MAX_COST + 1, i64::MAX] {
        assert_eq!(Cost::new(bad), Err(CostError(bad)));
    }
    assert_eq!(Cost::new(MAX_COST).map(Cost::credits), Ok(MAX_COST));
}

#[test]
fn a_reason_is_cut_between_characters() {
    assert_eq!(cut_reason("short"), "short");
    assert_eq!(cut_reason(&"é".repeat(501)), "é".repeat(500));
    assert_eq!(cut_reason(&"é".repeat(500)), "é".repeat(500));
}

#[test]
fn phases_and_types_are_read_back_from_their_words() {
    let words = Phase::ALL.map(Phase::as_str);
    assert_eq!(words, ["running", "retry_waiting", "dead_lettered", "failed", "delivered"]);
    for phase in Phase::ALL {
        assert_eq!(Phase::parse(&phase.to_string()), Some(phase));
    }
    assert_eq!(EntryType::ALL.map(EntryType::as_str), ["charge", "refund", "reclaim"]);
    for kind in EntryType::ALL {
        assert_eq!(EntryType::parse(&kind.to_string()), Some(kind));
    }
    assert_eq!((Phase::parse("Running"), EntryType::parse("")), (None, None));
}

#[test]
fn a_refund_is_the_inverse_of_charge_and_reclaim() {
    let amounts = EntryType::ALL.map(|kind| kind.amount(Cost::new(40).unwrap()));
    assert_eq!(amounts, [-40, 40, -40]);
}

#[test]
fn a_ledger_row_is_named_by_its_job_and_type() {
    let (job_id, account_id): (JobId, AccountId) = ("j:1".parse().unwrap(), "acme".parse().unwrap());
    let row = LedgerRow::new(job_id.clone(), account_id.clone(), reclaimed().entries[1]);
    assert_eq!(
        row,
        LedgerRow {
            id: "j:1:refund".to_owned(),
            job_id,
            account_id,
            kind: EntryType::Refund,
            amount: 40,
            created_at: Timestamp::from_millis(2),
        }
    );
    assert_eq!("".parse::<AccountId>(), Err(IdError::Empty));
}

/// Charged, refunded, delivered, reclaimed.
fn reclaimed() -> Job {
    let entries = EntryType::ALL.into_iter().zip(1..).map(|(kind, ms)| Entry {
        kind,
        amount: kind.amount(Cost::new(40).unwrap()),
        created_at: Timestamp::from_millis(ms),
    });
    Job {
        job_id: JobId::new("j").unwrap(),
        account_id: AccountId::new("acme").unwrap(),
        cost: Cost::new(40).unwrap(),
        is_refunded: true,
        refunded_at: Some(Timestamp::from_millis(2)),
        is_reclaimed: true,
        reclaimed_at: Some(Timestamp::from_millis(3)),
        delivered_at: Some(Timestamp::from_millis(3)),
        phase: Phase::Delivered,
        attempts: 1,
        max_attempts: 5,
        not_before: None,
        dispatched_at: None,
        last_error: None,
        counted_events: Vec::new(),
        redriven_at: None,
        entries: entries.collect(),
        net: -40,
        created_at: Timestamp::from_millis(1),
        updated_at: Timestamp::from_millis(3),
        replayed: false,
        imported: false,
    }
}

fn refunded() -> Job {
    let entries = reclaimed().entries[..2].to_vec();
    Job {
        is_reclaimed: false,
        reclaimed_at: None,
        delivered_at: None,
        phase: Phase::Failed,
        entries,
        net: 0,
        ..reclaimed()
    }
}

fn charged(phase: Phase) -> Job {
    let entries = reclaimed().entries[..1].to_vec();
    Job { is_refunded: false, refunded_at: None, phase, attempts: 0, entries, net: -40, ..refunded() }
}

#[test]
fn a_job_that_keeps_the_invariants_has_no_violations() {
    for job in [charged(Phase::Running), charged(Phase::Delivered), refunded(), reclaimed()] {
        assert_eq!(job.violations(), Vec::<String>::new());
    }
    let at_one_moment =
        reclaimed().entries.into_iter().map(|entry| Entry { created_at: Timestamp::from_millis(1), ..entry });
    assert_eq!(Job { entries: at_one_moment.collect(), ..reclaimed() }.violations(), Vec::<String>::new());
}

/// Breaks a job, and says in full what is then wrong with it.
type Break = (fn(&mut Job), &'static [&'static str]);

const BREAKS: [Break; 8] = [
    (
        |job| job.entries.truncate(2),
        &[
            "entries are [charge -40, refund +40], but cost and flags ask for [charge -40, refund +40, reclaim -40]",
            "net is -40, but the entries add up to 0",
        ],
    ),
    (
        |job| job.entries[1].amount = 41,
        &[
            "entries are [charge -40, refund +41, reclaim -40], but cost and flags ask for [charge -40, refund +40, reclaim -40]",
            "net is -40, but the entries add up to -39",
        ],
    ),
    (
        |job| job.is_refunded = false,
        &[
            "entries are [charge -40, refund +40, reclaim -40], but cost and flags ask for [charge -40, reclaim -40]",
            "is_reclaimed is true with is_refunded false in phase delivered",
            "attempts is 1 with is_refunded false",
        ],
    ),
    (
        |job| job.entries[2].created_at = Timestamp::from_millis(1),
        &["an entry is older than the one in front of it"],
    ),
    (|job| job.phase = Phase::Running, &["is_reclaimed is true with is_refunded true in phase running"]),
    (|job| job.net = 0, &["net is 0, but the entries add up to -40"]),
    (|job| job.attempts = 0, &["attempts is 0 with is_refunded true"]),
    (|job| *job = charged(Phase::Failed), &["phase is failed, but the job was never refunded"]),
];

#[test]
fn each_broken_invariant_is_a_violation_of_its_own() {
    for (change, violations) in BREAKS {
        let mut job = reclaimed();
        change(&mut job);
        assert_eq!(job.violations(), violations);
    }
    for phase in [Phase::RetryWaiting, Phase::DeadLettered] {
        assert_eq!(charged(phase).violations().len(), 1, "{phase}");
    }
    let unclaimed = Job { phase: Phase::Delivered, ..refunded() };
    assert_eq!(unclaimed.violations(), ["is_reclaimed is false with is_refunded true in phase delivered"]);
}
