"""SIGKILL at any moment: what was finished is kept, the site is whole, and the next run goes on."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asv")

from trgbench.suite import lock, site
from trgbench.suite.commits import Trouble

PACKAGE = "# {i}\ndef step(): pass\ndef figure(n): return 1.0 * n\n"
SEED, KILLS = 20261129, 20
LONGEST = {"nightly": 7.0, "publish": 1.6}  # seconds that each takes at the most, when nothing else runs


def rows(repository: Any) -> dict[tuple[str, str], list[Any]]:
    """Return every finished result; each file must be readable as a whole."""
    return {
        (commit, name): row
        for commit, content in repository.records().items()
        for name, row in content["results"].items()
    }


@contextmanager
def watched(html: Path) -> Iterator[list[str]]:
    """Look at the site all the time once it is there, and collect whatever is wrong with it."""
    wrong: list[str] = []
    done = threading.Event()

    def watch() -> None:
        seen = False
        while not done.wait(0.0005):
            try:
                json.loads((html / "index.json").read_text())
                seen = True
            except FileNotFoundError as error:
                if seen:
                    wrong.append(str(error))
            except ValueError as error:
                wrong.append(str(error))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield wrong
    finally:
        done.set()
        thread.join()


def left_running(repository: Any) -> list[Path]:
    mark = f"{lock.MARK}={repository.root / '.asv' / 'lock'}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [environ] if mark in environ.read_bytes().split(b"\0") else []
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_a_killed_run_loses_nothing(scratch: Callable[..., Any]) -> None:
    draw = random.Random(SEED)
    repository = scratch(*(PACKAGE.format(i=i) for i in range(3)))
    html = repository.root / "html"
    kept: dict[tuple[str, str], list[Any]] = {}
    killed = {"nightly": 0, "publish": 0}
    with watched(html) as wrong:
        for i in range(KILLS):
            name = "publish" if kept and i % 3 == 2 else "nightly"
            repository.commit(f"commit {i + 3}", PACKAGE.format(i=i + 3))
            arguments = ("nightly", "--machine", "here") if name == "nightly" else ("publish",)
            module = "trgbench" if name == "nightly" else "trgbench.suite"
            process = repository.start(
                *arguments, module=module, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            time.sleep(draw.uniform(0.0, LONGEST[name]))
            killed[name] += process.poll() is None
            process.kill()
            said = process.communicate()[1]
            assert process.returncode in (-9, 0), said
            now = rows(repository)
            assert {key: now.get(key) for key in kept} == kept
            kept = now
            if html.exists():
                assert site.count_numbers(html) > 0
        report, said = repository.nightly("--commits", "40")
    assert wrong == []
    assert min(killed.values()) >= 3, killed
    assert report["outcome"] == "fine", said
    now = rows(repository)
    assert {key: now[key] for key in kept} == kept  # and nothing is measured twice
    # The newest is among them, every one that was begun is whole, and nothing is left behind.
    assert report["commits"][-1]["subject"] == f"commit {KILLS + 2}"
    assert all(len(content["results"]) == 2 for content in repository.records().values())
    assert site.count_numbers(html) == 3 * len(repository.records())
    assert left_running(repository) == []
    assert not list((repository.root / "results").glob(".unfinished-*"))
    assert repository.git("status", "--porcelain", "--", ".", ":!results") == ""


def test_what_a_killed_run_leaves_behind_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    orphan = subprocess.Popen(["sleep", "100"], env={lock.MARK: str(path), "PATH": "/usr/bin:/bin"})
    other = subprocess.Popen(["sleep", "100"], env={lock.MARK: f"{path}2", "PATH": "/usr/bin:/bin"})
    with lock.writer(path, "a test"):
        assert orphan.wait(10) == -9
        assert other.poll() is None
    other.kill()
    other.wait()


def test_a_lock_names_its_owner_and_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    freed = threading.Event()

    def hold() -> None:
        with lock.writer(path, "the first"):
            held.set()
            freed.wait(30)

    for _ in range(2):
        held = threading.Event()
        freed.clear()
        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(30)
        message = rf"the first \(process {os.getpid()} on .*, since .*--wait"
        with pytest.raises(Trouble, match=message), lock.writer(path, "the second", wait=0.3):
            raise AssertionError("both have it")
        threading.Timer(0.2, freed.set).start()
        with lock.writer(path, "the third", wait=30):
            assert freed.is_set()
        holder.join()


@pytest.mark.parametrize("kernel_can", [True, False])
def test_a_new_site_takes_the_place_of_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_can: bool
) -> None:
    if not kernel_can:
        monkeypatch.setattr(site, "exchange", lambda *_: False)
    new, html = tmp_path / "new", tmp_path / "html"
    for content in ("first", "second", "third"):
        new.mkdir()
        (new / "index.json").write_text(content)
        site.put_in_place(new, html)
        assert (html / "index.json").read_text() == content
        shutil.rmtree(new, ignore_errors=True)
    assert [path.name for path in tmp_path.iterdir()] == ["html"]


def test_at_no_moment_is_there_no_site(tmp_path: Path) -> None:
    new, html = tmp_path / "new", tmp_path / "html"
    for folder in (new, html):
        folder.mkdir()
        (folder / "index.json").write_text("{}")
    done = threading.Event()

    def swap() -> None:
        for _ in range(2000):
            site.put_in_place(new, html)
        done.set()

    thread = threading.Thread(target=swap)
    thread.start()
    looks, missing = 0, 0
    while not done.is_set():
        looks += 1
        missing += not os.path.exists(html / "index.json")
    thread.join()
    assert looks > 100
    assert missing == 0


def test_a_site_that_is_missing_is_not_put_in_place(tmp_path: Path) -> None:
    (tmp_path / "html").mkdir()
    with pytest.raises(FileNotFoundError):
        site.put_in_place(tmp_path / "new", tmp_path / "html")
    assert (tmp_path / "html").is_dir()


@pytest.mark.parametrize("what", ["folder", "file", "link", "dangling link", "nothing"])
def test_whatever_lies_where_the_next_site_is_made_goes(tmp_path: Path, what: str) -> None:
    path, other = tmp_path / ".html.new", tmp_path / "other"
    other.mkdir()
    (other / "kept").touch()
    if what == "folder":
        shutil.copytree(other, path)
    elif what == "file":
        path.touch()
    elif what != "nothing":
        path.symlink_to(other if what == "link" else tmp_path / "nowhere")
    site.remove(path)
    assert not os.path.lexists(path)
    assert (other / "kept").exists()
