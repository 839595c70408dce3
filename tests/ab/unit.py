#!/usr/bin/python3
"""unit.py - what ab reads, compares and concludes. The outputs beside this file were printed by the
programs themselves (redis 7.0, iperf3 3.12, wrk 4.1, sockperf 3.7, pgbench 15)."""
import os
import random
import re
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))
import ab_html
import ab_legs
import ab_metrics
import ab_show
import ab_stats


def read(name, patterns=()):
    # As the bytes came: redis-benchmark writes carriage returns.
    with open(os.path.join(HERE, name), encoding="utf-8", newline="") as f:
        return [(m.name, m.unit, m.better, round(m.value, 3)) for m in ab_metrics.read(f.read(), patterns)]


class Outputs(unittest.TestCase):
    def test_redis_benchmark(self):
        self.assertEqual(read("redis.txt"), [
            ("SET requests", "1/s", "higher", 40816.33), ("SET p50", "ms", "lower", 0.071),
            ("SET p99", "ms", "lower", 0.255),
            ("GET requests", "1/s", "higher", 37735.85), ("GET p50", "ms", "lower", 0.087),
            ("GET p99", "ms", "lower", 0.183)])

    def test_redis_benchmark_csv(self):
        self.assertEqual(read("redis.csv"), [
            ("SET requests", "1/s", "higher", 36363.64), ("SET p50", "ms", "lower", 0.087),
            ("SET p99", "ms", "lower", 0.183),
            ("GET requests", "1/s", "higher", 35714.29), ("GET p50", "ms", "lower", 0.087),
            ("GET p99", "ms", "lower", 0.175)])

    def test_redis_benchmark_quiet(self):
        self.assertEqual(read("redis-q.txt"), [
            ("SET requests", "1/s", "higher", 31250.0), ("SET p50", "ms", "lower", 0.087),
            ("GET requests", "1/s", "higher", 38461.54), ("GET p50", "ms", "lower", 0.087)])

    def test_iperf3(self):
        # What has arrived, not what was sent.
        self.assertEqual(read("iperf3.json"), [("throughput", "MB/s", "higher", 1951.291)])
        self.assertEqual(read("iperf3.txt"), [])

    def test_sockperf(self):
        self.assertEqual(read("sockperf.txt"), [("one way p50", "us", "lower", 6.704),
                                                ("one way p99", "us", "lower", 13.319)])
        self.assertEqual(read("sockperf-rtt.txt"), [("round trip p50", "us", "lower", 16.985),
                                                    ("round trip p99", "us", "lower", 62.502)])
        self.assertEqual(read("sockperf-throughput.txt"), [("messages", "1/s", "higher", 561293.0)])

    def test_wrk(self):
        self.assertEqual(read("wrk.txt"), [
            ("requests", "1/s", "higher", 1286.37), ("transfer", "MB/s", "higher", 1.919),
            ("p50", "us", "lower", 1200.0), ("p99", "us", "lower", 9810.0)])

    def test_pgbench(self):
        self.assertEqual(read("pgbench.txt"), [("transactions", "1/s", "higher", 1274.378),
                                               ("mean latency", "ms", "lower", 1.569)])

    def test_memtier(self):
        # Not in Debian 12, so written after its documentation: an old form and one with
        # percentiles.
        old = ("Type        Ops/sec     Hits/sec   Misses/sec      Latency       KB/sec\n" + "-" * 72 + "\n"
               "Sets        1000.50          ---          ---      0.25000      2000.00\n"
               "Totals      3000.25         0.00      2000.00      0.50000      4000.00\n")
        new = ("Type         Ops/sec   Misses/sec    Avg. Latency     p50 Latency     p99 Latency       KB/sec \n"
               "Totals       4000.00          ---         0.30000         0.25500         0.90300       200.00 \n")
        self.assertEqual([tuple(m)[:4] for m in ab_metrics.read(old)],
                         [("operations", "1/s", "higher", 3000.25), ("mean latency", "ms", "lower", 0.5)])
        self.assertEqual([(m.name, m.value) for m in ab_metrics.read(new)],
                         [("operations", 4000.0), ("p50", 0.255), ("p99", 0.903), ("mean latency", 0.3)])

    def test_own_pattern(self):
        self.assertEqual(read("pgbench.txt", [("lower", r"connection time = (?P<connect_ms>[0-9.]+)"),
                                              ("higher", r"processed: (\d+)")]),
                         [("connect_ms", "", "lower", 5.352), (r"processed: (\d+)", "", "higher", 1275.0)])
        for pattern in ("nothing like (that)", r"number of (clients)"):
            with self.assertRaises(ab_metrics.Unreadable):
                read("pgbench.txt", [("higher", pattern)])

    def test_a_name_again(self):
        text = "GET: 100.0 requests per second\nSET: 5 requests per second\n" + "GET: 200.0 requests per second\n" * 2
        self.assertEqual([(m.name, m.value) for m in ab_metrics.read(text)],
                         [("GET requests", 100), ("SET requests", 5), ("GET requests #2", 200), ("GET requests #3", 200)])

    def test_no_number(self):
        iperf3 = '{"end": {"sum_received": {"bits_per_second": %s}}}'
        for text, patterns in (("x nan", [("lower", r"x (\w+)")]), ("x -inf", [("lower", r"x (\S+)")]),
                               ('"test","rps"\n"GET","nan"\n', ()), (iperf3 % "Infinity", ()), (iperf3 % ("1" * 400), ())):
            with self.assertRaises(ab_metrics.Unreadable, msg=text):
                ab_metrics.read(text, patterns)

    def test_other_output(self):
        for text in ("", "hello\n", "{", '{"sum_received": 1}', '"test","rps"\n', "Totals 1 2\n", "\x00\xff"):
            self.assertEqual(ab_metrics.read(text), [], text)


