"""What lies among asv's records: ours is read, anything else is set aside with a message, nothing is lost."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asv")

from asv.results import Results, iter_results
from asv.runner import BenchmarkResult

from trgbench.suite import journal, machines, store
from trgbench.suite.journal import Failure, Journal, Verdict

COMMIT, OTHER = "0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98"
HOSTILE = "<img src=x onerror=alert(1)>"
PLACE = f"here/{OTHER[:8]}-env-py3.11.json"
MACHINE = {"arch": "x86_64", "cpu": "EPYC", "machine": "here", "num_cpu": "2", "os": "Linux", "ram": "24 GiB"}
FIGURE = {"name": "tiny.Figure.track_figure", "version": "1", "params": [["1", "2", "'three'"]]}


def make_record(commit: str = COMMIT, **changes: Any) -> dict[str, Any]:
    """Return the content of a results file as asv writes it, changed."""
    folder = Path(os.environ["SCRATCH_RESULTS"])
    result = Results({**MACHINE, "python": "3.11"}, {}, commit, 1_700_000_000_000, "3.11", "env-py3.11", {})
    figures = BenchmarkResult(
        [1.5, None, float("nan")], [[1.0, 2.0], None, None], [1, None, None], 0, "", None
    )
    result.add_result(FIGURE, figures, record_samples=True)
    result.save(str(folder))
    [path] = folder.glob("here/*.json")
    content: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    for key, value in changes.items():
        content[key] = value(content[key]) if callable(value) else value
    return content


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the description of a machine and one good record."""
    monkeypatch.setenv("SCRATCH_RESULTS", str(tmp_path / "asv"))
    folder = tmp_path / "results"
    put(folder, "here/machine.json", {**MACHINE, "version": 1})
    put(folder, f"here/{COMMIT[:8]}-env-py3.11.json", make_record())
    return folder


def put(results: Path, place: str, content: Any) -> Path:
    path = results / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def look(results: Path) -> tuple[list[str], list[str]]:
    found, messages = store.look_through(results, {COMMIT, OTHER}, results.parent / "aside")
    return [stored.commit for stored in found], messages


def test_a_record_of_asv_is_read(results: Path) -> None:
    found, messages = store.look_through(results, {COMMIT}, results.parent / "aside")
    assert messages == []
    [stored] = found
    assert (stored.commit, stored.machine, stored.environment) == (COMMIT, "here", "env-py3.11")
    assert stored == store.find(results, "here", "env-py3.11", COMMIT)
    assert store.count_numbers(stored) == 1  # one failed, one was skipped


def test_the_interval_of_a_few_samples_may_be_infinite(results: Path) -> None:
    infinite = row(stats_ci_99_a=[-math.inf, None, None], stats_ci_99_b=[math.inf, None, None])
    put(results, PLACE, make_record(OTHER, results=infinite))
    assert sorted(look(results)[0]) == sorted([COMMIT, OTHER])


