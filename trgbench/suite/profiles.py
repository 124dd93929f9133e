"""How much of the suite to run, and where its records and its dashboard go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Profile:
    """A part of the suite.

    Attributes:
        results: asv's records. By themselves only `full` and `history` write where history is kept.
        html: the dashboard that is made of them.
        attributes: what asv is to override in every benchmark.
        quick_only: whether to run only what each benchmark names in its attribute `quick`.
        without: a regular expression on `file.Class.method(parameters)` of what is left out of that.
        patterns: regular expressions on `file.Class.method(parameters)` that a combination must match,
            one of them, if there are any.
    """

    name: str
    results: Path
    html: Path
    attributes: Mapping[str, Any] = field(default_factory=dict)
    quick_only: bool = False
    without: str = ""
    patterns: tuple[str, ...] = ()

    def selection(self, benchmarks: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the regular expressions, one for each benchmark, that have asv run what this profile runs.

        >>> quick = PROFILES["quick"]
        >>> quick.selection([{"name": "trg.Run.time", "param_names": ["backend", "chi"],
        ...                   "params": [["'jax'", "'torch'"], ["8", "16"]], "quick": {"chi": [8]}}])
        ["^trg\\\\.Run\\\\.time\\\\((('jax'|'torch'), (8))\\\\)$"]
        """
        if not self.quick_only:
            return list(self.patterns)
        left_out = f"(?!.*(?:{self.without}))" if self.without else ""
        return [left_out + pattern(benchmark, benchmark.get("quick", {})) for benchmark in benchmarks]


def pattern(benchmark: Mapping[str, Any], parts: Any) -> str:
    """Return the regular expression of the combinations that `parts` names: parameter → values, or a list.

    >>> pattern({"name": "a.B.time", "param_names": ["n"], "params": [["8", "16"]]}, {"n": [8]})
    '^a\\\\.B\\\\.time\\\\(((8))\\\\)$'
    """
    name = re.escape(benchmark["name"])
    if not benchmark["params"]:
        return f"^{name}$"
    combinations = []
    for part in parts if isinstance(parts, list) else [parts]:
        choices = []
        for parameter, values in zip(benchmark["param_names"], benchmark["params"], strict=True):
            chosen = map(repr, part[parameter]) if parameter in part else values
            choices.append(f"({'|'.join(map(re.escape, chosen))})")
        combinations.append(", ".join(choices))
    return rf"^{name}\(({'|'.join(combinations)})\)$"


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("full", Path("results"), Path("html")),
        Profile("quick", Path(".asv/quick/results"), Path("html"), {"rounds": 1}, quick_only=True),
        # For many commits: our engine, at one size where a ratio shows the growth, and beside its peers. They
        # are the same at every commit, and so is what correctness, memory and first calls say.
        Profile(
            "history",
            Path("results"),
            Path("html"),
            {"rounds": 1},
            quick_only=True,
            without=r"^(correctness|first_call|memory)\.|^(?!ratios\.Peers\.).*'(jax|torch)'"
            r"|^ratios\.Peers\..*('torch', '.*traced|trg)"
            r"|^gradient\..* (?!1000\))\d+\)$|^depth\..* (?!100\))\d+\)$",
        ),
        Profile(
            "smoke",
            Path(".asv/smoke/results"),
            Path(".asv/smoke/html"),
            {"rounds": 1, "repeat": 2, "warmup_time": 0.0},
            patterns=(
                r"^control\.",
                r"^gradient\.Vector\.time_gradient\(.*, 'eager', 1, 1000\)",
                r"^depth\.Chain\.time_gradient\('(native|jax)', .*, 1, 10\)",
                r"^correctness\.EagerAgainstTraced\.track_bitwise_equal\('(native|jax)'\)",
            ),
        ),
    )
}