class Bootstrap(unittest.TestCase):
    def test_all_alike(self):
        # Whatever is drawn, the ratio is the same.
        self.assertEqual(ab_stats.interval([10.0] * 8, [20.0] * 8, "higher", "s"), (2, 2))
        self.assertEqual(ab_stats.interval([10.0] * 8, [20.0] * 8, "lower", "s"), (0.5, 0.5))

    def test_two_pairs_by_hand(self):
        # Drawings of two of two: both the first (1 in 4), both the second (1 in 4), one each.
        low, high = ab_stats.interval([1.0, 1.0], [2.0, 4.0], "higher", "s")
        self.assertEqual((low, high), (2, 4))

    def test_exact_distribution(self):
        # Three pairs have 27 drawings, of equal weight; the median of 1, 2, 6 is 1 in 7 of them and
        # 6 in 7: both tails are heavier than 2.5 %.
        self.assertEqual(ab_stats.interval([1.0] * 3, [1.0, 2.0, 6.0], "higher", "s"), (1, 6))
        # The median of five draws out of 1..5 is 1 in 181 of 3125 drawings (5.8 %), 5 in as many.
        self.assertEqual(ab_stats.interval([1.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0], "higher", "s"), (1, 5))
        # Out of 1..9 it is 1 in 0.15 % of the drawings, and 2 or less in 3.0 %: the interval ends
        # at 2.
        self.assertEqual(ab_stats.interval([1.0] * 9, [float(i) for i in range(1, 10)], "higher", "s"), (2, 8))

    def test_pairs_stay_together(self):
        # Both legs of a pair suffer from the same neighbour. Drawn one by one they would give 0.1
        # to 10.
        noise = [1.0, 10.0, 1.0, 10.0, 1.0, 10.0, 1.0, 10.0]
        self.assertEqual(ab_stats.interval(noise, [2 * v for v in noise], "higher", "s"), (2, 2))

    def test_seed(self):
        g = random.Random(5)
        a, b = ([g.gauss(100, 10) for _ in range(12)] for _ in range(2))
        first = ab_stats.interval(a, b, "higher", "1/x")
        self.assertEqual(first, ab_stats.interval(a, b, "higher", "1/x"))
        self.assertNotEqual(first, ab_stats.interval(a, b, "higher", "2/x"))

    def test_covers(self):
        # Of 200 experiments without a difference some 5 % may miss 1; medians of few pairs miss
        # more often.
        g = random.Random(7)
        missed = 0
        before, ab_stats.RESAMPLES = ab_stats.RESAMPLES, 300
        try:
            for i in range(200):
                a, b = ([g.gauss(100, 5) for _ in range(10)] for _ in range(2))
                low, high = ab_stats.interval(a, b, "higher", i)
                missed += not low <= 1 <= high
        finally:
            ab_stats.RESAMPLES = before
        self.assertLess(missed, 24)

    def test_nothing_to_divide(self):
        self.assertIsNone(ab_stats.ratio(0, 1, "higher"))
        self.assertIsNone(ab_stats.ratio(1e-300, 1e300, "higher"))
        self.assertIsNone(ab_stats.ratio(1e300, 1e-300, "higher"))
        self.assertIsNone(ab_stats.interval([0.0] * 6, [1.0] * 6, "higher", "s"))
        self.assertIsNone(ab_stats.interval([1.0], [1.0], "higher", "s"))


