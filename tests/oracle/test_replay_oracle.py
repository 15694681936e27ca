"""The oracle, on logs small enough to be worked out by hand. `python3 -m unittest discover tests/oracle`

An oracle that is wrong in the same way as the command agrees with it; so each case states the figures itself.
"""

import contextlib
import doctest
import io
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import replay_oracle  # noqa: E402


def at(seconds):
    return replay_oracle.render_time(1_768_435_200_000 + round(seconds * 1000))


def charge(seconds, job="j1", cost=40, account="a1"):
    return {"at": at(seconds), "type": "charge", "job_id": job, "account_id": account, "cost": cost}


def failed(seconds, job="j1", **more):
    return {"at": at(seconds), "type": "failed", "job_id": job, **more}


def succeeded(seconds, job="j1", **more):
    return {"at": at(seconds), "type": "succeeded", "job_id": job, **more}


def row(job, kind, amount, seconds, account="a1"):
    return {"_id": f"{job}:{kind}", "job_id": job, "account_id": account, "type": kind, "amount": amount,
            "created_at": at(seconds)}


HOUR, DAY = 3600, 86400


class Case(unittest.TestCase):
    def run_oracle(self, events, *arguments, summary=None, export=None):
        """(exit status, standard output, standard error)"""
        with tempfile.TemporaryDirectory() as folder:
            def write(name, text):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                return path

            def lines(items):
                return "".join((i if isinstance(i, str) else json.dumps(i)) + "\n" for i in items)

            arguments = [write("log", lines(events)), *arguments]
            if summary is not None:
                arguments += ["--compare", write("summary", json.dumps(summary)), write("export", lines(export))]
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = replay_oracle.main(arguments)
            return status, out.getvalue(), err.getvalue()

    def answer(self, events, *arguments):
        return json.loads(self.run_oracle(events, *arguments)[1])

    def expect(self, events, credits, given, *arguments):
        """`credits`: charged, refunded, reclaimed. `given`: unguarded, refund_guard, two_flags."""
        answer = self.answer(events, *arguments)
        charged, refunded, reclaimed = credits
        self.assertEqual(answer["credits"], {"charged": charged, "refunded": refunded, "reclaimed": reclaimed,
                                             "balance": -charged + refunded - reclaimed})
        self.assertEqual(answer["given_away"], dict(zip(("unguarded", "refund_guard", "two_flags", "recoup"),
                                                        (*given, 0))))
        self.assertEqual(sum(answer["balances"].values()), answer["credits"]["balance"])
        return answer


class Money(Case):
    def test_plain_success_keeps_the_charge(self):
        self.expect([charge(0), succeeded(5)], (40, 0, 0), (0, 0, 0))

    def test_job_without_an_end_stays_charged(self):
        self.expect([charge(0)], (40, 0, 0), (0, 0, 0))

    def test_failure_refunds_once_however_often_it_is_told(self):
        self.expect([charge(0), failed(30, attempt=1), failed(31, attempt=1), failed(99, attempt=2)],
                    (40, 40, 0), (0, 0, 0))

    def test_late_success_is_reclaimed(self):
        self.expect([charge(0), failed(30, attempt=1), failed(31, attempt=1), succeeded(32, attempt=1)],
                    (40, 40, 40), (80, 40, 0))

    def test_late_failure_after_success_moves_no_money(self):
        self.expect([charge(0), succeeded(29), failed(30, attempt=1)], (40, 0, 0), (40, 40, 40))

    def test_two_flags_give_no_second_refund_and_a_second_success_takes_back(self):
        self.expect([charge(0), failed(30), succeeded(32), failed(33), succeeded(34)], (40, 40, 40), (80, 40, 0))
        self.expect([charge(0), succeeded(29), failed(30), succeeded(31)], (40, 0, 0), (40, 40, 0))

    def test_accounts_are_apart(self):
        answer = self.expect([charge(0), charge(1, "j2", 7, "a2"), charge(2, "j3", 5, "a2"), failed(9, "j2"),
                              succeeded(9, "j3")], (52, 7, 0), (0, 0, 0))
        self.assertEqual(answer["balances"], {"a1": -40, "a2": -5})
        self.assertEqual((answer["jobs"], answer["accounts"]), (3, 2))


