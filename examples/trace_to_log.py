#!/usr/bin/env python3
"""Turns a CSV of requests into an event log for `recoup replay`.

Most platforms keep a table of requests (when, who, how long, how it ended), and hardly any keep the
signals that were sent about them. What refund handling gives away depends on the signals, so this puts a
worker timeout on the table and writes the signals such a platform would have sent:

    every row                       a charge, when the request was submitted
    took longer than the timeout    a failure of attempt 1, `worker timeout`, when the timeout ran out
    `succeed`                       a success, when the work was done: after its own timeout, if it was slow
    `failed`                        one failure, after `seconds` or at the timeout, whichever came first
    `pending`, `processing`         no signal at all: the worker that went silent

Queues deliver at least once, late and out of order. `--double`, `--delay` and `--shuffle` do that to the
signals, each delivery for itself; a charge always stays in front of the signals of its own job. The same
arguments and seed give the same log, byte for byte.

Columns: submitted_at (ISO 8601, UTC where it has no offset), account, status, seconds, cost (whole
credits). Any order, further columns are ignored, gzip or plain.

    python3 examples/trace_to_log.py requests.csv.gz -o requests.jsonl
    recoup replay requests.jsonl
"""

import argparse
import csv
import gzip
import json
import random
import sys
from collections import Counter
from datetime import datetime, timedelta, timezone

COLUMNS = ("submitted_at", "account", "status", "seconds", "cost")
SILENT = ("pending", "processing")
MAX_COST = 2**53 - 1
# A queue shows a message again when its visibility timeout ran out: at once to ten minutes is what one sees.
AGAIN_WITHIN = 600.0
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class BadRow(ValueError):
    """A row that cannot become an event; the reader has to mend the CSV."""


def seconds_of(text):
    """`90`, `90s`, `15m`, `6h`, `2d` as seconds."""
    unit = UNITS.get(text[-1:])
    try:
        value = float(text[:-1] if unit else text) * (unit or 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time such as 30s, 15m or 6h")
    return value


def share_of(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")
    return value


def delay_of(text):
    """`0.1/6h`: a tenth of the signals, by up to six hours."""
    share, slash, longest = text.partition("/")
    if not slash:
        raise argparse.ArgumentTypeError(f"{text!r} is not SHARE/MAX, such as 0.1/6h")
    return share_of(share), seconds_of(longest)


def parse_time(text):
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def render_time(moment):
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_rows(path):
    """The rows of the CSV as (row number, submitted, account, status, seconds, cost)."""
    if path == "-":
        source = sys.stdin
    else:
        with open(path, "rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        source = (gzip.open if zipped else open)(path, "rt", encoding="utf-8-sig", newline="")
    with source:
        rows = csv.DictReader(source)
        missing = [name for name in COLUMNS if name not in (rows.fieldnames or [])]
        if missing:
            raise BadRow(f"the CSV has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}")
        for number, row in enumerate(rows, start=1):
            try:
                submitted = parse_time(row["submitted_at"])
                status = row["status"].strip().lower()
                if status not in ("succeed", "failed") + SILENT:
                    raise ValueError(f"status {status!r} is none of succeed, failed, {', '.join(SILENT)}")
                seconds = 0.0 if status in SILENT else float(row["seconds"])
                if not 0 <= seconds < 1e9:
                    raise ValueError(f"seconds {row['seconds']!r} is not a length of time")
                cost = int(row["cost"])
                if not 1 <= cost <= MAX_COST:
                    raise ValueError(f"cost {cost} is not 1 to 2^53 - 1 whole credits")
                if not row["account"].strip():
                    raise ValueError("account is empty")
            except (ValueError, TypeError, AttributeError) as error:
                raise BadRow(f"row {number}: {error}") from error
            yield number, submitted, row["account"], status, seconds, cost


def signals_of(job_id, status, seconds, timeout):
    """What was sent about one request, as (seconds after it was submitted, event)."""
    if status in SILENT:
        return
    if seconds > timeout:
        yield timeout, {"type": "failed", "job_id": job_id, "attempt": 1, "reason": "worker timeout",
                        "event_id": f"{job_id}-timeout"}
    elif status == "failed":
        yield seconds, {"type": "failed", "job_id": job_id, "attempt": 1, "reason": "execution failed",
                        "event_id": f"{job_id}-failed"}
    if status == "succeed":
        yield seconds, {"type": "succeeded", "job_id": job_id, "attempt": 1, "event_id": f"{job_id}-done"}


def build(rows, options):
    """All deliveries in the order of arrival, and what they add up to."""
    rng = random.Random(options.seed)
    delay_share, longest_delay = options.delay
    log, facts = [], Counter()

    def arrive(submitted, after, event, kind):
        # The second and third key keep lines with the same time in the order in which they were made.
        log.append((submitted + timedelta(seconds=after), len(log), event))
        facts[kind] += 1

    for number, submitted, account, status, seconds, cost in rows:
        job_id = f"request-{number:05d}"
        arrive(submitted, 0, {"type": "charge", "job_id": job_id, "account_id": account, "cost": cost}, "charge")
        facts["credits charged"] += cost
        if status == "succeed" and seconds > options.timeout:
            facts["succeed after their timeout"] += 1
            facts["credits of those"] += cost
        facts["without any signal"] += status in SILENT
        for after, event in signals_of(job_id, status, seconds, options.timeout):
            deliveries = [after]
            if rng.random() < options.double:
                deliveries.append(after + rng.random() * AGAIN_WITHIN)
                facts["delivered again"] += 1
            for arrival in deliveries:
                if rng.random() < delay_share:
                    arrival += rng.random() * longest_delay
                arrival += rng.random() * options.shuffle
                arrive(submitted, arrival, event, event["type"])
    log.sort(key=lambda line: line[:2])
    return log, facts


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", help="the requests; `-` for standard input, not zipped")
    parser.add_argument("-o", "--output", default="-", help="the event log (default: standard output)")
    parser.add_argument("--timeout", type=seconds_of, default=30.0, help="the worker timeout (default 30s)")
    parser.add_argument("--double", type=share_of, default=0.0, metavar="SHARE",
                        help="this share of the signals is delivered again, with the same event_id")
    parser.add_argument("--delay", type=delay_of, default=(0.0, 0.0), metavar="SHARE/MAX",
                        help="this share of the deliveries is late by up to MAX, such as 0.1/6h")
    parser.add_argument("--shuffle", type=seconds_of, default=0.0, metavar="SECONDS",
                        help="every delivery is late by up to so much, so that neighbours change places")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        log, facts = build(read_rows(options.csv), options)
        target = sys.stdout if options.output == "-" else open(options.output, "w", encoding="utf-8", newline="\n")
        with target:
            for moment, _, event in log:
                line = {"at": render_time(moment), **event}
                target.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    except (BadRow, OSError) as error:
        print(f"trace_to_log: {error}", file=sys.stderr)
        return 1
    print(f"{len(log):,} events", file=sys.stderr)
    for kind, count in facts.items():
        print(f"{count:>12,} {kind}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
