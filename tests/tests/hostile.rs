//! Hostile input, a share of it on every run: the kept corpus, and some twenty thousand random inputs, the same each time.
//! `hostile`, in `src/bin/`, goes on from there by hand. A finding prints its seed.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::alloc::System;
use std::sync::Mutex;

use recoup_tests::hostile::{Target, corpus, hunt, processes, replay_corpus};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// One test at a time, because what is allocated is counted for the process as a whole.
static ALONE: Mutex<()> = Mutex::new(());

fn attacked(target: Target, inputs: u64) {
    let _alone = ALONE.lock().unwrap();
    match replay_corpus(target).and_then(|_| hunt(target, 0..inputs, |_| {})) {
        Ok(figures) => println!("{target:?}: {figures}"),
        Err(found) => panic!("{found}"),
    }
}

#[test]
fn events_in_all_envelopes_keep_every_promise() {
    attacked(Target::Events, 8_000);
}

#[test]
fn entries_of_the_queue_keep_every_promise() {
    attacked(Target::Entries, 8_000);
}

#[test]
fn the_environment_keeps_every_promise() {
    attacked(Target::Settings, 3_000);
}

#[test]
fn every_line_of_a_hostile_log_is_accounted_for() {
    let _alone = ALONE.lock().unwrap();
    let kept: Vec<Vec<u8>> = corpus("log").into_iter().map(|(_, line)| line).collect();
    processes::replay(&kept.join(&b'\n')).unwrap();
    for seed in 0..2 {
        processes::log(seed).unwrap();
    }
}

#[test]
fn hostile_arguments_are_done_or_refused_in_one_line() {
    let _alone = ALONE.lock().unwrap();
    for seed in 0..100 {
        processes::arguments_of(seed).unwrap();
    }
}