class Rejected(Case):
    def test_signals_of_unknown_jobs_and_wrong_accounts_are_ignored_everywhere(self):
        events = [failed(0), charge(1), failed(2, account_id="a2"), succeeded(3)]
        self.expect(events, (40, 0, 0), (0, 0, 0))
        self.assertIn("line 1: rejected: unknown job", self.run_oracle(events)[2])
        self.assertIn("line 3: rejected: the account", self.run_oracle(events)[2])

    def test_second_charge_is_a_duplicate_and_another_cost_a_conflict(self):
        events = [charge(0), charge(1), charge(2, cost=41)]
        self.expect(events, (40, 0, 0), (0, 0, 0))
        self.assertEqual(self.run_oracle(events)[2].count("rejected"), 1)

    def test_lines_that_are_no_events(self):
        bad = ["{", "[]", "null", '{"at":"2026-01-15","type":"charge","job_id":"j","account_id":"a","cost":1}',
               charge(0, cost=0), charge(0, cost=1.5), charge(0, cost=2**53), charge(0, cost=True), charge(0, job=""),
               charge(0, job=" "), charge(0, job="a\nb"), charge(0, job="x" * 257), charge(0, job={"$ne": 1}),
               charge(0, account=None), failed(0, attempt=0), failed(0, attempt=2**31), failed(0, attempt="1"),
               failed(0, retryable="no"), {"at": at(0), "type": "refund", "job_id": "j1"}]
        events = [charge(0), *bad, succeeded(1)]
        self.expect(events, (40, 0, 0), (0, 0, 0))
        self.assertEqual(self.run_oracle(events)[2].count("rejected"), len(bad))


class Silence(Case):
    def test_silent_job_is_refunded_once_the_log_is_a_day_older(self):
        later = charge(DAY + 300, "j2", 1)
        self.expect([charge(0), later], (41, 40, 0), (0, 0, 0))
        self.expect([charge(0), charge(DAY - 300, "j2", 1)], (41, 0, 0), (0, 0, 0))
        self.expect([charge(0), later], (41, 0, 0), (0, 0, 0), "--attempt-timeout", "0s")
        self.expect([charge(0), charge(900, "j2", 1)], (41, 40, 0), (0, 0, 0), "--attempt-timeout", "5m")

    def test_success_after_the_silence_is_reclaimed_and_is_nothing_the_simpler_designs_saw(self):
        self.expect([charge(0), succeeded(DAY + 300)], (40, 40, 40), (0, 0, 0))

    def test_any_first_signal_ends_the_silence(self):
        self.expect([charge(0), succeeded(5), charge(2 * DAY, "j2", 1)], (41, 0, 0), (0, 0, 0))

    def test_clock_never_goes_back(self):
        # The line that says an hour arrived after the one that says two days: for the clock it is two days.
        answer = self.answer([charge(0), charge(2 * DAY, "j2", 1), charge(HOUR, "j3", 2), charge(3 * DAY - HOUR, "j4", 4)])
        self.assertEqual(answer["credits"]["refunded"], 40)


