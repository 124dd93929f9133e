"""Which texts may stand in asv's records.

asv's pages put the names of benchmarks, of their parameters and of machines into the page as HTML, and make
paths of them. So a record whose texts hold markup is not shown at all: nothing of ours needs `<` in a name.
The page's own rule against foreign scripts (`trgbench.suite.dashboard`) is the second line of defence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MARKUP = frozenset('<>&"`')
LONGEST = 200  # bytes: asv makes the name of a file of it, with the name of a parameter in front


def unclean(content: object) -> str | None:
    """Return what is wrong with the first bad text of a JSON document (or with one text), None if nothing is.

    >>> unclean({"machine": "a<img src=x onerror=alert(1)>"})
    "the text 'a<img src=x onerror=alert(1)>' holds '<'"
    >>> unclean({"machine": "AMD EPYC", "ram": "24 GiB", "version": 1}) is None
    True
    """
    return next(filter(None, map(_wrong, _texts(content))), None)


def unclean_results(content: dict[str, Any]) -> str | None:
    """Return as `unclean` does for a results file of asv.

    Left alone is what reaches no page: the durations, where asv's own names look like `<build>`, the name of
    the environment, as long as the list of its packages, and a profile, longer still.

    >>> unclean_results({"durations": {"<build>": 1.0}, "env_name": 300 * "x"})
    >>> unclean_results({"params": {"cpu": "AMD\\nEPYC"}})
    "the text 'AMD\\\\nEPYC' holds '\\\\n'"
    """
    shown = {key: value for key, value in content.items() if key not in ("durations", "env_name", "results")}
    return unclean([shown, list(content.get("results", ()))])


def unclean_benchmarks(content: dict[str, Any]) -> str | None:
    """Return as `unclean` does for asv's list of benchmarks; their code is left to the dashboard to escape.

    >>> unclean_benchmarks({"a.time": {"name": "a.time", "code": "a < b"}, "version": 2})
    >>> unclean_benchmarks({"a.time": {"name": "a.time", "pretty_name": "a & b"}})
    "the text 'a & b' holds '&'"
    """
    shown: list[object] = [list(content)]
    for known in content.values():
        if isinstance(known, dict):
            known = {key: value for key, value in known.items() if key != "code"}
        shown.append(known)
    return unclean(shown)


def printable(text: str) -> str:
    """Return text that can be printed on a terminal, whoever wrote it.

    >>> printable("red: \\x1b[31m")
    'red: �[31m'
    """
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def _wrong(text: str) -> str | None:
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    for character in text:
        if character in MARKUP or not character.isprintable():
            return f"the text {shown!r} holds {character!r}"
    return f"the text {shown!r} is longer than {LONGEST} bytes" if len(text.encode()) > LONGEST else None


def _texts(content: object) -> Iterator[str]:
    """Yield every text, keys among them; without recursion, for a hostile document may be deep."""
    left = [content]
    while left:
        node = left.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            left += [*node.values(), *node]
        elif isinstance(node, list):
            left += node
