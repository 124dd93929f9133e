"""The errors a user can cause. Each message is one line: what was given, what is wanted, what to do."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable


class InputError(ValueError):
    """Something the caller gave cannot be used; the command line prints it and exits with 2."""


class Unavailable(InputError):
    """A backend or a mode cannot run on this machine; the message says what is missing and how to get it."""


def shown(value: object) -> str:
    """Return what a caller gave as text for a message: one line, and not longer than one reads.

    >>> shown("fast"), len(shown([1] * 1000))
    ("'fast'", 80)
    """
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an int of more than 4,300 digits
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_integer(name: str, value: object, minimum: int) -> int:
    """Return `value` as an int, or raise `InputError` if it is not a whole number of at least `minimum`.

    >>> check_integer("steps", 4, minimum=1)
    4
    """
    wanted = f"{name} must be a whole number of at least {minimum}"
    if isinstance(value, bool):
        raise InputError(f"{wanted}; got {shown(value)}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(f"{wanted}; got {shown(value)}") from None
    if number < minimum:
        raise InputError(f"{wanted}; got {shown(number)}")
    return number


def check_threads(value: object) -> int:
    """Return `value` as an int if this process may use as many CPUs.

    Raises:
        InputError: if it is no whole number of at least 1, or there are fewer CPUs.
    """
    threads, available = check_integer("threads", value, minimum=1), len(os.sched_getaffinity(0))
    if threads > available:
        raise InputError(
            f"threads must be at most the {available} CPUs this process may use; got {shown(threads)}; "
            f"ask for fewer, or allow more CPUs (taskset)"
        )
    return threads


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`, or raise `InputError` listing them.

    >>> check_choice("mode", "eager", ["eager", "traced"])
    'eager'
    """
    valid = list(choices)
    if not isinstance(value, str) or value not in valid:
        raise InputError(f"unknown {name} {shown(value)}; choose one of: {', '.join(valid)}")
    return value
