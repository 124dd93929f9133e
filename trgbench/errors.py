"""The errors a user can cause. Each message is one line: what was given, what is wanted, what to do."""

from __future__ import annotations

import operator
from collections.abc import Iterable


class InputError(ValueError):
    """Something the caller gave cannot be used; the command line prints it and exits with 2."""


class Unavailable(InputError):
    """A backend or a mode cannot run on this machine; the message says what is missing and how to get it."""


def check_integer(name: str, value: object, minimum: int) -> int:
    """Return `value` as an int, or raise `InputError` if it is not a whole number of at least `minimum`.

    >>> check_integer("steps", 4, minimum=1)
    4
    """
    wanted = f"{name} must be a whole number of at least {minimum}"
    if isinstance(value, bool):
        raise InputError(f"{wanted}; got {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{wanted}; got {value!r}") from None
    if number < minimum:
        raise InputError(f"{wanted}; got {number}")
    return number


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`, or raise `InputError` listing them.

    >>> check_choice("mode", "eager", ["eager", "traced"])
    'eager'
    """
    valid = list(choices)
    if value not in valid:
        raise InputError(f"unknown {name} {value!r}; choose one of: {', '.join(valid)}")
    return str(value)
