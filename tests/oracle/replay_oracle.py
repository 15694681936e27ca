#!/usr/bin/env python3
"""What `recoup replay --json` must answer for an event log, worked out a second time and another way.

`recoup` keeps a state per job and applies one guarded write after the other. A check that did the same
would make the same mistakes, so nothing here has a state machine, an attempt counter or a retry queue. The
log is read once, each job's signals are lined up, and money follows from two questions per job:

    delivered?   does any success of it arrive
    refunded?    does a failure arrive before the first success, or was the first attempt silent for
                 longer than ATTEMPT_TIMEOUT before any signal (or the end of the log) came

    neither      charge                      -cost
    refunded     charge, refund                  0
    delivered    charge                      -cost
    both         charge, refund, reclaim     -cost

Which attempt failed, how often and when it was tried again do not enter: the first failure of a job that
is not delivered always refunds, later ones never move money, and the first success of a job settles it.

Silence is noticed by a drain, and drains come every `--drain-every` of log time; the contract does not say
at which second. Where that decides whether a silent job is refunded (the time runs out within `--slack` of
its first signal or of the end of the log), the job is `open`: `--compare` accepts either ledger for it,
takes the one the command made, and expects every total to follow from it.

The simpler designs see the signals of the log and nothing else; what they give away counts only jobs that
are delivered at some point in the log:

    unguarded     each failure signal refunds, nothing is taken back     failures x cost
    refund_guard  one refund a job, nothing is taken back                cost, if there was a failure
    two_flags     refunds unless refunded, also after a success; a success reclaims if refunded and not yet
                  reclaimed                                              cost, if the last word is a refund

    replay_oracle.py LOG                                 prints the answer as JSON
    replay_oracle.py LOG --compare SUMMARY.json EXPORT.jsonl
                                                         checks `replay --json` and `export`; exit 1 on a difference
"""

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from datetime import datetime, timedelta, timezone

MAX_COST = 2**53 - 1
MAX_ATTEMPT = 2**31 - 1
TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")
DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class NotAnEvent(ValueError):
    """A line that `replay` must count as rejected."""


# ---------------------------------------------------------------- reading


def parse_time(text):
    """RFC 3339 with an offset, as whole milliseconds since 1970 (what the stores keep).

    >>> parse_time("1970-01-01T01:00:00.2509+01:00")
    250
    """
    found = TIME.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise NotAnEvent(f"time {text!r}")
    day, clock, fraction, offset = found.groups()
    try:
        whole = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if offset in 'Zz' else offset}")
    except ValueError as error:
        raise NotAnEvent(f"time {text!r}") from error
    return (whole - EPOCH) // timedelta(milliseconds=1) + int(((fraction or "") + "000")[:3])


def render_time(ms):
    return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_ms(text):
    """
    >>> duration_ms("24h"), duration_ms("0s"), duration_ms("500ms")
    (86400000, 0, 500)
    """
    found = DURATION.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 500ms, 60s or 24h")
    return int(found[1]) * UNIT_MS[found[2]]


def is_id(value):
    """A name as the contract wants it: a string of 1 to 256 characters, not only blanks, no control characters.

    (Half a surrogate pair is no character either, though Python's JSON reader lets it through.)

    >>> [is_id(name) for name in ("j1", "", "  ", "a\\tb", 7, "x" * 256, "x" * 257)]
    [True, False, False, False, False, True, False]
    """
    return (isinstance(value, str) and 0 < len(value) <= 256 and value.strip() != ""
            and not any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in value))


def is_whole(value, top):
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= top


