//! The simulation: some thousands of random lives on the embedded store, some tens on the servers, the lists that once
//! found a bug, and the proof that it finds what it is there to find.

// How much was played is what a reader of the log wants to know.
#![allow(clippy::print_stdout)]

use recoup::clock::Deadline;
use recoup_tests::simulation::flaws::Flaw;
use recoup_tests::simulation::ops::{
    Call, InTheEnd::*, Op::*, Scenario, Scheduler::*, Setup, Step, Workplace::*, Wrong::*, step,
};
use recoup_tests::simulation::world::Figures;
use recoup_tests::simulation::{
    Bench, EmbeddedBench, FlawedBench, OPS, ReferenceBench, ServerBench, generate, hunt, regression,
};

/// Plays these seeds, and shows the list and its seed where one breaks a claim.
fn play(bench: &mut dyn Bench, seeds: std::ops::Range<u64>, ops: u16) {
    match hunt(bench, seeds, ops.into(), Deadline::NONE, |_| {}) {
        Ok(figures) => println!("{}: {figures}", bench.name()),
        Err(found) => panic!("{found}"),
    }
}

#[test]
fn random_lives_keep_every_claim_on_the_reference() {
    play(&mut ReferenceBench::default(), 1_000_000..1_004_000, OPS);
}

#[test]
fn random_lives_are_the_same_on_the_embedded_store() {
    play(&mut EmbeddedBench::default(), 0..1_000, OPS);
}

/// As many again, on the other core.
#[test]
fn more_random_lives_are_the_same_on_the_embedded_store() {
    play(&mut EmbeddedBench::default(), 1_000..2_000, OPS);
}

#[test]
fn random_lives_are_the_same_on_mongodb_and_redis() {
    play(&mut ServerBench::default(), 0..30, 24);
}

/// Plays a list on the reference and the embedded store.
fn lives(setup: Setup, steps: Vec<Step>) -> Figures {
    match regression(&Scenario { setup, steps }) {
        Ok(figures) => figures,
        Err(violation) => panic!("{violation}"),
    }
}

const PLAIN: Setup = Setup { max_attempts: 3, attempt_timeout: false, workplace: Ready, in_the_end: Silence };

/// Known and allowed: the job is set aside, and its letter is not written, because the entry that is given back looks
/// like any stale one afterwards. The job's phase is the truth.
#[test]
fn a_lost_answer_of_the_setting_aside_costs_the_letter_at_most() {
    let figures = lives(
        PLAIN,
        vec![
            step(Charge { job: 0 }),
            step(Failed { job: 0, attempt: Some(3), retryable: true, id: None }),
            step(Drain { by: A }).each(Call::Dispatch, ErrorAfter),
        ],
    );
    assert_eq!((figures.faults, figures.dead_lettered, figures.passage.dropped), (1, 0, 1));
}

/// Where the queue did not take the letter, the claim is left to run out, and whoever takes it again writes it.
#[test]
fn a_refused_letter_is_written_by_the_next() {
    for wrong in [ErrorBefore, ErrorAfter, Outage] {
        let figures = lives(
            PLAIN,
            vec![
                step(Charge { job: 0 }),
                step(Failed { job: 0, attempt: Some(3), retryable: true, id: None }),
                step(Drain { by: A }).each(Call::HandOver, wrong),
            ],
        );
        let once_more = u64::from(wrong != ErrorAfter);
        assert_eq!((figures.recovered, figures.dead_lettered), (once_more, once_more), "{wrong:?}");
    }
}

/// Whoever dies between the setting aside and the letter leaves it to the next.
#[test]
fn a_letter_whose_writer_died_is_written_by_the_next() {
    let figures = lives(
        PLAIN,
        vec![
            step(Charge { job: 0 }),
            step(Failed { job: 0, attempt: Some(3), retryable: true, id: None }),
            step(Drain { by: A }).each(Call::HandOver, Die),
        ],
    );
    assert_eq!((figures.deaths, figures.recovered, figures.dead_lettered), (1, 1, 1));
}

#[test]
fn an_entry_that_kills_five_drains_is_set_aside_by_the_sixth() {
    let mut steps = vec![
        step(Charge { job: 0 }),
        step(Charge { job: 1 }),
        step(Failed { job: 0, attempt: Some(1), retryable: true, id: None }),
    ];
    for _ in 0..6 {
        steps.push(step(Wait { ms: 60_001 }));
        steps.push(step(Drain { by: A }).each(Call::Dispatch, Die));
    }
    let figures = lives(PLAIN, steps);
    assert_eq!((figures.deaths, figures.dead_lettered, figures.passage.exhausted), (5, 1, 1));
}

#[test]
fn the_same_seed_is_the_same_life() {
    for seed in 0..100 {
        assert_eq!(generate::generate(seed, 40), generate::generate(seed, 40));
    }
    assert_ne!(generate::generate(1, 40), generate::generate(2, 40));
}

/// Lists that a flaw may need to be found; most are among the first ten.
const SEEDS: u64 = 1_000;
/// Operations that the shortest list of a flaw may have.
const SHORT: usize = 12;

fn finds(flaw: Flaw) {
    let mut bench = FlawedBench::new(flaw);
    let found = match hunt(&mut bench, 0..SEEDS, OPS.into(), Deadline::NONE, |_| {}) {
        Ok(figures) => panic!("{flaw:?} was not found: {figures}"),
        Err(found) => found,
    };
    println!("{flaw:?}: {found}");
    assert!(found.scenario.steps.len() < SHORT, "{flaw:?} is not short: {found}");
    let straight = ReferenceBench::default().play(&found.scenario);
    assert!(straight.is_ok(), "{flaw:?} is not what the list shows: {straight:?}");
}

macro_rules! every_flaw_is_found {
    ($($name:ident: $flaw:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                finds(Flaw::$flaw);
            }
        )*

        #[test]
        fn every_flaw_has_its_test() {
            assert_eq!(Flaw::ALL, [$(Flaw::$flaw),*]);
        }
    };
}

every_flaw_is_found! {
    a_refund_after_delivery_is_found: RefundsAfterDelivery,
    a_reclaim_left_out_is_found: ForgetsTheReclaim,
    an_attempt_counted_twice_is_found: CountsAnAttemptTwice,
    a_hand_over_that_is_never_noted_nor_swept_is_found: NeverNotesAndNeverSweeps,
    silence_that_nobody_hears_is_found: HearsNoSilence,
    an_acknowledgement_before_the_push_is_found: AcknowledgesFirst,
    a_sweep_that_is_off_is_found: NeverSweeps,
    a_lost_give_back_is_found: LosesWhatIsGivenBack,
    a_claim_that_is_never_taken_again_is_found: NeverTakesAgain,
    a_claim_before_its_time_is_found: ClaimsEarly,
}
