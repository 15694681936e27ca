//! A trace in words.

use recoup::job::Phase;

use crate::drain::Move;
use crate::fair::Fair;
use crate::faults::Fault;
use crate::job::Ticks;
use crate::mutation::Mutation;
use crate::scenario::Scenario;
use crate::steps::{Action, Context};
use crate::world::{FAR, Place, World, attempts_of};

/// Tells the way to a finding, a step a piece, and how it ends.
pub fn tell(scenario: Scenario, mutation: Option<Mutation>, fault: Fault, way: &[Action]) -> Vec<String> {
    let cx = Context::new(scenario, mutation);
    let mut here = World::start(&scenario);
    let mut tale: Vec<String> = Vec::new();
    let mut ticks = 0;
    for action in way {
        let next = here.after(*action, &cx).expect("the search took this step");
        if *action == Action::Tick {
            ticks += 1;
        } else {
            tale.extend(passed(&mut ticks));
            tale.push(step(&here, *action, &next));
        }
        here = next;
    }
    tale.extend(passed(&mut ticks));
    if here.fault.is_none() {
        let end = Fair::last(&here, &cx);
        tale.push(if fault == Fault::EntriesLeft {
            "undisturbed from here, the queue never empties".to_owned()
        } else if fault == Fault::LetterLost {
            "undisturbed from here, no drain pushes the dead letter".to_owned()
        } else {
            format!("undisturbed from here, the job stays {}", standing(&end))
        });
    }
    tale
}

fn passed(ticks: &mut u32) -> Option<String> {
    let told = match std::mem::take(ticks) {
        0 => return None,
        1 => "a tick".to_owned(),
        many => format!("{many} ticks"),
    };
    Some(told)
}

fn standing(world: &World) -> String {
    let open = if world.job.hand_over_is_open() { ", its hand-over open" } else { "" };
    format!("{}{open}", world.job.phase)
}

fn step(here: &World, action: Action, next: &World) -> String {
    match action {
        Action::Tick => "a tick".to_owned(),
        Action::Failed { attempt, event, retryable, queued, clock } => {
            let of =
                attempt.map_or_else(|| " of an unknown attempt".to_owned(), |k| format!(" of attempt {k}"));
            let event = event.map(|e| format!(", event e{e}")).unwrap_or_default();
            let verdict = if retryable { "" } else { ", final" };
            let waits = next.job.phase == Phase::RetryWaiting && retryable;
            format!("failure{of}{event}{verdict}{}{}", lost(waits && !queued), slow(clock))
        }
        Action::ChargedAgain => "charged again".to_owned(),
        Action::Succeeded(clock) => format!("success{}", slow(clock)),
        Action::Foreign { attempts, due } => {
            let due = if due == FAR { "far-off" } else { "due" };
            format!("another producer pushes ({attempts}), {due}")
        }
        Action::EmptyRedis => "Redis is emptied".to_owned(),
        Action::Redrive(queued) => format!("redrive{}", lost(!queued)),
        Action::Drain(drain, what) => {
            format!("{} {}", ["A", "B"][drain], drain_step(here, drain, what, next))
        }
    }
}

fn lost(is_lost: bool) -> &'static str {
    if is_lost { ", its push lost" } else { "" }
}

fn slow(clock: Ticks) -> &'static str {
    if clock < 0 { ", by a slow clock" } else { "" }
}

/// The entry, where it is not the one of the job's attempts.
fn entry(here: &World, member: usize) -> String {
    let attempts = attempts_of(member);
    if attempts == here.job.attempts { String::new() } else { format!(" ({attempts})") }
}

fn drain_step(here: &World, drain: usize, what: Move, next: &World) -> String {
    let found = matches!(next.drains[drain].place, Place::Sweeping(_));
    match what {
        Move::FailSilent(queued) => format!("counts silence as a failure{}", lost(!queued)),
        Move::Look if next.drains[drain].place == Place::SeenEmpty => "sees the list empty".to_owned(),
        Move::Look => "looks at the list".to_owned(),
        Move::Take => "takes it in".to_owned(),
        Move::SweepOverdue => if found { "sweeps: overdue" } else { "sweeps: nothing" }.to_owned(),
        Move::SweepOpen => if found { "sweeps: hand-over open" } else { "sweeps: nothing" }.to_owned(),
        Move::ParkMissing => "parks it".to_owned(),
        Move::ClaimDue => "claims what is due".to_owned(),
        Move::ClaimExpired(member) => format!("claims{} again", entry(here, member)),
        Move::Decide(member) => format!("{}{}", decided(here, drain, next), entry(here, member)),
        Move::Settle => settled(here, drain, next),
        Move::GiveBack(member) => format!("gives{} back", entry(here, member)),
        Move::LeaveUnnoted => "fails to note it".to_owned(),
        Move::Die => "dies".to_owned(),
    }
}

fn decided(here: &World, drain: usize, next: &World) -> &'static str {
    match next.drains[drain].place {
        Place::Work(..) if here.job == next.job => "finds the hand-over open",
        Place::Work(..) => "starts it",
        Place::SetAside(_) if here.job == next.job => "finds the dead letter open",
        Place::SetAside(_) => "dead-letters it",
        Place::Unwanted(_) => "finds it stale",
        Place::Afresh(_) => "finds it redriven",
        Place::Idle => "dies of it",
        Place::Looked(_)
        | Place::SeenEmpty
        | Place::Sweeping(_)
        | Place::Holding
        | Place::Sent(_)
        | Place::Noted(_)
        | Place::HandedOver(_)
        | Place::LetGo(..) => "decides",
    }
}

fn settled(here: &World, drain: usize, next: &World) -> String {
    match here.drains[drain].place {
        Place::Work(member, _) => {
            let place = next.drains[drain].place;
            if next.fault == Some(Fault::NotedUnpushed) {
                "notes the hand-over first".to_owned()
            } else if matches!(place, Place::HandedOver(_) | Place::Sent(_)) {
                format!("hands{} over", entry(here, member))
            } else if matches!(place, Place::LetGo(..)) {
                "acknowledges".to_owned()
            } else {
                "hands over: refused".to_owned()
            }
        }
        Place::Sent(_) | Place::HandedOver(_) => "notes the hand-over".to_owned(),
        Place::Noted(member) | Place::Unwanted(member) => format!("acknowledges{}", entry(here, member)),
        Place::LetGo(..) => "hands over".to_owned(),
        Place::SetAside(_) => "hands the dead letter over".to_owned(),
        Place::Afresh(_) => "parks it afresh".to_owned(),
        Place::Idle | Place::Looked(_) | Place::SeenEmpty | Place::Sweeping(_) | Place::Holding => {
            "goes on".to_owned()
        }
    }
}
