"""The scheduled workflow: pinned, with few rights, nothing but the command; and the branch of its records."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RIGHTS = {"nightly": {"contents": "write"}, "deploy": {"pages": "write", "id-token": "write"}}
COMMANDS = [
    "make .venv/installed",
    ".ci/results restore",
    '.venv/bin/trgbench nightly --machine github-actions --markdown "$GITHUB_STEP_SUMMARY"',
    ".ci/results keep",
]


def load(path: Path) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load(path.read_text())
    return content


def steps(content: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in content["jobs"].values() for step in job["steps"]]


NIGHTLY = load(ROOT / ".github" / "workflows" / "nightly.yml")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_and_says_its_version(path: Path) -> None:
    used = [step["uses"] for step in steps(load(path)) if "uses" in step]
    lines = re.findall(
        r"uses: (\S+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)$", path.read_text(), flags=re.MULTILINE
    )
    assert [f"{name}@{commit}" for name, commit, _ in lines] == used
    assert used


def test_it_runs_on_a_schedule_and_by_hand_one_at_a_time() -> None:
    assert NIGHTLY[True].keys() == {"schedule", "workflow_dispatch"}  # YAML 1.1 reads the key `on` as true
    assert NIGHTLY["concurrency"] == {"group": "nightly", "cancel-in-progress": False}


def test_each_job_has_the_rights_it_needs_and_no_other() -> None:
    assert NIGHTLY["permissions"] == {}
    assert {name: job["permissions"] for name, job in NIGHTLY["jobs"].items()} == RIGHTS


def test_it_only_calls_the_command() -> None:
    assert [step["run"] for step in steps(NIGHTLY) if "run" in step] == COMMANDS
    assert "${{" not in "".join(COMMANDS)  # what somebody else can write never becomes a part of a script


def test_it_has_the_whole_history_and_publishes_whatever_the_outcome() -> None:
    checkout, *others = steps(NIGHTLY)
    assert checkout["with"] == {"ref": "main", "fetch-depth": 0}
    assert [step["if"].strip("${} ").startswith("!cancelled()") for step in others if "if" in step] == [
        True,
        True,
    ]


def test_the_options_of_the_command_are_there() -> None:
    from trgbench.__main__ import make_parser

    words = COMMANDS[2].replace('"', "").split()[1:]
    assert make_parser().parse_args(words).machine == "github-actions"


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[Path, Path]:
    """Return two clones of a repository that has this script."""
    git("init", "-q", "--bare", "-b", "main", str(tmp_path / "remote"), folder=tmp_path)
    clones = tmp_path / "one", tmp_path / "two"
    for clone in clones:
        git("clone", "-q", str(tmp_path / "remote"), str(clone), folder=tmp_path)
        if clone is clones[0]:
            (clone / ".ci").mkdir()
            shutil.copy(ROOT / ".ci" / "results", clone / ".ci")
            (clone / "results" / "reference").mkdir(parents=True)
            (clone / "results" / "reference" / "machine.json").write_text("of main")
            git("add", "-A", folder=clone)
            git("commit", "-q", "-m", "begin", folder=clone)
            git("push", "-q", "origin", "HEAD:main", folder=clone)
    git("switch", "-q", "main", folder=clones[1])
    return clones


def git(*arguments: str, folder: Path) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def results(clone: Path, what: str) -> int:
    return subprocess.run([".ci/results", what], cwd=clone, capture_output=True).returncode


def test_records_go_to_a_branch_of_their_own_and_come_back(checkouts: tuple[Path, Path]) -> None:
    one, two = checkouts
    assert results(one, "restore") == 0  # there is none yet
    record = one / "results" / "runner" / "a.json"
    record.parent.mkdir()
    record.write_text("first")
    assert results(one, "keep") == 0
    assert git("ls-tree", "-r", "--name-only", "origin/results", folder=one).split() == [
        "reference/machine.json", "runner/a.json",
    ]  # fmt: skip
    assert git("status", "--porcelain", "--", ".", ":!results", folder=one) == ""
    before = git("rev-parse", "origin/results", folder=one)
    assert results(one, "keep") == 0  # nothing new, no commit
    assert git("ls-remote", "origin", "results", folder=one).split()[0] == before.strip()

    (two / "results" / "reference" / "newer.json").write_text("since then, on main")
    assert results(two, "restore") == 0
    assert (two / "results" / "runner" / "a.json").read_text() == "first"
    assert (two / "results" / "reference" / "newer.json").exists()
    (two / "results" / "runner" / "b.json").write_text("second")
    assert results(two, "keep") == 0
    # The first does not know of it, and must not push over it.
    record.write_text("changed")
    assert results(one, "keep") != 0
    assert results(one, "restore") == 0
    assert len(git("rev-list", "origin/results", folder=one).split()) == 2


def test_a_remote_that_cannot_be_reached_is_no_empty_branch(checkouts: tuple[Path, Path]) -> None:
    one, _ = checkouts
    git("remote", "set-url", "origin", str(one.parent / "nowhere"), folder=one)
    assert results(one, "restore") == 3
