"""What is asked, what a combination of backend and mode costs, and the model that joins the two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trgbench.errors import InputError, check_integer, check_threads, shown

NO_TIME_LEFT = "not measured: the time for measuring was used up"
SIZES = {"vector": ("n",), "chain": ("depth",), "trg": ("chi", "steps")}


@dataclass(frozen=True)
class Setting:
    """A problem with its sizes, the thread count, and whether every evaluation has a shape of its own."""

    problem: str
    sizes: tuple[tuple[str, int], ...]
    threads: int = 1
    changing_shape: bool = False

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes)
        shape = "changing" if self.changing_shape else "fixed"
        return f"{self.problem}({sizes}), threads={self.threads}, {shape} shape"


@dataclass(frozen=True)
class Combination:
    """A backend with one of its modes and SVD rules."""

    backend: str
    mode: str
    svd: str = "safe"

    def __str__(self) -> str:
        return f"{self.backend} {self.mode}" + (f" ({self.svd} SVD)" if self.svd != "safe" else "")


@dataclass(frozen=True)
class Costs:
    """What one combination costs in one setting, in seconds and bytes.

    Attributes:
        trace, compile, prepare: paid once, see `trgbench.backends.Built`; None where not separated.
        first: the first gradient, which `prepare` of a backend ends with.
        each: every further gradient. Of a fixed shape the steady run; of a changing one all of the above of
            another shape, in the same process.
        traced: whether the program is made before it sees a value, so that Python cannot branch on one.
        result: the gradient, where it is one number, to compare the combinations with one another.
        memory: by how much resident memory rises during one warm gradient; None if that was not reached.
        process: the peak of the whole process, library and compiler included.
        why_not: why there are no costs (one line), or None; then the seconds are NaN and
        at_least: is how long it had been at it when it was given up, else 0.
    """

    trace: float | None = None
    compile: float | None = None
    prepare: float | None = None
    first: float = math.nan
    each: float = math.nan
    traced: bool | None = None
    result: float | None = None
    memory: int | None = None
    process: int | None = None
    why_not: str | None = None
    at_least: float = 0.0

    @property
    def given_up(self) -> bool:
        """Whether more time would have given costs."""
        return self.at_least > 0 or self.why_not == NO_TIME_LEFT

    @property
    def once(self) -> float:
        """Seconds to the first gradient."""
        return sum(part or 0.0 for part in (self.trace, self.compile, self.prepare)) + self.first

    def seconds(self, evaluations: int) -> float:
        """Return the time to the N-th gradient.

        >>> Costs(trace=1.0, compile=2.0, first=0.5, each=0.25).seconds(3)
        4.0
        """
        return self.once + (evaluations - 1) * self.each

    @classmethod
    def from_json(cls, content: object) -> Costs:
        """Return what `to_json` made.

        Raises:
            ValueError: if it is something else.
        """
        if not isinstance(content, Mapping) or content.keys() != cls.__dataclass_fields__.keys():
            raise ValueError(f"costs with other fields: {shown(content)}")
        fields = dict(content)
        for name in ("first", "each"):
            fields[name] = math.nan if fields[name] is None else fields[name]
        numbers = [fields[name] for name in ("trace", "compile", "prepare", "first", "each", "at_least")]
        numbers += [fields["memory"], fields["process"]]
        if not isinstance(fields["result"], float | None):
            raise ValueError(f"costs with a result of another type: {shown(content)}")
        if not all(n is None or (type(n) in (int, float) and not n < 0) for n in numbers):
            raise ValueError(f"costs that are no numbers of at least 0: {shown(content)}")
        if not isinstance(fields["why_not"], str | None) or not isinstance(fields["traced"], bool | None):
            raise ValueError(f"costs with fields of another type: {shown(content)}")
        if fields["why_not"] is None and not math.isfinite(fields["first"] + fields["each"]):
            raise ValueError(f"costs with a time missing and no reason: {shown(content)}")
        return cls(**fields)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values, None for NaN."""
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(self).items()
        }


def break_even(ahead: Costs, behind: Costs) -> int | None:
    """Return the smallest N at which `ahead` reaches its N-th gradient before `behind` does, None if never.

    An answer of 1 means from the first gradient on; that it may fall behind again later is the other
    order's break-even.

    >>> traced, eager = Costs(compile=1.0, first=0.1, each=0.1), Costs(first=0.2, each=0.2)
    >>> break_even(traced, eager), break_even(eager, traced)
    (11, 1)
    """
    lead = behind.once - ahead.once
    if lead > 0:
        return 1
    gain = behind.each - ahead.each
    if gain <= 0:
        return None
    n = 1 + math.floor(-lead / gain)
    return n if ahead.seconds(n) < behind.seconds(n) else n + 1


def check_setting(
    problem: str, sizes: Mapping[str, object], threads: object, changing_shape: bool, memory: int
) -> Setting:
    """Return the setting, if these are the sizes of that problem and its arrays may fit into `memory` bytes.

    Raises:
        InputError: otherwise; and `trgbench.point.check_affordable` says the same of TRG.
    """
    wanted = SIZES[problem]
    flags = " and ".join(f"--{name}" for name in wanted)
    if wrong := [name for name in sizes if name not in wanted]:
        raise InputError(f"--{wrong[0]} is no size of problem {problem}; it takes {flags}")
    if missing := [name for name in wanted if name not in sizes]:
        raise InputError(f"problem {problem} wants {flags}; --{missing[0]} is missing")
    checked = {name: check_integer(name, sizes[name], minimum=2 if name == "chi" else 1) for name in wanted}
    if problem == "trg":
        from trgbench.point import check_affordable

        check_affordable(checked["chi"], checked["steps"], memory)
    elif 8 * 8 * (largest := checked[wanted[0]]) > memory:  # some eight arrays, or records, of that length
        raise InputError(
            f"{wanted[0]}={shown(largest)} cannot fit into the {memory / 2**30:.3g} GiB of memory here; "
            f"choose at most {memory // 64}"
        )
    return Setting(problem, tuple(checked.items()), check_threads(threads), changing_shape)
