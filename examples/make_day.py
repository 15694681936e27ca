#!/usr/bin/env python3
"""Makes day.jsonl: one day of a small render and transcription platform, as an event log for `recoup replay`.

A log for learning from has to hold the cases that cost money, in about the shares in which they happen, and
nobody's customers. So the day is simulated: jobs arrive on a curve, attempts run on workers, a watcher gives
up on an attempt after 30 s while the GPU goes on with it, a queue delivers what both of them say. What is
written down is only what arrives, in the order of arrival; what "really" happened is not in the log, as it
would not be in yours.

Retries follow the default policy (2 s * 2^attempts, at most 15 min, a scheduler that runs every 60 s, five
attempts), so that no signal of an attempt comes before that attempt could have been started.

The same seed gives the same file, byte for byte: only `random()` is drawn from, the one method whose
sequence Python promises to keep.

    python3 examples/make_day.py [--seed N] [-o FILE]
"""

import argparse
import json
import os
import random
import sys
from collections import Counter
from datetime import datetime, timedelta, timezone

MIDNIGHT = datetime(2026, 1, 15, tzinfo=timezone.utc)
DAY = 86_400.0
HOUR = 3_600.0
JOBS = 2_000
# Jobs an hour, in proportion: Europe's working day, a quieter evening from across the ocean.
CURVE = (14, 9, 7, 6, 7, 12, 26, 58, 104, 138, 149, 144, 112, 127, 146, 151, 138, 112, 94, 88, 80, 64, 42, 24)

# The policy that `recoup` has by default.
WORKER_TIMEOUT = 30.0
BASE_DELAY, MAX_DELAY, DRAIN_EVERY, MAX_ATTEMPTS = 2.0, 900.0, 60.0, 5

# The GPU pool was down for an hour after lunch: most attempts that need it fail.
STORM = (14.10 * HOUR, 15.10 * HOUR)
STORM_FAILS = 0.62

# kind: share of the jobs, needs a GPU, usual seconds, share that is slow, cost in credits from such a range
KINDS = {
    "render": (0.34, True, 13.0, 0.17, (24, 240)),
    "transcribe": (0.30, False, 9.0, 0.07, (3, 60)),
    "image": (0.24, True, 6.0, 0.05, (4, 16)),
    "upscale": (0.12, True, 16.0, 0.15, (10, 80)),
}

FIRST = ("acme", "blue-door", "cedar", "delta", "ember", "foxglove", "granite", "harbor", "indigo", "juniper",
         "kestrel", "lumen", "meadow", "northside", "orchard", "pixel", "quarry", "riverbend", "saltbox", "tundra")
SECOND = ("studio", "media", "films")

BROKEN = ("input cannot be decoded", "input is truncated")
ERRORS = ("cuda out of memory", "worker lost", "storage write failed", "decoder crashed")
STORM_ERRORS = ("gpu pool unavailable", "no gpu within 20s", "node drained")


