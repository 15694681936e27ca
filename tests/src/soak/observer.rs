//! Looks at the ledger while everything is hurt: what was seen once must stand for ever.
//!
//! It reads what a majority holds, past the proxy and the fail points. So a server that is killed must still have,
//! when it is back, whatever was seen before; an entry that changed or went away was lost by somebody.

use std::collections::BTreeMap;
use std::sync::Arc;

use recoup::clock::{Clock, SystemClock};
use recoup::job::{Job, Phase};
use recoup::ledger::{JobOrFault, LedgerReader};
use tokio::task::JoinSet;

use super::checks::{Rule, Violation};
use super::world::{Stage, World};

/// Jobs read at once.
const PAGE: usize = 150;

/// Every job as it was seen last.
#[derive(Debug, Default)]
pub(super) struct Seen {
    jobs: BTreeMap<String, Job>,
    /// The jobs up to this one are at rest.
    at_rest_until: Option<String>,
}

impl Seen {
    /// Takes note of a job, and says what it must not have become.
    pub(super) fn note(&mut self, job: Job) -> Vec<Violation> {
        let mut found: Vec<Violation> =
            job.violations().into_iter().map(|what| about(&job, Rule::Invariant, &what)).collect();
        if let Some(before) = self.jobs.get(job.job_id.as_str()) {
            found.extend(broken_promises(before, &job));
        }
        self.jobs.insert(job.job_id.as_str().to_owned(), job);
        found
    }

    /// A job that was at rest may begin again: it is among the open ones until it is seen at rest.
    pub(super) fn is_open_again(&mut self, job_id: &str) {
        if self.at_rest_until.as_deref().is_some_and(|until| until >= job_id) {
            self.at_rest_until = self.jobs.range(..job_id.to_owned()).next_back().map(|(id, _)| id.clone());
        }
    }

    /// Every job may have begun again.
    pub(super) fn all_are_open_again(&mut self) {
        self.at_rest_until = None;
    }

    /// Jobs that were seen and are not among these.
    pub(super) fn missing_from(&self, jobs: &BTreeMap<String, Job>) -> Vec<String> {
        self.jobs.keys().filter(|id| !jobs.contains_key(*id)).cloned().collect()
    }
}

/// What must never happen to a job that was seen.
fn broken_promises(before: &Job, now: &Job) -> Vec<Violation> {
    let mut found = Vec::new();
    if !now.entries.starts_with(&before.entries) {
        let what = format!("its entries were {:?} and are {:?}", before.entries, now.entries);
        found.push(about(now, Rule::EntryChanged, &what));
    }
    if now.attempts < before.attempts {
        let what = format!("attempts went from {} to {}", before.attempts, now.attempts);
        found.push(about(now, Rule::WentBack, &what));
    }
    if before.phase == Phase::Delivered && now.phase != Phase::Delivered {
        found.push(about(now, Rule::WentBack, &format!("it was delivered and is {}", now.phase)));
    }
    if (&before.account_id, before.cost, before.created_at) != (&now.account_id, now.cost, now.created_at) {
        found.push(about(now, Rule::WentBack, "account, cost or time of charge changed"));
    }
    found
}

fn about(job: &Job, rule: Rule, what: &str) -> Violation {
    Violation::new(rule, format!("{}: {what}", job.job_id))
}

pub(super) fn start(world: &Arc<World>, parts: &mut JoinSet<()>) {
    parts.spawn(observe(Arc::clone(world)));
}

/// What the observer leaves to others of its time and the server's: three parts of four, or so.
const REST_FOR: u64 = 3;

/// By turns the jobs that are not at rest, and a page of all.
async fn observe(world: Arc<World>) {
    let mut rotating: Option<String> = None;
    while world.stage() < Stage::Over {
        let began = SystemClock.now();
        look_at_open_jobs(&world).await;
        if let Some(page) = look(&world, rotating.as_deref()).await {
            rotating = if page.len() == PAGE { page.into_iter().last().map(|(id, _)| id) } else { None };
        }
        let looked_for = SystemClock.now().as_millis().saturating_sub(began.as_millis()).unsigned_abs();
        world.pause((looked_for * REST_FOR).clamp(200, 5_000)).await;
    }
}

