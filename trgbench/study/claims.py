"""A claim: what the study states, as a function of measured data, with a verdict on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HOLDS, FAILS, UNMEASURED = VERDICTS = ("holds", "does not hold here", "could not be measured")
SOURCE_MACHINE = "M2 Max, macOS"


class NotMeasured(Exception):
    """The data has no answer; the message says why."""


class Facts:
    """Measured data under its keys. To reach into what could not be measured raises `NotMeasured`.

    >>> Facts({"native": {"1": 2.5}, "jax": {"missing": "not installed"}})["native"][1]
    2.5
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        if "missing" in data:
            raise NotMeasured(data["missing"])
        self.data = data

    def __getitem__(self, key: object) -> Any:
        name = str(key)
        if name not in self.data:
            raise NotMeasured(f"there is no measurement of {name!r} in these results")
        found = self.data[name]
        if found is None:
            raise NotMeasured(f"{name} is not a finite number")
        return Facts(found) if isinstance(found, Mapping) else found


@dataclass(frozen=True)
class Claim:
    """A statement of the study.

    Attributes:
        about: the backend that it is about.
        source: the figure that the study gives, on its own machine.
        value: the data → what decides.
        holds: that → whether the statement holds.
        criterion: `holds` in words.
        shown: how the value is written.
        better: for native, where tenferro's answer is another and ours is meant to be better.
    """

    id: str
    about: str
    statement: str
    source: str
    value: Callable[[Facts], Any]
    holds: Callable[[Any], bool]
    criterion: str
    shown: str = "{}"
    better: str | None = None

    def judged(self, experiment: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry of the ledger, as the schema has it."""
        value, measured, verdict = None, "", UNMEASURED
        try:
            value = self.value(Facts(data))
            measured = self.shown.format(value)
            verdict = HOLDS if self.holds(value) else FAILS
            reason = f"{'met' if verdict == HOLDS else 'not met'}: {self.criterion}"
        except NotMeasured as error:
            reason = str(error)
        return {
            "id": self.id,
            "experiment": experiment,
            "about": self.about,
            "statement": self.statement,
            "source": {"figure": self.source, "machine": SOURCE_MACHINE},
            "better": self.better,
            "criterion": self.criterion,
            "value": value,
            "measured": measured,
            "verdict": verdict,
            "reason": reason,
        }


def at_most(limit: float) -> Callable[[float], bool]:
    return lambda value: value <= limit


def at_least(limit: float) -> Callable[[float], bool]:
    return lambda value: value >= limit


def equals(wanted: object) -> Callable[[Any], bool]:
    return lambda value: value == wanted


def summary(claims: Iterable[Mapping[str, Any]]) -> str:
    """Return how many claims have which verdict, in words.

    >>> summary([{"verdict": HOLDS}, {"verdict": HOLDS}, {"verdict": FAILS}])
    '3 claims: 2 hold, 1 does not hold here, 0 could not be measured'
    """
    verdicts = [claim["verdict"] for claim in claims]
    counts = [verdicts.count(verdict) for verdict in VERDICTS]
    words = (
        "holds" if counts[0] == 1 else "hold",
        "does not hold here" if counts[1] == 1 else "do not hold here",
    )
    parts = (f"{count} {word}" for count, word in zip(counts, (*words, UNMEASURED), strict=True))
    return f"{len(verdicts)} claims: {', '.join(parts)}"
