//! The summary of a replay as people read it: what arrived, what moved, who has what, and what it would have cost to do
//! it more simply.

use recoup::job::{AccountId, EntryType, LedgerRow};
use recoup::ledger::LedgerReader;

use super::Findings;
use super::summary::{Outcomes, Summary};
use crate::output::{Grid, Output, count_of, grouped, signed};
use crate::stop::Stop;
use crate::store::{Store, argument};

/// Accounts that are shown; the rest is a `statement` away.
const TOP_ACCOUNTS: usize = 5;
/// The longest bar, in characters.
const BAR: i128 = 24;

/// Prints the summary.
pub(crate) async fn print<S: Store>(
    out: &mut Output,
    store: &S,
    summary: &Summary,
    findings: &Findings<'_>,
) -> Result<(), Stop> {
    arrived(out, summary, findings)?;
    moved(out, summary)?;
    balances(out, store, findings).await?;
    retries(out, summary)?;
    given_away(out, summary)?;
    next(out, store, summary, findings)
}

fn arrived(out: &mut Output, summary: &Summary, findings: &Findings<'_>) -> Result<(), Stop> {
    out.heading("What arrived")?;
    let span = findings.span.map_or_else(String::new, |(first, last)| format!(", {first} to {last}"));
    out.line(format!("  {}{span}", count_of(summary.events, "event")))?;
    let mut grid = Grid::bare().right(&[0]);
    for (count, outcome, meaning) in in_words(&summary.outcomes) {
        if count > 0 || outcome != "rejected" {
            grid.row([&grouped(count), outcome, meaning]);
        }
    }
    out.table(&grid)?;
    out.line("")
}

fn in_words(outcomes: &Outcomes) -> [(u64, &'static str, &'static str); 8] {
    let Outcomes {
        charged,
        refunded,
        failure_recorded,
        delivered,
        reclaimed,
        duplicate,
        already_delivered,
        rejected,
    } = *outcomes;
    [
        (charged, "charged", "a job was taken on and charged"),
        (delivered, "delivered", "a success; the charge stands"),
        (refunded, "refunded", "a job's first failure; its credits went back"),
        (reclaimed, "reclaimed", "a success after the refund, which was taken back"),
        (failure_recorded, "failure_recorded", "a further failure; no credits moved"),
        (duplicate, "duplicate", "told before; nothing happened"),
        (already_delivered, "already_delivered", "a failure after the success; nothing happened"),
        (rejected, "rejected", "no event, or about no job that was charged; left out"),
    ]
}

fn moved(out: &mut Output, summary: &Summary) -> Result<(), Stop> {
    let credits = &summary.credits;
    let share = |amount: i64| percent(amount.into(), credits.charged.into());
    out.heading(&format!(
        "What moved: credits of {} and {}",
        count_of(summary.jobs, "job"),
        count_of(summary.accounts, "account")
    ))?;
    let mut grid = Grid::bare().right(&[1, 2]);
    grid.row(["charged", &signed(-i128::from(credits.charged)), &share(credits.charged)]);
    grid.row(["refunded", &signed(credits.refunded), &share(credits.refunded)]);
    grid.row(["reclaimed", &signed(-i128::from(credits.reclaimed)), &share(credits.reclaimed)]);
    grid.row(["balance", &signed(credits.balance), ""]);
    out.table(&grid)?;
    out.line("")
}

/// What one account's entries add up to, by type.
#[derive(Default)]
struct Sums {
    charged: i128,
    refunded: i128,
    reclaimed: i128,
}

async fn balances<S: Store>(out: &mut Output, store: &S, findings: &Findings<'_>) -> Result<(), Stop> {
    let shown = findings.accounts.len().min(TOP_ACCOUNTS);
    if shown == 0 {
        return Ok(());
    }
    let all = grouped(findings.accounts.len() as i128);
    out.heading(&format!("Balances: the {shown} of {all} accounts with the largest charges"))?;
    let mut grid = Grid::new(&["account", "charged>", "refunded>", "reclaimed>", "balance>"]);
    for (account, _) in &findings.accounts[..shown] {
        let sums = sums_of(store, account).await?;
        grid.row([
            account.as_str(),
            &signed(sums.charged),
            &signed(sums.refunded),
            &signed(sums.reclaimed),
            &signed(sums.charged + sums.refunded + sums.reclaimed),
        ]);
    }
    out.table(&grid)?;
    out.line("")
}

async fn sums_of<S: Store>(store: &S, account: &AccountId) -> Result<Sums, Stop> {
    let mut sums = Sums::default();
    let mut each = |row: LedgerRow| {
        *match row.kind {
            EntryType::Charge => &mut sums.charged,
            EntryType::Refund => &mut sums.refunded,
            EntryType::Reclaim => &mut sums.reclaimed,
        } += i128::from(row.amount);
    };
    store.ledger().statement(account, None, &mut each).await?;
    Ok(sums)
}