async fn look_at_open_jobs(world: &World) {
    // A charge that is under way may yet put a job in front of others.
    let complete_before = world.books().all_charged_before();
    let begun_after = world.seen().at_rest_until.clone();
    let mut after = begun_after.clone();
    let mut at_rest_until = begun_after.clone();
    let mut all_at_rest = true;
    let mut open = 0;
    loop {
        let Some(page) = look(world, after.as_deref()).await else { return };
        for (id, job) in &page {
            let at_rest = job.as_ref().is_ok_and(is_at_rest);
            open += usize::from(!at_rest);
            all_at_rest &= at_rest && *id < complete_before;
            if all_at_rest {
                at_rest_until = Some(id.clone());
            }
        }
        let full = page.len() == PAGE;
        after = page.into_iter().last().map(|(id, _)| id);
        if !full {
            break;
        }
    }
    let mut seen = world.seen();
    // A job that lies behind may have been opened again meanwhile; then the next look counts.
    if seen.at_rest_until == begun_after {
        seen.at_rest_until = at_rest_until;
        world.set_open_jobs(open);
    }
}

fn is_at_rest(job: &Job) -> bool {
    match job.phase {
        Phase::Delivered | Phase::DeadLettered | Phase::Failed => true,
        Phase::Running | Phase::RetryWaiting => false,
    }
}

/// Notes a page of jobs; `None` while the server is not to be reached.
async fn look(world: &World, after: Option<&str>) -> Option<Vec<(String, JobOrFault)>> {
    let page = world.ledger.jobs(None, after, PAGE).await.ok()?;
    world.tally.add("job: looked at", page.len() as u64);
    for (id, job) in &page {
        let found = match job {
            Ok(job) => world.seen().note(job.clone()),
            Err(fault) => vec![Violation::new(Rule::Invariant, format!("{id} cannot be read: {fault}"))],
        };
        world.violations().extend(found);
    }
    Some(page)
}

#[cfg(test)]
mod tests {
    use recoup::clock::Timestamp;
    use recoup::transition::{self, Charge};

    use super::*;
    use crate::ledger_suite::commands::{charge, failure_of};
    use crate::ledger_suite::{at, job_id};

    fn charged() -> Job {
        let charge: Charge = charge(&job_id("j"), 40, 5);
        transition::charged(&charge, at(0))
    }

    fn failed(now: Timestamp) -> Job {
        transition::failure(&charged(), &failure_of(1), now).after.unwrap()
    }

    fn delivered() -> Job {
        transition::success(&failed(at(1)), at(2)).after.unwrap()
    }

    fn rules(jobs: impl IntoIterator<Item = Job>) -> Vec<Rule> {
        let mut seen = Seen::default();
        jobs.into_iter().flat_map(|job| seen.note(job)).map(|violation| violation.rule).collect()
    }

    #[test]
    fn a_jobs_way_through_the_ledger_breaks_no_promise() {
        assert_eq!(rules([charged(), charged(), failed(at(1)), delivered(), delivered()]), []);
    }

    #[test]
    fn an_entry_that_is_gone_or_another_is_found() {
        assert_eq!(rules([failed(at(1)), charged()]), [Rule::EntryChanged, Rule::WentBack]);
        assert_eq!(rules([failed(at(1)), failed(at(2))]), [Rule::EntryChanged]);
    }

    #[test]
    fn a_job_that_begins_again_is_looked_at_again() {
        let mut seen = Seen::default();
        for id in ["a", "b", "c"] {
            seen.note(Job { job_id: job_id(id), ..charged() });
        }
        seen.at_rest_until = Some("b".to_owned());
        seen.is_open_again("c");
        assert_eq!(seen.at_rest_until.as_deref(), Some("b"));
        seen.is_open_again("b");
        assert_eq!(seen.at_rest_until.as_deref(), Some("a"));
        seen.is_open_again("a");
        assert_eq!(seen.at_rest_until, None);
    }

    #[test]
    fn a_delivery_that_is_taken_back_is_found() {
        let mut undone = delivered();
        undone.phase = Phase::Failed;
        assert_eq!(rules([delivered(), undone]), [Rule::Invariant, Rule::WentBack]);
    }
}
