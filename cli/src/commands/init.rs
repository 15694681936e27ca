//! `recoup init`: the layout, and on the servers the import of what an earlier one left.

use recoup::clock::Clock;
use recoup::ledger::mongo::{Mode, Note, Repair, Upgrade, Upgraded};
use serde::Serialize;

use super::Desk;
use crate::args::InitArgs;
use crate::output::{Output, count_of, signed};
use crate::progress::Progress;
use crate::stop::{Stop, visible};
use crate::store::Store;

/// In JSON, the last line.
#[derive(Serialize)]
struct Answer<'a> {
    initialised: bool,
    store: &'a str,
    #[serde(flatten)]
    counts: Option<Counts>,
}

#[derive(Serialize)]
struct Counts {
    dry_run: bool,
    imported: u64,
    already: u64,
    repaired: u64,
    contradictions: u64,
}

/// In JSON, one line each.
#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    SetAside { set_aside: &'a str, to: &'a str },
    Contradiction { job_id: &'a str, contradiction: &'a str, repair: Option<&'a str>, would_move: i128 },
    Repaired { job_id: &'a str, contradiction: &'a str, repaired: &'a str, moved: i128 },
}

/// `recoup init`.
pub(crate) async fn run<S: Store>(desk: Desk<'_, S>, args: &InitArgs) -> Result<(), Stop> {
    let mode = match (args.dry_run, args.repair) {
        (true, _) => Mode::DryRun,
        (false, true) => Mode::Repair,
        (false, false) => Mode::Import,
    };
    let upgrade = Upgrade { mode, max_attempts: desk.settings.retry.max_attempts };
    let progress = Progress::new(None, "jobs of an earlier layout", !desk.out.is_shown());
    let mut written = Ok(());
    let mut listen = |note: Note| {
        if written.is_ok() {
            written = print(desk.out, &progress, mode, &note);
        }
    };
    let done = desk.store.upgrade(upgrade, desk.clock.now(), &mut listen).await;
    progress.done();
    let done = done?;
    written?;
    end(desk, mode, done)
}

fn print(out: &mut Output, progress: &Progress, mode: Mode, note: &Note) -> Result<(), Stop> {
    let (line, text) = match note {
        Note::Progress(jobs) => {
            progress.at(*jobs);
            return Ok(());
        }
        Note::Validator | Note::View | Note::Indexes => return Ok(()),
        Note::SetAside { from, to } => {
            let is = if mode == Mode::DryRun { "would be" } else { "was" };
            let text = format!("the old collection {from} {is} renamed to {to}, where it is kept");
            (Line::SetAside { set_aside: from, to }, text)
        }
        Note::Contradiction { job, found, repair } => {
            let by_repair = repair.as_ref().map_or_else(
                || "only a person can resolve it".to_owned(),
                |repair| format!("--repair: {}, which moves {}", visible(&repair.done), signed(repair.moved)),
            );
            let line = Line::Contradiction {
                job_id: job,
                contradiction: found,
                repair: repair.as_ref().map(|repair| repair.done.as_str()),
                would_move: repair.as_ref().map_or(0, |repair| repair.moved),
            };
            (line, format!("job {}: {} ({by_repair})", visible(job), visible(found)))
        }
        Note::Repaired { job, found, repair: Repair { done, moved } } => {
            let text = format!(
                "job {}: {}; repaired: {}, which moved {}",
                visible(job),
                visible(found),
                visible(done),
                signed(*moved)
            );
            (Line::Repaired { job_id: job, contradiction: found, repaired: done, moved: *moved }, text)
        }
    };
    if out.is_json() { out.document(&line) } else { out.line(text) }
}

fn end<S: Store>(desk: Desk<'_, S>, mode: Mode, done: Option<Upgraded>) -> Result<(), Stop> {
    let dry_run = mode == Mode::DryRun;
    let Upgraded { imported, already, repaired, contradictions } = done.unwrap_or_default();
    if desk.out.is_json() {
        let counts = done.map(|_| Counts { dry_run, imported, already, repaired, contradictions });
        desk.out.document(&Answer { initialised: !dry_run, store: S::KIND, counts })?;
    } else if dry_run {
        desk.out.line(format!(
            "{}: nothing was written. {} would be imported, {} in this layout already.",
            desk.store.name(),
            count_of(imported, "job"),
            count_of(already, "job")
        ))?;
    } else if imported + repaired > 0 {
        desk.out.line(format!(
            "{} is ready; {} imported, {} repaired, {} in this layout already.",
            desk.store.name(),
            count_of(imported, "job"),
            count_of(repaired, "contradiction"),
            count_of(already, "job")
        ))?;
    } else if contradictions == 0 {
        desk.out.line(format!("{} is ready; no job was changed.", desk.store.name()))?;
    }
    if contradictions == 0 {
        return Ok(());
    }
    let what = count_of(contradictions, "contradiction");
    Err(Stop::Refused(match mode {
        Mode::Import | Mode::DryRun => format!(
            "{what} in the earlier layout of {}; of these jobs nothing was changed; docs/UPGRADING.md says what each \
             means, and `recoup init --repair` repairs those that can be",
            desk.store.name()
        ),
        Mode::Repair => format!(
            "{what} in the earlier layout of {} can only be resolved by a person; of these jobs nothing was changed; \
             docs/UPGRADING.md says how",
            desk.store.name()
        ),
    }))
}
