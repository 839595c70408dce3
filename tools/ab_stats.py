"""ab_stats - from pairs of values to a median, a ratio with its interval, and a verdict.

The interval is a percentile bootstrap: pairs, not single values, are drawn with replacement, as many
as there are, RESAMPLES times; of each drawing the ratio of the two medians is taken; the interval is
what lies between the 2.5th and the 97.5th percentile. The generator is seeded by the seed and the
figure's name, so the same values give the same interval.
"""
import math
import random
import statistics

RESAMPLES = 10000
# The smallest number of pairs whose all pointing one way has a chance below 5 % if there is no
# difference (two-sided sign test: 2 / 2^6 = 3 %).
ENOUGH = 6
# A difference that is certain but smaller is no difference to anybody.
SMALL = 0.01

WORDS = {"speed": ("faster", "slower"), "use": ("less", "more")}


def ratio(tcp, rail, better):
    """Above 1 the rail is better, whichever way that is."""
    a, b = (tcp, rail) if better == "higher" else (rail, tcp)
    value = b / a if a > 0 and b > 0 else 0
    # Very large and very small ones have one that no float holds.
    return value if 0 < value < math.inf else None


def percentile(ordered, part):
    """With linear interpolation between neighbours."""
    at = (len(ordered) - 1) * part
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def interval(tcp, rail, better, seed):
    if len(tcp) < 2:
        return None
    generator = random.Random(seed)
    n = len(tcp)
    ratios = []
    for _ in range(RESAMPLES):
        drawn = generator.choices(range(n), k=n)
        value = ratio(statistics.median([tcp[i] for i in drawn]),
                      statistics.median([rail[i] for i in drawn]), better)
        if value is None:
            return None
        ratios.append(value)
    ratios.sort()
    return percentile(ratios, 0.025), percentile(ratios, 0.975)


def verdict(pairs, bounds, kind="speed"):
    """bounds is what interval() gave. The words are the rail's."""
    if pairs < ENOUGH:
        return "too few pairs"
    if bounds is None:
        return "not comparable"
    low, high = bounds
    better, worse = WORDS[kind]
    if low > 1 and high > 1 + SMALL:
        return better
    if high < 1 and low < 1 / (1 + SMALL):
        return worse
    return "no difference"


def compare(metric, tcp, rail, seed):
    """metric is an ab_metrics.Metric; its value is not looked at. Value i of tcp and of rail are a pair."""
    bounds = interval(tcp, rail, metric.better, f"{seed}/{metric.name}")
    return {"name": metric.name, "unit": metric.unit, "better": metric.better, "kind": metric.kind,
            "tcp": tcp, "rail": rail, "median_tcp": statistics.median(tcp),
            "median_rail": statistics.median(rail),
            "ratio": ratio(statistics.median(tcp), statistics.median(rail), metric.better),
            "interval": bounds, "verdict": verdict(len(tcp), bounds, metric.kind)}