fn retries(out: &mut Output, summary: &Summary) -> Result<(), Stop> {
    let retries = &summary.retries;
    out.heading("Retries")?;
    out.line(format!(
        "  {} dispatched, {} set aside for a person, {} still waiting",
        grouped(retries.dispatched),
        count_of(retries.dead_lettered, "job"),
        grouped(retries.waiting)
    ))?;
    out.line("")
}

fn given_away(out: &mut Output, summary: &Summary) -> Result<(), Stop> {
    let given = &summary.given_away;
    let designs = [
        ("each failure signal refunds again", given.simpler.unguarded),
        ("one refund a job, nothing taken back", given.simpler.refund_guard),
        ("two flags, blind to what was delivered", given.simpler.two_flags),
        ("recoup, by the ledger above", i128::from(given.recoup)),
    ];
    let most = designs.iter().map(|(_, credits)| *credits).max().unwrap_or(0);
    out.heading("Given away: credits that delivered jobs did not pay for, and their share of all charged")?;
    let mut grid = Grid::bare().right(&[1, 2]);
    for (design, credits) in designs {
        let share = percent(credits, summary.credits.charged.into());
        grid.row([design, &grouped(credits), &share, &bar(credits, most)]);
    }
    out.table(&grid)?;
    out.line("")
}

fn next<S: Store>(
    out: &mut Output,
    store: &S,
    summary: &Summary,
    findings: &Findings<'_>,
) -> Result<(), Stop> {
    let mut grid = Grid::bare();
    if let Some(job) = findings.story {
        let why =
            if summary.outcomes.reclaimed > 0 { "a refund that was taken back" } else { "a job's story" };
        grid.row([store.hint(&format!("job {}", argument(job.as_str()))), why.to_owned()]);
    }
    if let Some((account, _)) = findings.accounts.first() {
        let command = store.hint(&format!("statement {}", argument(account.as_str())));
        grid.row([command, "every entry of an account".to_owned()]);
    }
    if summary.retries.dead_lettered > 0 {
        grid.row([store.hint("dead-letters"), "jobs that wait for a person's decision".to_owned()]);
    }
    grid.row([store.hint("audit"), "every rule, checked on every job".to_owned()]);
    out.heading("Next")?;
    out.table(&grid)
}

/// How long it took, in milliseconds, and what that makes a second.
pub(crate) fn speed(events: u64, took_ms: u64) -> String {
    let a_second = u128::from(events) * 1_000 / u128::from(took_ms.max(1));
    let (seconds, hundredths) = (took_ms / 1_000, took_ms % 1_000 / 10);
    let a_second = grouped(i128::try_from(a_second).unwrap_or(i128::MAX));
    format!("{} in {seconds}.{hundredths:02} s, {a_second} a second", count_of(events, "event"))
}

/// That the sums are not of this log alone.
pub(crate) fn older_jobs<S: Store>(store: &S, older: u64) -> String {
    format!(
        "note: {} holds {} that this log does not charge, and the sums include them; replay into a store of its own \
         to see this log alone",
        store.name(),
        count_of(older, "job")
    )
}

/// `part` of `whole` with one decimal, rounded half up: `28.4 %`.
fn percent(part: i128, whole: i128) -> String {
    if whole <= 0 {
        return String::new();
    }
    let tenths = part.saturating_mul(2_000).saturating_add(whole) / whole.saturating_mul(2);
    format!("{}.{} %", grouped(tenths / 10), tenths % 10)
}

/// A bar of eighths of characters; what is not nothing shows at least one.
fn bar(part: i128, whole: i128) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if part <= 0 || whole <= 0 {
        return String::new();
    }
    let eighths = (part.saturating_mul(BAR * 8) / whole).clamp(1, BAR * 8);
    let full = usize::try_from(eighths / 8).expect("a bar has at most some dozen characters");
    let rest = usize::try_from(eighths % 8).expect("a remainder of eight is below eight");
    format!("{}{}", "█".repeat(full), EIGHTHS[rest])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_to_a_tenth_of_a_percent() {
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(2, 3), "66.7 %");
        assert_eq!(percent(0, 3), "0.0 %");
        assert_eq!(percent(7_000, 100), "7,000.0 %");
        assert_eq!(percent(1, 0), "");
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(10, 10), "█".repeat(24));
        assert_eq!(bar(5, 10), "█".repeat(12));
        assert_eq!(bar(1, 1_000_000), "▏");
        assert_eq!(bar(0, 10), "");
    }

    #[test]
    fn speed_is_told_by_the_second() {
        assert_eq!(speed(5_239, 120), "5,239 events in 0.12 s, 43,658 a second");
        assert_eq!(speed(0, 0), "0 events in 0.00 s, 0 a second");
    }
}