def parse_line(line):
    """One line as an event with `at` in milliseconds; NotAnEvent says why it is none."""
    try:
        event = json.loads(line.decode("utf-8") if isinstance(line, bytes) else line)
    except (ValueError, RecursionError) as error:
        raise NotAnEvent("not JSON in UTF-8") from error
    if not isinstance(event, dict):
        raise NotAnEvent("not an object")
    event = {name: value for name, value in event.items() if value is not None}
    event["at"] = parse_time(event.get("at"))
    if not is_id(event.get("job_id")):
        raise NotAnEvent("job_id")
    if "account_id" in event and not is_id(event["account_id"]):
        raise NotAnEvent("account_id")
    kind = event.get("type")
    if kind == "charge":
        if "account_id" not in event:
            raise NotAnEvent("a charge without account_id")
        if not is_whole(event.get("cost"), MAX_COST):
            raise NotAnEvent("cost")
    elif kind in ("failed", "succeeded"):
        if "attempt" in event and not is_whole(event["attempt"], MAX_ATTEMPT):
            raise NotAnEvent("attempt")
        if not isinstance(event.get("retryable", True), bool):
            raise NotAnEvent("retryable")
        if not all(isinstance(event.get(name, ""), str) for name in ("reason", "event_id")):
            raise NotAnEvent("reason or event_id")
    else:
        raise NotAnEvent("type")
    return event


class Job:
    """A charged job and what the log says about it: arrivals, as (clock, "failed" or "succeeded"), in order."""

    def __init__(self, account, cost, charged_at):
        self.account, self.cost, self.charged_at = account, cost, charged_at
        self.signals = []


class Log:
    """The log, sorted out by job; the clock is the highest `at` so far, as it never goes back."""

    def __init__(self, lines):
        self.jobs, self.rejected, self.events = {}, [], 0
        self.start = self.clock = None
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            self.events += 1
            try:
                self._take(parse_line(line))
            except NotAnEvent as why:
                self.rejected.append((number, str(why)))

    def _take(self, event):
        self.clock = event["at"] if self.clock is None else max(self.clock, event["at"])
        if self.start is None:
            self.start = self.clock
        job = self.jobs.get(event["job_id"])
        if event["type"] == "charge":
            if job is None:
                self.jobs[event["job_id"]] = Job(event["account_id"], event["cost"], self.clock)
            elif (job.account, job.cost) != (event["account_id"], event["cost"]):
                raise NotAnEvent("charge conflict")
            return
        if job is None:
            raise NotAnEvent("unknown job")
        if event.get("account_id", job.account) != job.account:
            raise NotAnEvent("the account of another job")
        job.signals.append((self.clock, event["type"]))


# ---------------------------------------------------------------- reckoning


class Verdict:
    """What one job's ledger must be, and when its entries may have been written."""

    def __init__(self, job, log, options):
        self.job, self.slack = job, options.slack
        kinds = [kind for _, kind in job.signals]
        self.failures = kinds.count("failed")
        self.delivered_at = job.signals[kinds.index("succeeded")][0] if "succeeded" in kinds else None
        # A failure after the first success moves no money; of those before it the first one does.
        self.failed_at = job.signals[0][0] if kinds[:1] == ["failed"] else None

        # Only the first attempt's silence matters for money, and only until the first signal, of whatever kind.
        self.silent_until = job.signals[0][0] if job.signals else log.clock
        self.silence_ends = self.silent_at = None
        if options.attempt_timeout:
            self.silence_ends = job.charged_at + options.attempt_timeout
            drains = (self.silence_ends - log.start) // options.drain_every + 1
            noticed = log.start + drains * options.drain_every
            self.silent_at = noticed if noticed <= self.silent_until else None

    @property
    def open(self):
        """Whether the second of a drain decides about the refund. Not where a failure refunds anyway."""
        return (self.silence_ends is not None and self.failed_at is None
                and abs(self.silent_until - self.silence_ends) <= self.slack)

    def may_be_refunded_at(self, at):
        if self.silence_ends is None:
            return at == self.failed_at
        latest = self.silence_ends + self.slack
        in_silence = self.silence_ends <= at <= min(latest, self.silent_until)
        return in_silence or (at == self.failed_at and at <= latest)

    @property
    def delivered(self):
        return self.delivered_at is not None

    @property
    def refunded(self):
        return self.failed_at is not None or self.silent_at is not None

    def rows(self, refunded=None):
        """The ledger rows by type, as signed amounts."""
        refunded = self.refunded if refunded is None else refunded
        cost = self.job.cost
        rows = {"charge": -cost}
        if refunded:
            rows["refund"] = cost
        if refunded and self.delivered:
            rows["reclaim"] = -cost
        return rows

    def two_flags(self):
        """Credits a delivered job keeps when two flags are all there is."""
        refunded = reclaimed = False
        for _, kind in self.job.signals:
            if kind == "failed":
                refunded = True
            elif refunded:
                reclaimed = True
        return self.job.cost if refunded and not reclaimed else 0