class Verdicts(unittest.TestCase):
    def test_words(self):
        for bounds, kind, word in (
                ((1.2, 1.5), "speed", "faster"), ((0.5, 0.8), "speed", "slower"),
                ((0.9, 1.1), "speed", "no difference"), ((1.0, 1.5), "speed", "no difference"),
                ((0.7, 1.0), "speed", "no difference"), ((1.2, 1.5), "use", "less"),
                ((0.5, 0.8), "use", "more"), ((0.2, 9.0), "use", "no difference"),
                # Certain, and too small to matter.
                ((1.002, 1.006), "speed", "no difference"), ((0.995, 0.998), "speed", "no difference"),
                ((1.004, 1.02), "speed", "faster"), (None, "speed", "not comparable")):
            self.assertEqual(ab_stats.verdict(10, bounds, kind), word, bounds)

    def test_too_few(self):
        self.assertEqual(ab_stats.verdict(5, (2.0, 3.0)), "too few pairs")
        self.assertEqual(ab_stats.verdict(6, (2.0, 3.0)), "faster")

    def test_lower_is_better(self):
        late = ab_metrics.Metric("p50", "us", "lower", 0)
        found = ab_stats.compare(late, [30.0, 31.0, 29.0, 30.0, 32.0, 30.0], [10.0] * 6, 1)
        self.assertEqual((found["median_tcp"], found["median_rail"], found["ratio"], found["verdict"]),
                         (30, 10, 3, "faster"))
        found = ab_stats.compare(late, [10.0] * 6, [30.0, 31.0, 29.0, 30.0, 32.0, 30.0], 1)
        self.assertEqual(found["verdict"], "slower")
        found = ab_stats.compare(late, [10.0, 11.0] * 4, [11.0, 10.0] * 4, 1)
        self.assertEqual(found["verdict"], "no difference")


