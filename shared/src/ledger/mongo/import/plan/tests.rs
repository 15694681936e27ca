use proptest::prelude::*;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000 + seconds * 1_000)
}

const NOW: i64 = 1_000;

fn old(is_refunded: bool, is_reclaimed: bool) -> OldJob {
    OldJob {
        job_id: JobId::new("j").unwrap(),
        account_id: AccountId::new("a").unwrap(),
        cost: Ok(Cost::new(40).unwrap()),
        is_refunded,
        is_reclaimed,
        says: None,
        attempts: None,
        created_at: Some(at(0)),
        delivered_at: None,
    }
}

fn row(kind: EntryType, amount: i64, seconds: i64) -> OldRow {
    OldRow { kind: Ok(kind), amount: Ok(amount), created_at: Some(at(seconds)) }
}

fn charge() -> OldRow {
    row(EntryType::Charge, -40, 0)
}

fn refund() -> OldRow {
    row(EntryType::Refund, 40, 30)
}

fn reclaim() -> OldRow {
    row(EntryType::Reclaim, -40, 32)
}

fn planned(old: &OldJob, rows: &[OldRow]) -> Plan {
    plan(old, rows, 5, at(NOW))
}

/// The job that is imported without asking.
fn imported(old: &OldJob, rows: &[OldRow]) -> Job {
    match planned(old, rows) {
        Plan::Import(job) => job,
        Plan::Contradiction { findings, .. } => panic!("{findings:?}"),
    }
}

/// What is found, the job that a repair writes, and what that moves.
fn repaired(old: &OldJob, rows: &[OldRow]) -> (Vec<String>, Job, i128) {
    match planned(old, rows) {
        Plan::Contradiction { findings, repair: Some((job, moved)) } => {
            assert_eq!(job.violations(), Vec::<String>::new());
            assert!(findings.iter().all(|finding| finding.mended.is_some()), "{findings:?}");
            (findings.into_iter().map(|finding| finding.found).collect(), job, moved)
        }
        other @ (Plan::Import(_) | Plan::Contradiction { .. }) => panic!("{other:?}"),
    }
}

fn kinds(job: &Job) -> Vec<EntryType> {
    job.entries.iter().map(|entry| entry.kind).collect()
}

#[test]
fn flags_and_rows_that_agree_are_taken_over_as_they_are() {
    let cases = [
        (old(false, false), vec![charge()], Phase::Running, -40, 0),
        (old(true, false), vec![refund(), charge()], Phase::Failed, 0, 1),
        (old(true, true), vec![reclaim(), refund(), charge()], Phase::Delivered, -40, 1),
    ];
    for (old, rows, phase, net, attempts) in cases {
        let job = imported(&old, &rows);
        assert_eq!((job.phase, job.net, job.attempts, job.max_attempts), (phase, net, attempts, 5));
        assert_eq!(job.violations(), Vec::<String>::new());
        assert!(job.imported);
    }
    let job = imported(&old(true, true), &[charge(), refund(), reclaim()]);
    assert_eq!(
        (job.refunded_at, job.reclaimed_at, job.delivered_at),
        (Some(at(30)), Some(at(32)), Some(at(32)))
    );
    assert_eq!((job.created_at, job.updated_at), (at(0), at(NOW)));
}

#[test]
fn what_the_document_says_beyond_the_flags_chooses_the_phase() {
    let said = |is_refunded, says| OldJob { says: Some(says), ..old(is_refunded, false) };
    let delivered = || Says::Delivered("completed".to_owned());
    let job = imported(&OldJob { delivered_at: Some(at(9)), ..said(false, delivered()) }, &[charge()]);
    assert_eq!((job.phase, job.delivered_at), (Phase::Delivered, Some(at(9))));
    let job = imported(&OldJob { attempts: Some(3), ..said(true, Says::Waiting) }, &[charge(), refund()]);
    assert_eq!((job.phase, job.not_before, job.attempts), (Phase::RetryWaiting, Some(at(NOW)), 3));
    let job = imported(&said(true, Says::Running), &[charge(), refund()]);
    assert_eq!((job.phase, job.dispatched_at), (Phase::Running, Some(at(NOW))));
    assert_eq!(imported(&said(false, Says::Waiting), &[charge()]).phase, Phase::Running);
    let failed = said(true, Says::Failed("error".to_owned()));
    assert_eq!(imported(&failed, &[charge(), refund()]).phase, Phase::Failed);
    // The reclaim came after the word.
    let late = OldJob { is_reclaimed: true, ..failed };
    assert_eq!(imported(&late, &[charge(), refund(), reclaim()]).phase, Phase::Delivered);
}