class Chance:
    """All randomness of the day, from one generator and its one promised method."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def yes(self, share):
        return self.random() < share

    def between(self, low, high):
        return low + (high - low) * self.random()

    def skewed(self, low, high, power):
        """Between low and high, nearer to low the higher the power."""
        return low + (high - low) * self.random() ** power

    def one_of(self, items):
        return items[int(self.random() * len(items))]

    def weighted(self, weights):
        """An index, as often as its weight says."""
        point = self.random() * sum(weights)
        for index, weight in enumerate(weights):
            point -= weight
            if point < 0:
                return index
        return len(weights) - 1


class Job:
    def __init__(self, job_id, kind, account, cost, submitted):
        self.job_id, self.kind, self.account, self.cost, self.submitted = job_id, kind, account, cost, submitted
        self.delivered = None  # when the first success arrived
        # How the callbacks of this job's worker name the attempt: old workers do not number it.
        self.numbered, self.with_ids = True, True


class Day:
    """What arrives. Anything that would arrive after midnight is tomorrow's."""

    def __init__(self, seed):
        self.chance = Chance(seed)
        self.arrivals = []
        self.first = None
        self.stories = Counter()

    # ------------------------------------------------------------ arrivals

    def arrive(self, when, event):
        if when < DAY:
            # The running number keeps lines with the same millisecond in the order in which they were made.
            self.arrivals.append((round(when, 3), len(self.arrivals), event))

    def charge(self, job):
        event = {"type": "charge", "job_id": job.job_id, "account_id": job.account, "cost": job.cost}
        self.arrive(job.submitted, event)
        if self.chance.yes(0.02):
            # The customer's client did not see our answer and sent the request again.
            self.stories["charges sent twice"] += 1
            self.arrive(job.submitted + self.chance.between(1, 9), event)

    def signal(self, job, when, kind, attempt, source, **more):
        """One signal; now and then the queue delivers it again, up to five times in all."""
        event = {"type": kind, "job_id": job.job_id}
        if job.numbered:
            event["attempt"] = attempt
        event.update(more)
        if job.with_ids:
            event["event_id"] = f"{job.job_id}/{attempt}/{source}"
        if kind == "succeeded":
            job.delivered = min(when, job.delivered or DAY)
        self.arrive(when, event)
        # What has neither number nor id cannot be told from news once the retry runs: it comes at once or not.
        nameless = not (job.numbered or job.with_ids)
        if self.chance.yes(0.09):
            copies = 1 + int(self.chance.skewed(0, 4, 2.5))
            self.stories[f"signals delivered {copies + 1} times"] += 1
            for _ in range(copies):
                late = self.chance.between(0.2, 2.5) if nameless else self.chance.skewed(0.5, 900, 2)
                self.arrive(when + late, event)

    # ------------------------------------------------------------ what happens to a job

    def retry_starts(self, failed, attempts):
        """A moment at which the next attempt has been dispatched: the drain after the due time, and one for good measure."""
        due = failed + min(BASE_DELAY * 2**attempts, MAX_DELAY)
        drains = int((due - self.first) // DRAIN_EVERY) + 2
        return self.first + drains * DRAIN_EVERY + self.chance.between(0.3, 3)

    def in_storm(self, job, when):
        return KINDS[job.kind][1] and STORM[0] <= when < STORM[1]

    def run(self, job, broken=None):
        """Attempts, until one delivers, a person cancels or the cap is reached. `broken`: why none can succeed."""
        self.charge(job)
        start = job.submitted + self.chance.between(0.2, 2)
        for attempt in range(1, MAX_ATTEMPTS + 1):
            failed = self.attempt(job, attempt, start, broken)
            if failed is None:
                return
            if attempt == MAX_ATTEMPTS:
                self.stories["given up on"] += 1
                return
            start = self.retry_starts(failed, attempt)
            if start >= DAY or (job.delivered is not None and job.delivered <= start):
                return  # delivered late, meanwhile: nothing is tried again

    def attempt(self, job, number, start, broken):
        """One attempt. Answers when its failure was first told, or None if there was none."""
        chance = self.chance
        _, _, usual, slow_share, _ = KINDS[job.kind]
        storm = self.in_storm(job, start)
        if broken:
            return self.fails(job, number, start, (broken,))
        if storm and chance.yes(STORM_FAILS):
            self.stories["attempts lost in the storm"] += 1
            if chance.yes(0.05):
                # A node came back with the pool and finished what everybody had given up.
                self.stories["delivered when the storm was over"] += 1
                self.signal(job, STORM[1] + chance.skewed(60, 3 * HOUR, 2), "succeeded", number, "done")
            return self.fails(job, number, start, STORM_ERRORS)
        if chance.yes(0.025):
            return self.fails(job, number, start, ERRORS)
        if not storm and chance.yes(slow_share if number == 1 else slow_share / 2):
            return self.times_out_and_delivers(job, number, start)
        seconds = usual * (0.4 + 0.5 * (chance.random() + chance.random() + chance.random()) / 1.5)
        self.signal(job, start + min(seconds, 28.0), "succeeded", number, "done")
        if chance.yes(0.035):
            # The watcher had not been told: it reports the timeout of an attempt that was done.
            self.stories["success before its own timeout"] += 1
            self.signal(job, start + WORKER_TIMEOUT + chance.skewed(0.1, 240, 3), "failed", number, "watcher",
                        reason="worker timeout")
        return None

    def fails(self, job, number, start, reasons):
        """The worker says so at once, or nothing comes of it for 30 s; or both are told, one failure twice."""
        chance = self.chance
        error = start + chance.between(0.8, 24)
        timeout = start + WORKER_TIMEOUT + chance.between(0.05, 1.5)
        told = []
        how = chance.random()
        if how < 0.72:
            told.append((error, "worker", chance.one_of(reasons)))
        if how > 0.55:
            told.append((timeout, "watcher", "worker timeout"))
        if len(told) == 2:
            self.stories["one failure told twice"] += 1
            told[0] = (timeout + chance.between(-1.2, 1.8), *told[0][1:])
        for when, source, reason in told:
            self.signal(job, when, "failed", number, source, reason=reason)
        return min(when for when, _, _ in told)

    def times_out_and_delivers(self, job, number, start):
        """The watcher gives up at 30 s. The GPU does not, and puts the result into storage."""
        chance = self.chance
        timeout = start + WORKER_TIMEOUT + chance.between(0.02, 0.9)
        kind = chance.weighted((62, 27, 11))
        late = (chance.between(1, 8), chance.skewed(20, 900, 2), chance.skewed(HOUR, 7 * HOUR, 1.6))[kind]
        self.signal(job, timeout, "failed", number, "watcher", reason="worker timeout")
        if chance.yes(0.22):
            self.stories["one failure told twice"] += 1
            self.signal(job, timeout + chance.between(0.1, 6), "failed", number, "worker",
                        reason="result callback got no answer")
        if chance.yes(0.05):
            # Tired of waiting, the customer cancels within a few seconds: before the retry can have started.
            self.cancel(job, timeout + chance.between(1, 3), number)
            if chance.yes(0.3):
                # The GPU was not stopped in time: the work is there, the customer takes it and pays for it.
                self.signal(job, timeout + late, "succeeded", number, "done")
            return None
        self.stories["delivered " + ("seconds", "minutes", "hours")[kind] + " after the timeout"] += 1
        self.signal(job, timeout + late, "succeeded", number, "done")
        return timeout

    def cancel(self, job, when, number):
        self.stories["cancelled"] += 1
        self.signal(job, when, "failed", number, "cancel", reason="cancelled by the customer", retryable=False)

    # ------------------------------------------------------------ the day

    def make(self):
        chance = self.chance
        accounts = [f"{first}-{second}" for second in SECOND for first in FIRST]
        regulars = [1 / (rank + 3) for rank in range(len(accounts))]
        kinds = list(KINDS)
        times = sorted((chance.weighted(CURVE) + chance.random()) * HOUR for _ in range(JOBS))
        self.first = times[0] = round(times[0], 3)
        numbers = Counter()
        for submitted in times:
            kind = kinds[chance.weighted([KINDS[name][0] for name in kinds])]
            numbers[kind] += 1
            low, high = KINDS[kind][4]
            job = Job(f"{kind}-{numbers[kind]:04d}", kind, accounts[chance.weighted(regulars)],
                      int(chance.skewed(low, high + 1, 1.7)), submitted)
            self.tell(job)
        self.arrivals.sort(key=lambda arrival: arrival[:2])

    def tell(self, job):
        """Which story this job has. The rare ones are drawn first, the rest runs as it may."""
        chance = self.chance
        if chance.yes(0.03):
            job.numbered, job.with_ids = False, chance.yes(0.6)
            self.stories["jobs whose attempts are not numbered"] += 1
        draw = chance.random()
        if draw < 0.012:
            self.charge(job)
            self.cancel(job, job.submitted + chance.between(3, 25), 1)
        elif draw < 0.021:
            self.run(job, broken=chance.one_of(BROKEN))
            if job.submitted < 16 * HOUR and job.kind == "render" and chance.yes(0.6):
                # A person repaired the file and rendered it by hand, hours after the platform had given up.
                self.stories["given up on, and delivered hours later"] += 1
                self.signal(job, job.submitted + chance.between(3 * HOUR, 7 * HOUR), "succeeded", 5, "by-hand")
        else:
            self.run(job)


def render_time(seconds):
    return (MIDNIGHT + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("-o", "--output", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "day.jsonl"))
    options = parser.parse_args()
    day = Day(options.seed)
    day.make()
    with open(options.output, "w", encoding="utf-8", newline="\n") as file:
        for when, _, event in day.arrivals:
            file.write(json.dumps({"at": render_time(when), **event}, separators=(",", ":")) + "\n")
    counts = Counter(event["type"] for _, _, event in day.arrivals)
    print(f"{len(day.arrivals):,} events: " + ", ".join(f"{n:,} {kind}" for kind, n in sorted(counts.items())),
          file=sys.stderr)
    for story, count in sorted(day.stories.items()):
        print(f"{count:>6,} {story}", file=sys.stderr)


if __name__ == "__main__":
    main()
