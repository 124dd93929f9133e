"""What a sweep computes: its β and χ, and the settings that two runs must share to continue one another."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any, Self

from trgbench.errors import InputError, check_integer, shown

BETA_MINIMUM, BETA_MAXIMUM = 1e-6, 50.0
POINTS_MAXIMUM = 10**7


def parse_betas(given: object) -> tuple[float, ...]:
    """Return the inverse temperatures, ascending, of a number, numbers, or a text.

    A text holds numbers and ranges FIRST:LAST:COUNT, with commas between them. A range is taken in exact
    arithmetic and rounded once, so that 0.1:1.0:91 holds 0.3 and not 0.30000000000000004.

    Raises:
        InputError: if a range is empty or reversed, or a β is no number, outside the limits, or there twice.

    >>> parse_betas("0.1:0.5:5,0.44")
    (0.1, 0.2, 0.3, 0.4, 0.44, 0.5)
    """
    items = given.split(",") if isinstance(given, str) else [given] if _single(given) else given
    if not isinstance(items, Iterable):
        raise InputError(f"beta must be numbers or a text such as 0.1:1.0:91; got {shown(given)}")
    found: list[float] = []
    for item in items:
        found += _range(item) if isinstance(item, str) and ":" in item else [float(_beta(item))]
    if not found:
        raise InputError("beta is empty; give numbers or a range such as 0.1:1.0:91")
    found.sort()
    for first, second in itertools.pairwise(found):
        if first == second:
            raise InputError(f"beta {first!r} is given twice; give each once")
    return tuple(found)


def parse_chis(given: object) -> tuple[int, ...]:
    """Return the bond dimensions, ascending, of a number, numbers, or a text with commas.

    Raises:
        InputError: if there is none, or one is no whole number of at least 2, or is there twice.

    >>> parse_chis("16,8")
    (8, 16)
    """
    items = given.split(",") if isinstance(given, str) else [given] if _single(given) else given
    if not isinstance(items, Iterable):
        raise InputError(f"chi must be whole numbers such as 8,16,24; got {shown(given)}")
    found = sorted(check_integer("chi", _whole(item), minimum=2) for item in items)
    if not found:
        raise InputError("chi is empty; give whole numbers such as 8,16,24")
    for first, second in itertools.pairwise(found):
        if first == second:
            raise InputError(f"chi {first} is given twice; give each once")
    return tuple(found)


def _single(given: object) -> bool:
    return not isinstance(given, Iterable) or getattr(given, "shape", None) == ()


def _whole(item: object) -> object:
    """Return a text as an int if it is one."""
    try:
        return int(item) if isinstance(item, str) else item
    except ValueError:
        return item


def _beta(item: object) -> Fraction:
    """Return one β exactly as it was written."""
    try:
        number = float(item)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(item, bool) or not BETA_MINIMUM <= number <= BETA_MAXIMUM:
        raise InputError(
            f"beta must be a number from {BETA_MINIMUM:g} to {BETA_MAXIMUM:g}, or a range such as "
            f"0.1:1.0:91; got {shown(item)}"
        )
    return Fraction(item.strip()) if isinstance(item, str) else Fraction(number)


def _range(text: str) -> list[float]:
    parts = text.split(":")
    if len(parts) != 3:
        raise InputError(f"a range of beta is FIRST:LAST:COUNT, such as 0.1:1.0:91; got {shown(text)}")
    first, last = _beta(parts[0]), _beta(parts[1])
    count = check_integer(f"the count of range {text}", _whole(parts[2]), minimum=2)
    if count > POINTS_MAXIMUM:
        raise InputError(f"a range may have at most {POINTS_MAXIMUM} values; got {shown(text)}")
    if first >= last:
        what = "is empty" if first == last else "is reversed"
        raise InputError(f"the range {text} {what}; its first beta must be below its last")
    return [float(first + (last - first) * i / (count - 1)) for i in range(count)]


@dataclass(frozen=True)
class Calculation:
    """What is computed at every β of one χ: all that a worker needs to prepare its programs.

    Attributes:
        order: 2 if the specific heat is computed too.
    """

    chi: int
    steps: int
    backend: str
    mode: str
    svd: str
    order: int


@dataclass(frozen=True)
class Settings:
    """A whole sweep. Its points are numbered χ by χ, and within a χ by β, both ascending."""

    beta: tuple[float, ...]
    chi: tuple[int, ...]
    steps: int
    backend: str
    mode: str
    svd: str
    order: int
    versions: str

    def __len__(self) -> int:
        return len(self.beta) * len(self.chi)

    def point(self, number: int) -> tuple[float, int]:
        """Return β and χ of a point."""
        column, row = divmod(number, len(self.beta))
        return self.beta[row], self.chi[column]

    def number(self, beta: float, chi: int) -> int:
        """Return the number of a point that is part of the sweep.

        >>> settings = Settings((0.1, 0.2, 0.3), (8, 16), 20, "native", "traced-staged", "safe", 1, "")
        >>> settings.number(0.2, 16), settings.point(4)
        (4, (0.2, 16))
        """
        return bisect.bisect_left(self.chi, chi) * len(self.beta) + bisect.bisect_left(self.beta, beta)

    def calculation(self, chi: int) -> Calculation:
        return Calculation(chi, self.steps, self.backend, self.mode, self.svd, self.order)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Return the settings that `as_json` gave; `TypeError` or `KeyError` if these are none."""
        values = {field.name: content[field.name] for field in fields(cls)}
        return cls(**{**values, "beta": tuple(values["beta"]), "chi": tuple(values["chi"])})

    def check_same(self, kept: Settings, path: object) -> None:
        """Return if results kept in `path` may stand beside those of these settings.

        Raises:
            InputError: if not, naming every difference.
        """
        differences = [
            f"{field.name} was {_brief(before)} and is {_brief(now)}"
            for field in fields(self)
            if (before := getattr(kept, field.name)) != (now := getattr(self, field.name))
        ]
        if differences:
            raise InputError(
                f"{path} was computed with other settings: {'; '.join(differences)}; give the settings it "
                f"has, another --out, or --force to replace it"
            )


def _brief(value: object) -> str:
    if isinstance(value, tuple) and len(value) > 6:
        return f"{len(value)} values from {value[0]!r} to {value[-1]!r}"
    return ",".join(map(repr, value)) if isinstance(value, tuple) else str(value)