#[test]
fn a_flag_without_its_row_gets_the_entry_it_lost() {
    let (found, job, moved) = repaired(&old(true, false), &[charge()]);
    assert_eq!(found, ["is_refunded is true, but there is no refund row"]);
    assert_eq!((job.phase, job.net, moved), (Phase::Failed, 0, 40));
    assert_eq!(job.refunded_at, Some(at(NOW)), "the money moves now");
    let (found, job, moved) = repaired(&old(true, true), &[charge(), refund()]);
    assert_eq!(found, ["is_reclaimed is true, but there is no reclaim row"]);
    assert_eq!((job.phase, job.net, moved), (Phase::Delivered, -40, -40));
    let (_, job, moved) = repaired(&old(true, true), &[charge(), reclaim()]);
    assert_eq!((job.net, moved, job.refunded_at), (-40, 40, Some(at(32))), "not after the entry behind it");
}

#[test]
fn a_row_without_its_flag_sets_the_flag_and_moves_nothing() {
    let (found, job, moved) = repaired(&old(false, false), &[charge(), refund()]);
    assert_eq!(found, ["there is a refund row, but is_refunded is not true"]);
    assert_eq!((job.is_refunded, job.phase, moved), (true, Phase::Failed, 0));
    let (found, job, moved) = repaired(&old(true, false), &[charge(), refund(), reclaim()]);
    assert_eq!(found, ["there is a reclaim row, but is_reclaimed is not true"]);
    assert_eq!((job.is_reclaimed, job.phase, moved), (true, Phase::Delivered, 0));
}

#[test]
fn a_second_row_of_a_type_does_not_count() {
    let again = row(EntryType::Refund, 40, 31);
    let (found, job, moved) = repaired(&old(true, false), &[again, charge(), refund()]);
    assert_eq!(found, ["there are 2 refund rows"]);
    assert_eq!((job.net, job.refunded_at, moved), (0, Some(at(30)), -40), "the earlier one counts");
    let (found, _, moved) = repaired(&old(false, false), &[charge(), charge()]);
    assert_eq!((found.as_slice(), moved), (&["there are 2 charge rows".to_owned()][..], 40));
}

#[test]
fn a_reclaim_without_a_refund_does_not_count() {
    for rows in [vec![charge(), reclaim()], vec![charge()]] {
        let (found, job, moved) = repaired(&old(false, true), &rows);
        assert_eq!(found, ["it is reclaimed, but was never refunded"]);
        assert_eq!((job.phase, kinds(&job)), (Phase::Delivered, vec![EntryType::Charge]));
        assert_eq!(moved, if rows.len() == 2 { 40 } else { 0 });
    }
}

#[test]
fn the_cost_is_what_every_row_moved_and_else_the_documents() {
    let rows = [row(EntryType::Charge, -50, 0), row(EntryType::Refund, 50, 1)];
    let (found, job, moved) = repaired(&old(true, false), &rows);
    assert_eq!(found, ["the cost is 40, but every row moves 50"]);
    assert_eq!((job.cost.credits(), job.net, moved), (50, 0, 0));
    let (found, job, moved) = repaired(&old(true, false), &[charge(), row(EntryType::Refund, 35, 1)]);
    assert_eq!(found, ["the refund row moves +35, but the cost asks for +40"]);
    assert_eq!((job.net, moved), (0, 5));
    let without =
        |is_refunded| OldJob { cost: Err("the cost is missing".to_owned()), ..old(is_refunded, false) };
    let (found, job, moved) = repaired(&without(false), &[charge()]);
    assert_eq!(
        (found.as_slice(), job.cost.credits(), moved),
        (&["the cost is missing".to_owned()][..], 40, 0)
    );
    let hopeless = planned(&without(true), &[refund()]);
    assert!(matches!(hopeless, Plan::Contradiction { repair: None, .. }), "{hopeless:?}");
}

#[test]
fn rows_that_say_nothing_we_know_are_named() {
    let gift = OldRow { kind: Err("a row's type is \"gift\"".to_owned()), ..row(EntryType::Refund, 7, 1) };
    let (found, job, moved) = repaired(&old(false, false), &[charge(), gift]);
    assert_eq!((found.as_slice(), job.net, moved), (&["a row's type is \"gift\"".to_owned()][..], -40, -7));
    let odd = OldRow { amount: Err("amount is 4.5, not whole credits".to_owned()), ..refund() };
    let (found, job, _) = repaired(&old(true, false), &[charge(), odd]);
    assert_eq!(
        (found.as_slice(), job.net),
        (&["the refund row's amount is 4.5, not whole credits".to_owned()][..], 0)
    );
    let (found, job, moved) = repaired(&old(false, false), &[]);
    assert_eq!((found.as_slice(), job.net, moved), (&["there is no charge row".to_owned()][..], -40, -40));
}