class Shown(unittest.TestCase):
    def result(self, **more):
        metric = ab_metrics.Metric("p50 <b>", "us", "lower", 0)
        found = {"command": ["prog", "{address}:{port}", "a b"], "server": None, "server_host": None,
                 "address": "10.0.0.1", "address_tcp": "10.9.0.1", "tcp_leg": "railsock run --tcp",
                 "rail_leg": "railsock run", "settings": {}, "pairs": 6, "pairs_wanted": 6, "interrupted": False, "order": "abba", "warm_up": 1, "seed": 1,
                 "resamples": 10000, "metrics": [ab_stats.compare(metric, [3.0] * 6, [1.0, 1.1] * 3, 1)],
                 "share": {"tcp": [0.0] * 6, "rail": [99.99] * 6}, "reasons": {}, "not_shown": [], "left_out": [],
                 "warnings": [], "failures": [], "machine": {"cores": 2}}
        return {**found, **more}

    def test_text(self):
        text = ab_show.text(self.result())
        self.assertIn("TCP: railsock run --tcp -- prog 10.9.0.1:{port} 'a b'", text)
        self.assertIn("rail: railsock run -- prog 10.0.0.1:{port} 'a b'", text)
        self.assertRegex(text, r"on the rail +% +0\.0 +99\.9\n")
        self.assertNotIn("Nothing went", text)

    def test_remarks(self):
        nothing = {"tcp": [0.0], "rail": [0.0]}
        self.assertIn("because of no-peer-library: 3",
                      ab_show.text(self.result(share=nothing, reasons={"no-peer-library": 3})))
        self.assertIn("saw no TCP connection", ab_show.text(self.result(share={"tcp": [None], "rail": [None]})))
        full = ab_show.text(self.result(share={"tcp": [None], "rail": [None]}, not_shown=["/dev/shm is full"]))
        self.assertIn("What went over a rail is not known: /dev/shm is full.", full)
        self.assertNotIn("Nothing went", full)
        self.assertIn("is not known of all processes: x; y.", ab_show.text(self.result(not_shown=["x", "y"])))
        self.assertIn("Less than half", ab_show.text(self.result(share={"tcp": [0.0], "rail": [20.0]})))
        self.assertIn("it is no TCP leg", ab_show.text(self.result(share={"tcp": [1.0], "rail": [99.0]})))
        self.assertIn("Shown by some legs only, and left out: a, b.", ab_show.text(self.result(left_out=["a", "b"])))
        self.assertIn("Interrupted: of 10 pairs only these are compared.",
                      ab_show.text(self.result(interrupted=True, pairs_wanted=10)))
        self.assertNotIn("no figure that is known", full)
        wall = ab_stats.compare(ab_metrics.Metric("wall time", "s", "lower", 0), [1.0] * 6, [1.0] * 6, 1)
        self.assertIn("no figure that is known", ab_show.text(self.result(metrics=[wall])))
        self.assertIn("  pair 1, tcp: no", ab_show.text(self.result(failures=["pair 1, tcp: no"])))

    def test_numbers(self):
        for value, text in ((None, "-"), (0.0123, "0.0123"), (0.0000123, "1.23e-05"), (-0.05, "-0.05"), (0.0, "0.000"),
                            (0.1234, "0.123"), (1.234, "1.23"), (56.78, "56.8"), (1234.5, "1234"),
                            (123456, "123k"), (12345678, "12.3M")):
            self.assertEqual(ab_show.number(value), text)

    def test_html(self):
        try:
            ab_html.check()
        except ab_html.Trouble:
            self.skipTest("no gnuplot")
        page = ab_html.page(self.result())
        self.assertEqual(page.count("<svg"), 2)
        self.assertEqual(page.count("</svg>"), 2)
        ids = re.findall(r"""\bid=['"]([^'"]+)""", page)
        self.assertEqual(len(ids), len(set(ids)))
        for used in re.findall(r"""['"(]#(\w+)['")]""", page):
            self.assertTrue(used in ids or re.fullmatch("[0-9a-fA-F]{3,6}", used), used)
        self.assertIn("p50 &lt;b&gt;", page)
        self.assertNotIn("<b>", page)
        # Self-contained: nothing is loaded from anywhere.
        for word in ("src=", "href=\"http", "@import", "url(http", "<script"):
            self.assertNotIn(word, page)

    def test_html_without_gnuplot(self):
        before = os.environ["PATH"]
        os.environ["PATH"] = "/nonexistent"
        try:
            with self.assertRaisesRegex(ab_html.Trouble, "apt-get install gnuplot-nox"):
                ab_html.check()
        finally:
            os.environ["PATH"] = before


class Ends(unittest.TestCase):
    def tail(self, text):
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            return ab_legs.tail(f.name, 10)

    def test_tail(self):
        for text, tail in (("", ""), (" \n", ""), ("short\n", ": short"), ("first\nsecond one\n", ": second one"),
                           ("first\nsecond\nlast\n", ": last"), ("x" * 20, ": ... " + "x" * 10)):
            self.assertEqual(self.tail(text), tail, text)

    def test_words(self):
        self.assertEqual(ab_legs.ended(3), "ended with 3")
        self.assertEqual(ab_legs.ended(-9), "was ended by signal 9 (SIGKILL)")
        self.assertEqual(ab_legs.ended(-40), "was ended by signal 40")


class Ports(unittest.TestCase):
    def test_never_twice(self):
        ports = [ab_legs.free_port() for _ in range(20)]
        self.assertEqual(len(set(ports)), 20)


if __name__ == "__main__":
    result = unittest.TextTestRunner(verbosity=0).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
    failed = {test.id() for test, _ in result.failures + result.errors}
    skipped = dict((test.id(), why) for test, why in result.skipped)
    for suite in unittest.defaultTestLoader.loadTestsFromName("__main__"):
        for test in suite:
            name = test.id().replace("__main__.", "ab.")
            if test.id() in skipped:
                print(f"skip {name}: {skipped[test.id()]}")
            else:
                print(f"not ok {name}: see above" if test.id() in failed else f"ok {name}")
    sys.exit(bool(failed))
