"""asv's configuration: its own environment, the second one beside it, and which commits a request means."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asv")

from asv.config import Config
from asv.environment import get_environments, iter_matrix

from trgbench.errors import InputError
from trgbench.suite import configuration, store
from trgbench.suite.commits import GitFailed, Trouble, is_shallow

ROOT = Path(__file__).parent.parent


def selected(conf: Config) -> list[dict[str, str]]:
    """Return what asv would install in each environment."""
    return [
        {name or "python": version for (_, name), version in entries.items()}
        for entries in iter_matrix(conf.environment_type, conf.pythons, conf, False)
    ]


def test_the_second_environment_is_the_study_s_and_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    [first] = selected(Config.load())
    assert selected(configuration.configure()) == [first]
    [second] = selected(configuration.configure("study"))
    studys = {"python": "3.12", "jax": "0.12.0.1", "jaxlib": "0.12.0.1", "torch": "2.15.0"}
    assert second == first | studys
    assert studys.items().isdisjoint(first.items())
    assert len(list(get_environments(configuration.configure(), None))) == 1


def test_an_unknown_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(InputError, match="choose one of: study"):
        configuration.configure("studies")


def test_commits_and_ranges_mean_commits_the_oldest_first(scratch: Callable[..., Any]) -> None:
    repository = scratch(1.0, 2.0, 3.0)
    root = repository.root
    zero, one, two = repository.git("rev-list", "--reverse", "main").split()
    assert configuration.resolve(root, ["main~2..main"]) == [one, two]
    assert configuration.resolve(root, ["main", "main~2", two[:10]]) == [two, zero]
    assert configuration.resolve(root, ["main..main"]) == []
    for wrong in ("nothing", "nothing..main", "--all", "..--all"):
        with pytest.raises(InputError):
            configuration.resolve(root, [wrong])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("quick main..main", 2, "main..main has no commit"),
        ("quick nothing", 2, "names no commit"),
        ("quick --last 0", 2, "at least 1"),
        ("quick --wait=-1", 2, "--wait takes"),
        ("quick --environment study", 2, "unknown environment"),
        ("publish", 3, "without a single number"),
    ],
)
def test_make_s_requests_that_cannot_be_carried_out(
    scratch: Callable[..., Any], arguments: str, code: int, says: str
) -> None:
    repository = scratch(1.0)
    done = repository.run(*arguments.split(), module="trgbench.suite")
    assert done.returncode == code
    assert says in done.stderr
    assert not (repository.root / "html").exists()


def test_the_last_commits_are_measured_into_the_history_and_published_without_measuring(
    scratch: Callable[..., Any],
) -> None:
    repository = scratch(1.0, 2.0, 3.0)
    history = ("quick", "--last", "2", "--history", "--machine", "here")
    done = repository.run(*history, module="trgbench.suite")
    assert done.returncode == 0, done.stderr
    before = repository.records()
    assert set(before) == {commit[:8] for commit in repository.git("rev-list", "-2", "main").split()}
    assert "nothing was measured" in repository.run(*history, module="trgbench.suite").stdout
    done = repository.run("publish", module="trgbench.suite")
    assert (done.returncode, "6 numbers published" in done.stdout) == (0, True)
    assert repository.records() == before


def test_the_history_that_is_kept_here_is_whole(tmp_path: Path) -> None:
    try:
        known = configuration.known_commits(ROOT)
        if is_shallow(ROOT):
            pytest.skip("this clone is shallow")
    except (GitFailed, Trouble) as reason:
        pytest.skip(str(reason))
    shutil.copytree(ROOT / "results", tmp_path / "results")
    stored, messages = store.look_through(tmp_path / "results", known, tmp_path / "aside")
    assert messages == []
    [machine] = {record.machine for record in stored}
    assert len({record.commit for record in stored}) >= 5
    assert all(store.count_numbers(record) >= 20 for record in stored), machine
