"""What the pairs say: by what factor, how sure, and is it a regression?

Processes of the same program differ: where its memory lies and in which order its hashes iterate are drawn
anew for each, and a mean over the samples of one process knows nothing of that (Mytkowicz et al., "Producing
wrong data without doing anything obviously wrong!", ASPLOS 2009). So the unit is the pair of processes, and
the interval is Student's for the mean of the logarithms of the pairs' factors.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from trgbench.suite.gate.pairs import Pair

CONFIDENCE = 0.95  # of an interval that is shown
RISK = 0.01  # that a run in which nothing changed calls anything a regression
SCREEN = (2, 3)  # pairs for every benchmark: at the least, and as long as there is time
SCREEN_SECONDS = 9.0  # a benchmark; twelve on a machine three times overbooked then take less than 3 minutes
# Seconds of a CPU for the samples of a pair: at first, and of a suspect.
SCREEN_BUDGET, FRESH_BUDGET = 0.3, 0.6
LOOKS = (4, 7, 10)  # fresh pairs of a suspect after which it may be called worse
GLANCES = (2, *LOOKS)  # … and after which it may be dismissed
# A smaller change is none: where code and data come to lie in memory is worth as much.
SMALLEST = {"ratio": 1.03}
SMALLEST_TIME = 1.05


class Effect(NamedTuple):
    """By what factor head's value is larger than base's: the mean and its confidence interval."""

    factor: float
    low: float
    high: float

    def mirrored(self) -> Effect:
        """Return the effect with the sides swapped."""
        return Effect(1 / self.factor, 1 / self.high, 1 / self.low)


def effect(factors: Sequence[float], confidence: float = CONFIDENCE) -> Effect:
    """Return the geometric mean of at least two pairs' factors and its two-sided interval.

    >>> [round(x, 3) for x in effect([1.2, 1.25, 1.3])]
    [1.249, 1.131, 1.38]
    """
    from scipy import stats

    logs = [math.log(factor) for factor in factors]
    mean, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    half = float(stats.t.ppf((1 + confidence) / 2, len(logs) - 1)) * error
    return Effect(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def smallest(unit: str) -> float:
    """Return the smallest factor that counts as a change."""
    return SMALLEST.get(unit, SMALLEST_TIME)


def is_suspect(factors: Sequence[float], unit: str, larger_is_better: bool = False) -> bool:
    """Return whether pairs look worse, so that fresh ones must decide.

    By half of the smallest change that counts: a few pairs may miss the other half.
    """
    return _worse(effect(factors), larger_is_better).factor > math.sqrt(smallest(unit))


def is_better(factors: Sequence[float], unit: str, larger_is_better: bool = False) -> bool:
    """Return whether the first pairs are clearly better."""
    return _worse(effect(factors), larger_is_better).high < 1 / smallest(unit)


def decide(factors: Sequence[float], unit: str, suspects: int, larger_is_better: bool = False) -> str | None:
    """Return `worse`, `same` or `unclear` after as many fresh pairs of a suspect, `None` to take more.

    The risk of a false alarm is shared out among all suspects and looks (Bonferroni), and none of these pairs
    is one that made it a suspect.

    >>> decide([1.01, 0.99, 1.02, 1.0], "seconds", suspects=1)
    'same'
    >>> decide([1.25, 1.24, 1.26, 1.25], "seconds", suspects=1)
    'worse'
    """
    if len(factors) not in GLANCES:
        return None
    if not is_suspect(factors, unit, larger_is_better):
        return "same"
    if len(factors) not in LOOKS:
        return None
    confidence = 1 - 2 * RISK / (suspects * len(LOOKS))  # two-sided; only one side is a false alarm
    found = _worse(effect(factors, confidence), larger_is_better)
    if found.low > smallest(unit):
        return "worse"
    if len(factors) < LOOKS[-1]:
        return None
    return "same" if found.factor < smallest(unit) else "unclear"


def is_the_denominators(pairs: Sequence[Pair]) -> bool:
    """Return whether a ratio grew because what it is divided by became faster: no more than half is its own.

    >>> is_the_denominators([Pair(2.0, 4.0, factor=2.0, numerator=0.9)])
    True
    >>> is_the_denominators([Pair(2.0, 2.2, factor=1.1, numerator=1.1)])
    False
    """
    logs = [(math.log(pair.factor), math.log(pair.numerator)) for pair in pairs if pair.numerator]
    whole, own = (sum(column) for column in zip(*logs, strict=True)) if logs else (0.0, 0.0)
    return whole > 0 and own <= whole / 2


def moved(factors: Sequence[float], unit: str) -> bool:
    """Return whether a benchmark that nothing of ours can change did change, either way."""
    found = effect(factors, 1 - RISK)
    return found.low > smallest(unit) or found.high < 1 / smallest(unit)


def compare_exact(pairs: Sequence[Pair], tolerance: float, larger_is_better: bool) -> str:
    """Return the verdict on a value that does not scatter: any change beyond the tolerance is one.

    >>> compare_exact([Pair(1000, 999, 0.999)] * 2, tolerance=0, larger_is_better=True)
    'worse'
    """
    for values in ([pair.base for pair in pairs], [pair.head for pair in pairs]):
        if max(values) - min(values) > tolerance:
            return "unclear"  # it scatters after all
    change = pairs[0].head - pairs[0].base
    if abs(change) <= tolerance:
        return "same"
    return "better" if (change > 0) == larger_is_better else "worse"


def _worse(found: Effect, larger_is_better: bool) -> Effect:
    """Return the effect as a factor that is above 1 if head is worse."""
    return found.mirrored() if larger_is_better else found