class Answer:
    """Everything the summary has to say, from the verdicts and, for open jobs, from what was chosen."""

    def __init__(self, log, options):
        self.log = log
        self.verdicts = {job_id: Verdict(job, log, options) for job_id, job in log.jobs.items()}
        self.open = sorted(job_id for job_id, verdict in self.verdicts.items() if verdict.open)
        self.rows = {job_id: verdict.rows() for job_id, verdict in self.verdicts.items()}

    def as_json(self):
        credits, balances, given = Counter(), Counter(), Counter()
        for job_id, rows in self.rows.items():
            verdict = self.verdicts[job_id]
            for kind, amount in rows.items():
                credits[kind] += abs(amount)
                balances[verdict.job.account] += amount
            if verdict.delivered:
                given["unguarded"] += verdict.failures * verdict.job.cost
                given["refund_guard"] += verdict.job.cost if verdict.failures else 0
                given["two_flags"] += verdict.two_flags()
        charged, refunded, reclaimed = credits["charge"], credits["refund"], credits["reclaim"]
        return {
            "jobs": len(self.rows),
            "accounts": len(balances),
            "balances": dict(sorted(balances.items())),
            "credits": {"charged": charged, "refunded": refunded, "reclaimed": reclaimed,
                        "balance": refunded - charged - reclaimed},
            "given_away": {"unguarded": given["unguarded"], "refund_guard": given["refund_guard"],
                           "two_flags": given["two_flags"], "recoup": 0},
        }


# ---------------------------------------------------------------- comparing


def read_export(lines):
    """The export by job, each job's rows in the order in which they stand; and what is wrong with single rows."""
    by_job, problems, seen = defaultdict(list), [], set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            job_id, kind, amount = row["job_id"], row["type"], row["amount"]
            if not is_whole(abs(amount), MAX_COST):
                raise ValueError(f"amount {amount!r}")
            by_job[job_id].append((kind, row["account_id"], amount, parse_time(row["created_at"])))
        except (ValueError, KeyError, TypeError) as error:
            problems.append(f"export line {number}: not a ledger row ({type(error).__name__}: {error})")
            continue
        if row.get("_id") != f"{job_id}:{kind}":
            problems.append(f"export line {number}: _id {row.get('_id')!r}, expected {job_id + ':' + kind!r}")
        if (job_id, kind) in seen:
            problems.append(f"export line {number}: {kind} of {job_id} a second time")
        seen.add((job_id, kind))
    return by_job, problems


def compare_job(job_id, verdict, rows, found):
    """Differences between the rows one job must have and those it has."""
    if [kind for kind, *_ in found] != list(rows):
        yield f"{job_id}: rows {[kind for kind, *_ in found]}, expected {list(rows)}"
        return
    previous = None
    for kind, account, amount, at in found:
        what = f"{job_id}:{kind}"
        if account != verdict.job.account:
            yield f"{what}: account {account!r}, expected {verdict.job.account!r}"
        if amount != rows[kind]:
            yield f"{what}: amount {amount!r}, expected {rows[kind]}"
        if previous is not None and at < previous:
            yield f"{what}: created_at {render_time(at)} before the entry in front of it"
        previous = at
        if kind == "refund":
            if not verdict.may_be_refunded_at(at):
                failed = "none" if verdict.failed_at is None else render_time(verdict.failed_at)
                silent = "none" if verdict.silence_ends is None else render_time(verdict.silence_ends)
                yield f"{what}: created_at {render_time(at)}; first failure {failed}, silence ends {silent}"
        else:
            expected = verdict.job.charged_at if kind == "charge" else verdict.delivered_at
            if at != expected:
                yield f"{what}: created_at {render_time(at)}, expected {render_time(expected)}"