def row(**columns: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what changes columns of the one benchmark's row."""

    def change(rows: dict[str, Any]) -> dict[str, Any]:
        [(name, values)] = rows.items()
        known = dict(zip(store.COLUMNS, values, strict=False)) | columns
        return {name: [known.get(column) for column in store.COLUMNS]}

    return change


def deep() -> bytes:
    return b"[" * 100_000 + b"]" * 100_000


BAD: dict[str, tuple[str, Any]] = {
    "empty": (PLACE, b""),
    "truncated": (PLACE, lambda: json.dumps(make_record(OTHER)).encode()[:-40]),
    "binary": (PLACE, bytes(range(256))),
    "of zeros, as after a crash of the machine": (PLACE, bytes(4096)),
    "deeper than Python goes": (PLACE, deep()),
    "no object": (PLACE, [1, 2, 3]),
    "an older format": (PLACE, lambda: make_record(OTHER, version=1)),
    "a newer format": (PLACE, lambda: make_record(OTHER, version=3)),
    "another tool's": (PLACE, {"machine_info": {}, "benchmarks": []}),
    "a commit of another project": (f"here/{'a' * 8}-env-py3.11.json", lambda: make_record("a" * 40)),
    "another commit than its name": (PLACE, lambda: make_record()),
    "another machine": (PLACE, lambda: make_record(OTHER, params=MACHINE | {"machine": "there"})),
    "a path for a machine": (PLACE, lambda: make_record(OTHER, params=MACHINE | {"machine": "../../there"})),
    "a path for a commit": (PLACE, lambda: make_record(OTHER, commit_hash="../../../../etc/passwd")),
    "markup for a commit": (PLACE, lambda: make_record(OTHER, commit_hash=HOSTILE)),
    "a path for an environment": (PLACE, lambda: make_record(OTHER, env_name="../env")),
    "markup in a benchmark": (
        PLACE,
        lambda: make_record(OTHER, results=lambda r: {HOSTILE: next(iter(r.values()))}),
    ),
    "markup in a CPU": (PLACE, lambda: make_record(OTHER, params=MACHINE | {"cpu": HOSTILE})),
    "markup in a requirement": (PLACE, lambda: make_record(OTHER, requirements={HOSTILE: "1"})),
    "markup in a variable": (PLACE, lambda: make_record(OTHER, env_vars={"A": HOSTILE})),
    "text for a figure": (PLACE, lambda: make_record(OTHER, results=row(result=["1.5", None, None]))),
    "markup for a figure": (PLACE, lambda: make_record(OTHER, results=row(result=[HOSTILE, None, None]))),
    "an infinity": (PLACE, lambda: make_record(OTHER, results=row(result=[float("inf"), None, None]))),
    "a number beyond all": (PLACE, lambda: json.dumps(make_record(OTHER)).replace("1.5", "1e999").encode()),
    "fewer figures than parameters": (PLACE, lambda: make_record(OTHER, results=row(result=[1.0]))),
    "samples that are none": (PLACE, lambda: make_record(OTHER, results=row(samples=[1.0, 2.0, 3.0]))),
    "no parameters": (PLACE, lambda: make_record(OTHER, results=row(params=None))),
    "a date of the year 300000": (PLACE, lambda: make_record(OTHER, date=10**16)),
    "other columns": (PLACE, lambda: make_record(OTHER, result_columns=["result"])),
    "deep in a folder": (f"here/more/{OTHER[:8]}-env-py3.11.json", lambda: make_record(OTHER)),
    "beside the folders": ("stray.json", lambda: make_record(OTHER)),
    "a folder called like markup": (f"{HOSTILE}/machine.json", MACHINE | {"version": 1, "machine": HOSTILE}),
    "a folder that only asv would see": ("here/more/machine.json", MACHINE | {"version": 1}),
    "a description of another machine": ("there/machine.json", MACHINE | {"version": 1}),
}


@pytest.mark.parametrize(("place", "content"), BAD.values(), ids=list(BAD))
def test_what_is_no_record_of_ours_is_set_aside(results: Path, place: str, content: Any) -> None:
    path = put(results, place, content() if callable(content) else content)
    before = path.read_bytes()
    found, [message] = look(results)
    assert found == [COMMIT]
    assert not path.exists()
    assert (results.parent / "aside" / place).read_bytes() == before  # nothing is lost
    assert "set aside" in message
    assert message.isprintable()
    assert look(results) == ([COMMIT], [])
    assert [result.commit_hash for result in iter_results(str(results))] == [COMMIT]


def test_a_second_one_of_the_same_name_is_kept_too(results: Path) -> None:
    for content in (b"one", b"two"):
        put(results, PLACE, content)
        look(results)
    aside = results.parent / "aside" / "here"
    assert sorted(path.read_bytes() for path in aside.iterdir()) == [b"one", b"two"]


def test_a_link_is_not_followed(results: Path) -> None:
    secret = results.parent / "secret.json"
    secret.write_text(json.dumps(make_record(OTHER)))
    (results / PLACE).symlink_to(secret)
    found, [message] = look(results)
    assert (found, "no ordinary file" in message, secret.exists()) == ([COMMIT], True, True)


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"machine": "here", "version": 1}'])
def test_a_lost_description_of_a_machine_is_made_again(results: Path, content: bytes | None) -> None:
    path = results / "here" / "machine.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    found, _ = look(results)
    assert found == [COMMIT]
    assert {field: json.loads(path.read_text())[field] for field in machines.FIELDS} == MACHINE
    assert [result.commit_hash for result in iter_results(str(results))] == [COMMIT]


def test_what_is_half_written_is_not_among_the_records(results: Path) -> None:
    def write_and_fail(folder: str) -> None:
        put(Path(folder), PLACE, b'{"half":')
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.keep(results, write_and_fail)
    assert look(results) == ([COMMIT], [])
    put(results / f"{store.UNFINISHED}1", PLACE, b"left by a killed run")
    assert look(results) == ([COMMIT], [])
    assert sorted(path.name for path in results.iterdir()) == ["here"]


def test_a_journal_keeps_what_it_is_told(tmp_path: Path) -> None:
    known = Journal(tmp_path)
    failures = [Failure("a.time", "1, 'x'", "raised <b>"), Failure("a.time", "2", "timed out")]
    known.failed(COMMIT, "env", "a.time", failures)
    known.failed(COMMIT, "env", "b.time", [Failure("b.time", "", "crashed")])
    known.judged(COMMIT, "env", Verdict("slower", OTHER, ("× 2",)))
    known.failed(COMMIT, "env", "b.time", [])
    again = Journal(tmp_path).of(COMMIT, "env")
    assert (again.failures, again.verdict) == (failures, Verdict("slower", OTHER, ("× 2",)))
    assert Journal(tmp_path).of(COMMIT, "other").verdict is None


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"\xff\xfe", deep(), b'{"commit": "' + HOSTILE.encode() + b'"}', b"null"]
)
def test_a_damaged_line_of_a_journal_is_left_out(tmp_path: Path, damage: bytes) -> None:
    Journal(tmp_path).judged(COMMIT, "env", Verdict("good"))
    path = tmp_path / journal.NAME
    path.write_bytes(damage + b"\n" + path.read_bytes())
    before = path.read_bytes()
    known = Journal(tmp_path)
    assert known.of(COMMIT, "env").verdict == Verdict("good")
    assert known.damaged == 1
    assert path.with_suffix(".damaged").read_bytes() == before
    assert Journal(tmp_path).damaged == 0