class Comparing(Case):
    EVENTS = [charge(0), failed(30, attempt=1), charge(31, "j2", 7, "a2"), succeeded(32)]
    EXPORT = [row("j1", "charge", -40, 0), row("j1", "refund", 40, 30), row("j1", "reclaim", -40, 32),
              row("j2", "charge", -7, 31, "a2")]
    SUMMARY = {"events": 4, "jobs": 2, "accounts": 2,
               "outcomes": {"charged": 2, "refunded": 1, "reclaimed": 1},
               "credits": {"charged": 47, "refunded": 40, "reclaimed": 40, "balance": -47},
               "given_away": {"unguarded": 40, "refund_guard": 40, "two_flags": 0, "recoup": 0}}

    def compare(self, events=EVENTS, summary=SUMMARY, export=EXPORT):
        return self.run_oracle(events, summary=summary, export=export)

    def test_equal(self):
        status, out, err = self.compare()
        self.assertEqual((status, out), (0, ""), err)

    def test_each_difference_in_the_export_is_found(self):
        good = self.EXPORT
        for name, export in {
            "row missing": good[:2] + good[3:],
            "row twice": good + good[3:],
            "row of nobody": good + [row("j9", "charge", -1, 0)],
            "amount": [row("j1", "charge", -41, 0)] + good[1:],
            "amount as text": [row("j1", "charge", "-40", 0)] + good[1:],
            "account": [row("j1", "charge", -40, 0, "a2")] + good[1:],
            "time of the charge": [row("j1", "charge", -40, 1)] + good[1:],
            "time of the refund": good[:1] + [row("j1", "refund", 40, 31)] + good[2:],
            "order": [good[1], good[0], *good[2:]],
            "_id": [dict(good[0], _id="j1")] + good[1:],
            "no row": good + ["{}"],
        }.items():
            with self.subTest(name):
                status, out, _ = self.compare(export=export)
                self.assertEqual(status, 1)
                self.assertNotEqual(out, "")

    def test_each_difference_in_the_summary_is_found(self):
        for path in (["events"], ["jobs"], ["accounts"], ["credits", "charged"], ["credits", "refunded"],
                     ["credits", "reclaimed"], ["credits", "balance"], ["given_away", "unguarded"],
                     ["given_away", "refund_guard"], ["given_away", "two_flags"], ["given_away", "recoup"],
                     ["outcomes", "rejected"]):
            with self.subTest(".".join(path)):
                summary = json.loads(json.dumps(self.SUMMARY))
                inner = summary if len(path) == 1 else summary[path[0]]
                inner[path[-1]] = inner.get(path[-1], 0) + 1
                status, out, _ = self.compare(summary=summary)
                self.assertEqual(status, 1)
                self.assertIn(".".join(path), out)

    def test_open_job_may_be_refunded_or_not_but_the_totals_must_follow(self):
        events = [charge(0), charge(DAY + 20, "j2", 1)]
        given = dict.fromkeys(("unguarded", "refund_guard", "two_flags", "recoup"), 0)
        rows = [row("j1", "charge", -40, 0), row("j2", "charge", -1, DAY + 20)]
        silent = rows[:1] + [row("j1", "refund", 40, DAY + 10)] + rows[1:]

        def summary(refunded):
            return {"events": 2, "jobs": 2, "accounts": 1, "outcomes": {"charged": 2}, "given_away": given,
                    "credits": {"charged": 41, "refunded": refunded, "reclaimed": 0, "balance": refunded - 41}}

        self.assertEqual(self.compare(events, summary(0), rows)[0], 0)
        self.assertEqual(self.compare(events, summary(40), silent)[0], 0)
        self.assertEqual(self.compare(events, summary(0), silent)[0], 1)

    def test_refund_for_silence_must_come_when_the_time_ran_out(self):
        events = [charge(0), succeeded(2 * DAY)]
        summary = {"events": 2, "jobs": 1, "accounts": 1, "outcomes": {"charged": 1, "reclaimed": 1},
                   "credits": {"charged": 40, "refunded": 40, "reclaimed": 40, "balance": -40},
                   "given_away": dict.fromkeys(("unguarded", "refund_guard", "two_flags", "recoup"), 0)}

        def export(refund_at):
            return [row("j1", "charge", -40, 0), row("j1", "refund", 40, refund_at),
                    row("j1", "reclaim", -40, 2 * DAY)]

        self.assertEqual(self.compare(events, summary, export(DAY + 60))[0], 0)
        self.assertEqual(self.compare(events, summary, export(DAY - 60))[0], 1)
        self.assertEqual(self.compare(events, summary, export(DAY + HOUR))[0], 1)


def load_tests(_loader, tests, _pattern):
    tests.addTests(doctest.DocTestSuite(replay_oracle))
    return tests


if __name__ == "__main__":
    unittest.main()
