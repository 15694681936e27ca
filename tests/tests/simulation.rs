//! The simulation: some thousands of random lives on the embedded store, some tens on the servers, the lists that once
//! found a bug, and the proof that it finds what it is there to find.

// How much was played is what a reader of the log wants to know.
#![allow(clippy::print_stdout)]

use recoup::clock::Deadline;
use recoup_tests::simulation::flaws::Flaw;
use recoup_tests::simulation::{
    Bench, EmbeddedBench, FlawedBench, OPS, ReferenceBench, ServerBench, generate, hunt,
};

/// Plays these seeds, and shows the list and its seed where one breaks a claim.
fn play(bench: &mut dyn Bench, seeds: std::ops::Range<u64>, ops: u16) {
    match hunt(bench, seeds, ops.into(), Deadline::NONE, |_| {}) {
        Ok(figures) => println!("{}: {figures}", bench.name()),
        Err(found) => panic!("seed {}: {found}", found.seed),
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
    println!("{flaw:?}: seed {}, {found}", found.seed);
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
