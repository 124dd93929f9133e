"""Git: which commit a name means, what else to know about the checkout, and a commit's files."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from trgbench.errors import InputError, shown


class Trouble(RuntimeError):
    """Something other than the request is in the way; the message is one sentence with the remedy."""


class GitFailed(RuntimeError):
    """Git refused, for the reason it gave."""


@dataclass(frozen=True)
class Commit:
    """A commit: its full hash, the first line of its message, and what it was called in the request."""

    hash: str
    subject: str
    name: str

    @property
    def short(self) -> str:
        return self.hash[:8]


def git(*arguments: str, folder: Path) -> str:
    """Return what git prints.

    Raises:
        GitFailed: if it fails.
        Trouble: if it is not installed, or refuses a checkout that belongs to somebody else.
    """
    return _git(arguments, folder).decode(errors="replace").strip()


def _git(arguments: tuple[str, ...], folder: Path) -> bytes:
    # In English, to be understood here; and never waiting for somebody to type a password.
    env = os.environ | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True
        )
    except FileNotFoundError:
        raise Trouble("git is not installed; install it") from None
    if done.returncode == 0:
        return done.stdout
    said = " ".join(done.stderr.decode(errors="replace").split())
    if "dubious ownership" in said:
        raise Trouble(
            f"git refuses the checkout {folder} because it belongs to another user; if you trust it, run: "
            f"git config --global --add safe.directory {shlex.quote(str(folder))}"
        )
    raise GitFailed(said)


def checkout_root(folder: Path) -> Path:
    """Return the top of the checkout that `folder` is in.

    Raises:
        InputError: if it is in none.
    """
    try:
        return Path(git("rev-parse", "--show-toplevel", folder=folder))
    except GitFailed:
        raise InputError(
            f"{folder} is in no git checkout; change to a checkout of trgbench, which has the commits"
        ) from None


def find_commit(root: Path, name: str) -> Commit:
    """Return the commit that `name` means: a branch, a tag, a hash, or what else git understands.

    Raises:
        InputError: if it means none.
        Trouble: if the checkout may only lack it: it is shallow, or knows it as a remote's branch.
    """
    try:
        found = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", folder=root)
    except GitFailed:
        raise _why_missing(root, name) from None
    return Commit(found, git("log", "-1", "--format=%s", found, folder=root), name)


def _why_missing(root: Path, name: str) -> InputError | Trouble:
    if is_shallow(root):
        return Trouble(
            f"this clone is shallow and does not have {shown(name)}; fetch the history: git fetch --unshallow"
        )
    remotes = git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/remotes", folder=root).split()
    if known := [branch for branch in remotes if branch.partition("/")[2] == name]:
        return Trouble(f"there is no branch {name} in this clone, only {known[0]}; say {known[0]}")
    if name == "main":
        return Trouble("there is no branch main in this clone; fetch it: git fetch origin main:main")
    return InputError(
        f"{shown(name)} names no commit here; give a branch, a tag or a hash (git log --oneline lists some)"
    )


def is_shallow(root: Path) -> bool:
    return git("rev-parse", "--is-shallow-repository", folder=root) == "true"


def is_dirty(root: Path, *folders: str) -> bool:
    """Return whether files under `folders` differ from HEAD, or are not in it."""
    return bool(git("status", "--porcelain", "--", *folders, folder=root))


def export(root: Path, commit: Commit, folder: str, target: Path) -> None:
    """Write the files that `commit` has under `folder` to `target/folder`.

    Raises:
        GitFailed: if it has none.
    """
    archive = _git(("archive", "--format=tar", commit.hash, folder), root)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(target, filter="data")
