"""asv's configuration for one run, and what has to be right with the checkout before it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from asv.config import Config
from asv.console import log
from asv.plugin_manager import plugin_manager

from trgbench.errors import InputError, check_choice, shown
from trgbench.suite import store
from trgbench.suite.commits import GitFailed, Trouble, checkout_root, find_commit, git, is_shallow
from trgbench.suite.store import Stored

LOCK = Path(".asv/lock")
SET_ASIDE = Path(".asv/set-aside")


def enter(folder: Path) -> Path:
    """Change to the top of the checkout, where asv wants to be, and return it.

    Raises:
        InputError: if `folder` is in no checkout, or in one without a suite.
    """
    root = checkout_root(folder)
    if not (root / "asv.conf.json").is_file():
        raise InputError(f"{root} has no asv.conf.json; change to a checkout of trgbench")
    os.chdir(root)
    return root


def configure(environment: str | None = None) -> Config:
    """Return asv.conf.json, with the environments that are asked for by name instead of its own matrix.

    asv ignores the key `environments` of that file, which holds them, and so does not select them itself.

    Raises:
        InputError: if there is none of that name.
    """
    log.enable()
    conf = Config.load()
    if environment is not None:
        known = getattr(conf, "environments", {})
        chosen = known[check_choice("environment", environment, known)]
        conf.pythons = chosen["pythons"]
        conf.matrix = conf.matrix | {"req": conf.matrix["req"] | chosen["req"]}
    for plugin in conf.plugins:
        plugin_manager.import_plugin(plugin)
    return conf


def check_history(root: Path) -> None:
    """Return if the clone has its whole history: asv makes an empty dashboard of a part of it.

    Raises:
        Trouble: if not.
    """
    if is_shallow(root):
        raise Trouble("this clone is shallow, and its dashboard would be empty; run: git fetch --unshallow")


def check_work_tree(root: Path, branch: str, results: str) -> None:
    """Return if the work tree, where the benchmarks come from, is the tip of `branch`.

    Raises:
        Trouble: if not: no such branch, another one, a detached HEAD, or files that differ from it.
    """
    find_commit(root, branch)
    try:
        current = git("symbolic-ref", "--short", "HEAD", folder=root)
    except GitFailed:
        current = ""
    if current != branch:
        state = f"on {current}" if current else "a detached HEAD"
        raise Trouble(f"the checkout is {state}, and the benchmarks would be of it; run: git switch {branch}")
    changed = ("status", "--porcelain", "--untracked-files=no", "--", ".", f":(exclude){results}")
    new = ("ls-files", "--others", "--exclude-standard", "--", "benchmarks")
    if found := git(*changed, folder=root).splitlines() + git(*new, folder=root).splitlines():
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise Trouble(
            f"{shown(found[0].split(maxsplit=1)[-1])} differs from {branch}{more}; "
            f"commit your changes, or put them away: git stash --include-untracked"
        )


def known_commits(root: Path) -> set[str]:
    return set(git("rev-list", "--all", folder=root).split())


def resolve(root: Path, wanted: Iterable[str]) -> list[str]:
    """Return the hashes that commits and ranges (`A..B`, along the first parents) mean, the oldest first.

    Raises:
        InputError: if one of them means nothing.
    """
    found: list[str] = []
    for name in wanted:
        if ".." not in name:
            found.append(find_commit(root, name).hash)
            continue
        try:
            listed = git("rev-list", "--first-parent", "--reverse", "--end-of-options", name, folder=root)
        except GitFailed:
            raise InputError(f"{shown(name)} is no range of commits here; give FIRST..LAST") from None
        found += listed.split()
    return list(dict.fromkeys(found))


def look_through(root: Path, results: Path) -> tuple[list[Stored], list[str]]:
    """Return the results files, and a message of each file that was set aside; see `store.look_through`."""
    stored, messages = store.look_through(results, known_commits(root), SET_ASIDE)
    for message in messages:
        print(f"trgbench: {message}", file=sys.stderr, flush=True)
    return stored, messages