#[test]
fn entries_stand_in_the_order_of_time() {
    let early = row(EntryType::Refund, 40, -5);
    let (found, job, _) = repaired(&old(true, false), &[early, charge()]);
    assert_eq!(found, ["the refund row is older than the entry in front of it"]);
    assert_eq!(job.refunded_at, Some(at(0)));
    let timeless = OldRow { created_at: None, ..refund() };
    let (found, job, _) = repaired(&old(true, false), &[charge(), timeless]);
    assert_eq!(
        (found.as_slice(), job.refunded_at),
        (&["the refund row has no time".to_owned()][..], Some(at(0)))
    );
}

#[test]
fn a_word_that_contradicts_the_flags_moves_no_money() {
    let said = |is_refunded, says| OldJob { says: Some(says), ..old(is_refunded, false) };
    let (found, job, moved) =
        repaired(&said(true, Says::Delivered("done".to_owned())), &[charge(), refund()]);
    assert_eq!(found, ["it is said to be \"done\", but was refunded and never reclaimed"]);
    assert_eq!((job.phase, moved), (Phase::Failed, 0));
    let (found, job, moved) = repaired(&said(false, Says::Failed("error".to_owned())), &[charge()]);
    assert_eq!(found, ["it is said to be \"error\", but was never refunded"]);
    assert_eq!((job.phase, moved), (Phase::Running, 0));
}

fn any_row() -> impl Strategy<Value = OldRow> {
    let kind = prop_oneof![
        4 => Just(Ok(EntryType::Charge)),
        4 => Just(Ok(EntryType::Refund)),
        4 => Just(Ok(EntryType::Reclaim)),
        1 => Just(Err("a row's type is \"gift\"".to_owned())),
    ];
    let amount = prop_oneof![
        4 => Just(Ok(40)), 4 => Just(Ok(-40)), 1 => any::<i64>().prop_map(Ok), 1 => Just(Err("amount is missing".to_owned())),
    ];
    (kind, amount, prop::option::weighted(0.9, (-10_i64..2_000).prop_map(at)))
        .prop_map(|(kind, amount, created_at)| OldRow { kind, amount, created_at })
}

fn any_old() -> impl Strategy<Value = OldJob> {
    let says = prop_oneof![
        Just(None),
        Just(Some(Says::Delivered("done".to_owned()))),
        Just(Some(Says::Failed("error".to_owned()))),
        Just(Some(Says::Waiting)),
        Just(Some(Says::Running)),
    ];
    let cost = prop_oneof![5 => Just(Some(40)), 1 => Just(Some(41)), 1 => Just(None)];
    let times = (prop::option::of(-10_i64..2_000), prop::option::of(-10_i64..2_000));
    (any::<[bool; 2]>(), says, cost, prop::option::of(any::<u32>()), times).prop_map(
        |([is_refunded, is_reclaimed], says, cost, attempts, (created, delivered))| OldJob {
            says,
            cost: cost.ok_or_else(|| "the cost is missing".to_owned()).map(|cost| Cost::new(cost).unwrap()),
            attempts,
            created_at: created.map(at),
            delivered_at: delivered.map(at),
            ..old(is_refunded, is_reclaimed)
        },
    )
}

proptest! {
    #[test]
    fn whatever_is_written_keeps_the_invariants_and_says_what_it_moves(
        old in any_old(),
        rows in prop::collection::vec(any_row(), 0..5),
    ) {
        let before: i128 = rows.iter().filter_map(|row| row.amount.as_ref().ok()).map(|n| i128::from(*n)).sum();
        match planned(&old, &rows) {
            Plan::Import(job) => {
                prop_assert_eq!(job.violations(), Vec::<String>::new());
                prop_assert_eq!(i128::from(job.net), before, "an import moves no money");
                prop_assert_eq!((job.is_refunded, job.is_reclaimed), (old.is_refunded, old.is_reclaimed));
                prop_assert_eq!(job.entries.len(), rows.len());
            }
            Plan::Contradiction { findings, repair } => {
                prop_assert!(!findings.is_empty());
                if let Some((job, moved)) = repair {
                    prop_assert_eq!(job.violations(), Vec::<String>::new());
                    prop_assert_eq!(i128::from(job.net), before + moved);
                }
            }
        }
    }

    #[test]
    fn the_order_of_rows_does_not_matter(old in any_old(), mut rows in prop::collection::vec(any_row(), 0..5)) {
        let times: std::collections::HashSet<_> = rows.iter().map(|row| row.created_at).collect();
        prop_assume!(times.len() == rows.len());
        let one = planned(&old, &rows);
        rows.reverse();
        let other = planned(&old, &rows);
        let job = |plan: Plan| match plan {
            Plan::Import(job) => Some((job, 0)),
            Plan::Contradiction { repair, .. } => repair,
        };
        prop_assert_eq!(job(one), job(other));
    }
}