def differences(answer, summary, export_lines):
    """Every way in which the command's answer is not the one worked out here. Settles open jobs first."""
    found, problems = read_export(export_lines)
    yield from problems
    for job_id in answer.open:
        has_refund = any(kind == "refund" for kind, *_ in found.get(job_id, []))
        answer.rows[job_id] = answer.verdicts[job_id].rows(refunded=has_refund)
    for job_id, rows in answer.rows.items():
        yield from compare_job(job_id, answer.verdicts[job_id], rows, found.get(job_id, []))
    for job_id in sorted(set(found) - set(answer.rows)):
        yield f"{job_id}: in the export, but never charged in the log"

    expected = answer.as_json()
    balances = Counter()
    for rows in found.values():
        for _, account, amount, _ in rows:
            balances[account] += amount
    for account in sorted(set(balances) | set(expected["balances"])):
        if balances.get(account) != expected["balances"].get(account):
            yield (f"balance of {account}: {balances.get(account)} in the export, "
                   f"expected {expected['balances'].get(account)}")

    for key in ("jobs", "accounts"):
        if summary.get(key) != expected[key]:
            yield f"summary {key}: {summary.get(key)!r}, expected {expected[key]}"
    if summary.get("events") != answer.log.events:
        yield f"summary events: {summary.get('events')!r}, expected {answer.log.events}"
    for part in ("credits", "given_away"):
        for key, value in expected[part].items():
            got = (summary.get(part) or {}).get(key)
            if got != value:
                yield f"summary {part}.{key}: {got!r}, expected {value}"
    outcomes = summary.get("outcomes") or {}
    if outcomes.get("rejected", 0) != len(answer.log.rejected):
        yield f"summary outcomes.rejected: {outcomes.get('rejected', 0)!r}, expected {len(answer.log.rejected)}"
    if sum(outcomes.values()) != answer.log.events:
        yield f"summary outcomes: {sum(outcomes.values())} in all, expected one an event, {answer.log.events}"


# ---------------------------------------------------------------- command


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--attempt-timeout", type=duration_ms, default="24h", help="as ATTEMPT_TIMEOUT (default 24h)")
    parser.add_argument("--drain-every", type=duration_ms, default="60s", help="as of `replay` (default 60s)")
    parser.add_argument("--slack", type=duration_ms, default="120s",
                        help="how near an end of silence must be to be open (default 120s: two drains)")
    parser.add_argument("--compare", nargs=2, metavar=("SUMMARY.json", "EXPORT.jsonl"))
    options = parser.parse_args(arguments)
    if not options.drain_every:
        parser.error("--drain-every must be more than nothing")

    with open(options.log, "rb") as lines:
        log = Log(lines)
    for number, why in log.rejected:
        print(f"line {number}: rejected: {why}", file=sys.stderr)
    answer = Answer(log, options)
    if not options.compare:
        for job_id in answer.open:
            print(f"{job_id}: open, depends on the second of a drain", file=sys.stderr)
        print(json.dumps(answer.as_json(), indent=2, ensure_ascii=False))
        return 0

    summary_path, export_path = options.compare
    with open(summary_path, encoding="utf-8") as summary, open(export_path, encoding="utf-8") as export:
        found = list(differences(answer, json.load(summary), export))
    for line in found:
        print(line)
    if found:
        print(f"{len(found)} differences", file=sys.stderr)
        return 1
    print(f"equal: {log.events} events, {len(log.jobs)} jobs, every balance, row and total"
          + (f"; {len(answer.open)} open, settled by the export" if answer.open else ""), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
