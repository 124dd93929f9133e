"""From measured costs to advice: what is excluded and why, the break-evens, the recommendation."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trgbench.advise.costs import Combination, Costs, Setting, break_even
from trgbench.advise.survey import consensus
from trgbench.console import duration

TIE = 1.1  # what is within a tenth of the fastest is as fast, as far as one can measure
MANY = 3  # the study: eager for "one or two evaluations", traced for many
DEEP = 100  # layers from which the study's eager backward grows out of proportion

MODEL = {
    False: "time to the N-th gradient = trace + compile + prepare + first run + (N - 1) x steady run",
    True: "time to the N-th gradient = trace + compile + prepare + first run + (N - 1) x all of these of "
    "another shape, in the same process: every evaluation is taken to have a shape not seen before",
}


@dataclass(frozen=True)
class Question:
    """What is asked: a setting, how many gradients of it, and whether the function branches on values."""

    setting: Setting
    evaluations: int
    value_branches: bool = False


@dataclass(frozen=True)
class Advice:
    """The answer.

    Attributes:
        times: seconds to the N-th gradient of what can be used, the fastest first.
        excluded: what cannot be used, and why.
        break_evens: (a, b) → the smallest N at which a is ahead of b, None if there is none.
    """

    question: Question
    costs: Mapping[Combination, Costs]
    times: Mapping[Combination, float]
    excluded: Mapping[Combination, str]
    break_evens: Mapping[tuple[Combination, Combination], int | None]

    @property
    def best(self) -> Combination | None:
        return next(iter(self.times), None)


def advise(question: Question, measured: Mapping[Combination, Costs]) -> Advice:
    """Return the advice that follows from measured costs."""
    excluded = {key: costs.why_not for key, costs in measured.items() if costs.why_not is not None}
    usable = {key: costs for key, costs in measured.items() if key not in excluded}
    excluded |= consensus(usable)
    for key, costs in measured.items():
        early = key.mode.startswith("traced") if costs.traced is None else costs.traced
        if key.svd == "builtin" and key not in excluded:
            # Its time is that of the safe rule; what it is measured for is whether it is finite.
            excluded[key] = "finite here, and no faster: the safe rule does the same work"
        elif key.svd != "builtin" and question.value_branches and early:
            excluded[key] = "cannot branch on a value: it is traced before there are values; compute both "
            excluded[key] += "branches and choose with `where`"
    usable = {key: costs for key, costs in usable.items() if key not in excluded}
    times = {key: costs.seconds(question.evaluations) for key, costs in usable.items()}
    times = dict(sorted(times.items(), key=lambda item: item[1]))
    break_evens = {(a, b): break_even(usable[a], usable[b]) for a, b in itertools.permutations(times, 2)}
    return Advice(question, measured, times, excluded, break_evens)


def chart(question: Question) -> str:
    """Return the mode that the study's decision chart names.

    Shapes and steps fixed and many evaluations: traced, else eager. A deep graph, or one that uses
    operations of several outputs again and again (TRG's SVD): in stages.

    >>> chart(Question(Setting("trg", (("chi", 16), ("steps", 20))), evaluations=500))
    'traced-staged'
    """
    setting, sizes = question.setting, dict(question.setting.sizes)
    fixed = not setting.changing_shape and not question.value_branches
    mode = "traced" if fixed and question.evaluations >= MANY else "eager"
    deep = sizes.get("depth", 0) >= DEEP or sizes.get("steps", 0) > 1
    return f"{mode}-staged" if deep else mode


def recommendation(advice: Advice) -> str:
    """Return the recommendation in one sentence."""
    question, best = advice.question, advice.best
    if best is None:
        return "Nothing can be recommended: no backend and mode can be used; see what is excluded."
    n, costs, spent = question.evaluations, advice.costs[best], advice.times[best]
    count = "1 gradient" if n == 1 else f"{n:,} gradients"
    parts = [
        f"Use {best}: {count} take {duration(spent)}, {duration(costs.once)} of it until the first"
        + (f" and {duration(costs.each)} for each further one" if n > 1 else "")
    ]
    ties = [str(key) for key, seconds in advice.times.items() if key != best and seconds <= TIE * spent]
    if ties:
        parts.append(f"as fast within a tenth: {', '.join(ties)}")
    slower = next((key for key, seconds in advice.times.items() if seconds > TIE * spent), None)
    if slower is not None:
        parts.append(f"the next, {slower}, takes {advice.times[slower] / spent:.2g} times as long")
    said = chart(question)
    if said in (best.mode, *(tie.split()[1] for tie in ties)):
        parts.append(f"the study's chart says {said} too")
    elif best.mode == "forward":
        parts.append(f"the study's chart, which knows no forward mode, says {said}")
    else:
        parts.append(f"the study's chart says {said}, but measured here it is slower")
    overtaken = [
        (number, key)
        for key in advice.times
        if (number := advice.break_evens.get((key, best))) is not None and number > n
    ]
    if overtaken:
        number, key = min(overtaken, key=lambda pair: pair[0])
        parts.append(f"from {number:,} gradients on {key} is ahead")
    # What had taken longer than all of the best when it was given up cannot be faster.
    unknown = [
        key
        for key, costs in advice.costs.items()
        if costs.given_up and advice.excluded[key] == costs.why_not and costs.at_least < spent
        if key.svd != "builtin"
    ]
    if unknown:
        names = (
            str(unknown[0]) if len(unknown) == 1 else f"{len(unknown)} combinations (see what is excluded)"
        )
        parts.append(
            f"{names} could not be measured in time, may be faster, and would be with a larger --budget"
        )
    return "; ".join(parts) + "."


def as_json(advice: Advice) -> dict[str, Any]:
    """Return the advice as plain data."""
    question = advice.question
    return {
        "question": {
            "problem": question.setting.problem,
            **dict(question.setting.sizes),
            "threads": question.setting.threads,
            "evaluations": question.evaluations,
            "changing_shape": question.setting.changing_shape,
            "value_branches": question.value_branches,
        },
        "model": MODEL[question.setting.changing_shape],
        "chart": chart(question),
        "recommended": advice.best and asdict(advice.best),
        "recommendation": recommendation(advice),
        "combinations": [
            {
                "backend": key.backend,
                "mode": key.mode,
                "svd": key.svd,
                "seconds": advice.times.get(key),
                "excluded": advice.excluded.get(key),
                **{
                    name: value
                    for name, value in costs.to_json().items()
                    if name not in ("why_not", "at_least", "result")
                },
            }
            for key, costs in sorted(
                advice.costs.items(), key=lambda item: advice.times.get(item[0], float("inf"))
            )
        ],
        "break_evens": [
            {"ahead": [a.backend, a.mode], "behind": [b.backend, b.mode], "from": number}
            for (a, b), number in advice.break_evens.items()
        ],
    }
