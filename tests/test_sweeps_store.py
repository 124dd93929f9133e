"""What a sweep may be asked for, in which batches it is computed, and what is kept of it."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from typing import Any

import pytest

import trgbench
from trgbench.errors import InputError
from trgbench.sweeps import grid, rows, store
from trgbench.sweeps.grid import Settings
from trgbench.sweeps.plan import BATCH_MAXIMUM, BATCH_SECONDS, Plan
from trgbench.sweeps.store import Store
from trgbench.sweeps.work import Outcome

SETTINGS = Settings((0.1, 0.2, 0.3), (8, 16), 20, "native", "traced-staged", "safe", 1, "trgbench 0")
GOOD = Outcome(0.1 + 0.2, -1 / 3, None, 0.3, -0.25, math.inf, 0.5, 1e-3, "tcp://a:1")
BAD = Outcome(seconds=0.1, worker="tcp://a:1", error='ValueError: no, "not" this')


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("0.1:1.0:91", tuple(i / 100 for i in range(10, 101))),
        ("0.44, 0.3", (0.3, 0.44)),
        ([0.5, "0.1:0.3:3"], (0.1, 0.2, 0.3, 0.5)),
        (0.3, (0.3,)),
        ("1e-6:50:2", (1e-6, 50.0)),
    ],
)
def test_betas(given: object, wanted: tuple[float, ...]) -> None:
    assert grid.parse_betas(given) == wanted


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("0.5:0.1:5", "is reversed"),
        ("0.5:0.5:5", "is empty"),
        ("0.1:0.5:1", "at least 2; got 1"),
        ("0.1:0.5:0", "at least 2; got 0"),
        ("0.1:0.5:x", "whole number"),
        ("0.1:0.5", "FIRST:LAST:COUNT"),
        ("0.1:1:99999999999999", "at most"),
        ("0.3,0.1:0.5:5", "beta 0.3 is given twice"),
        ("", "got ''"),
        ([], "beta is empty"),
        ("9e-7", "from 1e-06 to 50"),
        ("50.1", "from 1e-06 to 50"),
        ("-0.3", "from 1e-06 to 50"),
        ("nan", "from 1e-06 to 50"),
        ("1e999999999", "from 1e-06 to 50"),
        ("1e-999999999", "from 1e-06 to 50"),
        ("warm", "got 'warm'"),
        (None, "got None"),
        (True, "got True"),
    ],
)
def test_betas_that_are_refused(given: object, complaint: str) -> None:
    with pytest.raises(InputError, match=r"beta|range") as caught:
        grid.parse_betas(given)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("given", ["8,8", "1", "8.5", "", [], "x", None, 2.5])
def test_chis_that_are_refused(given: object) -> None:
    with pytest.raises(InputError, match="chi"):
        grid.parse_chis(given)


def test_batches_are_dear_first_short_at_the_end_and_hold_every_missing_point_once() -> None:
    betas = tuple(i / 1000 for i in range(1, 2001))
    settings = Settings(betas, (8, 16), 20, "native", "traced-staged", "safe", 1, "")
    plan = Plan(settings, missing=lambda number: number % 7 != 0)
    cost, sizes, chis = {8: 0.001, 16: 0.1}, [], []
    given: list[int] = []
    while batch := plan.take(workers=2):
        given += batch.numbers
        sizes.append(len(batch.numbers))
        chis.append(batch.chi)
        plan.computed(batch, cost[batch.chi] * len(batch.numbers))
    assert sorted(given) == [number for number in range(len(settings)) if number % 7]
    assert chis == sorted(chis, reverse=True)
    assert max(sizes) <= BATCH_MAXIMUM
    assert max(size for size, chi in zip(sizes, chis, strict=True) if chi == 16) == BATCH_SECONDS / 0.1
    assert sizes[-1] == 1
    assert plan.seconds_left([]) == 0


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_what_is_kept_comes_back_bit_for_bit(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    out = tmp_path / name
    kept = Store.open(out, SETTINGS, resume=False)
    kept.keep([5, 0], [GOOD, BAD])
    kept.keep([5], [BAD])  # computed twice: the first counts
    kept.write()
    first, last = rows.read(out)
    assert (first.beta, first.chi, first.error, first.lnz) == (0.1, 8, BAD.error, None)
    assert (last.beta, last.chi, last.lnz, last.u) == (0.3, 16, GOOD.lnz, GOOD.u)
    assert (last.specific_heat_exact, last.specific_heat_error, last.versions) == (
        math.inf,
        None,
        "trgbench 0",
    )
    assert (last.lnz_error, last.u_error) == (0.1 + 0.2 - 0.3, -1 / 3 + 0.25)
    kept.close()
    for journal_is_there in (True, False):  # from the journal, then from the output alone
        if not journal_is_there:
            store.journal_of(out).unlink()
        again = Store.open(out, SETTINGS, resume=True)
        assert [number for number in range(6) if again.missing(number)] == [0, 1, 2, 3, 4]
        again.close()
    again = Store.open(out, SETTINGS, resume=True)
    again.keep(range(5), [GOOD] * 5)
    again.finish()
    again.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]
    assert [row.error for row in rows.read(out)] == [None] * 6


@pytest.mark.parametrize("journal", [True, False])
def test_other_settings_are_refused_and_change_nothing(tmp_path: Path, journal: bool) -> None:
    out = tmp_path / "out.csv"
    kept = Store.open(out, SETTINGS, resume=False)
    kept.keep(range(6), [GOOD] * 6)
    (kept.write if journal else kept.finish)()
    kept.close()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other = Settings((0.1, 0.2), (8, 16), 20, "jax", "traced-staged", "safe", 1, "trgbench 0")
    with pytest.raises(
        InputError, match=r"beta was 0.1,0.2,0.3 and is 0.1,0.2; backend was native and is jax"
    ):
        Store.open(out, other, resume=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_two_sweeps_do_not_write_one_output(tmp_path: Path) -> None:
    kept = Store.open(tmp_path / "out.csv", SETTINGS, resume=False)
    for resume in (True, False):
        with pytest.raises(InputError, match="another sweep is writing"):
            Store.open(tmp_path / "out.csv", SETTINGS, resume=resume)
    kept.close()


def test_a_journal_survives_a_full_disk_and_a_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, pwrite = tmp_path / "out.csv", os.pwrite
    kept = Store.open(out, SETTINGS, resume=False)
    kept.keep([1], [GOOD])

    def full(descriptor: int, data: Any, offset: int) -> int:
        if len(data) <= 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(descriptor, data[:-10], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            kept.keep([2], [GOOD])
    kept.keep([3], [GOOD])
    kept.close()
    with store.journal_of(out).open("ab") as journal:
        journal.write(b"[4, 0.1")
    again = Store.open(out, SETTINGS, resume=True)
    assert [number for number in range(6) if not again.missing(number)] == [1, 3]
    again.close()


@pytest.mark.parametrize("content", ["beta,chi\n0.1,8\n", "not a table", 'a"b\n"'])
def test_a_file_that_is_no_sweep_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "out.csv").write_text(content)
    with pytest.raises(InputError, match="not written by a sweep"):
        list(rows.read(tmp_path / "out.csv"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"out": "out.txt"}, "choose one of: csv, parquet"),
        ({"out": "nowhere/out.csv"}, "there is no folder"),
        ({"out": "there.csv"}, "--resume to go on with it, or --force"),
        ({"resume": True, "force": True}, "only one of them"),
        ({"workers": 0}, "workers must be"),
        ({"workers": 10**6}, "workers must be at most"),
        ({"workers": 1, "scheduler": "127.0.0.1:1"}, "give one of them"),
        ({"tls": {"tls_key": "key.pem"}}, "give its address too"),
        ({"scheduler": "127.0.0.1:1", "tls": {"tls_key": "key.pem"}}, "--tls-key: there is no readable file"),
        ({"plot": "out.svg"}, "choose one of: png, html"),
        ({"plot": "nowhere/out.png"}, "cannot be written"),
        ({"plot": "there.png"}, "--force to replace it"),
        ({"backend": "abacus"}, "choose one of"),
        ({"mode": "fast"}, "choose one of"),
        ({"svd": "builtin"}, "choose one of: safe"),
        ({"steps": 0}, "steps must be"),
        ({"chi": 10**6}, "cannot fit"),
        ({"beta": "0.5:0.1:4"}, "is reversed"),
    ],
)
def test_what_a_sweep_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], complaint: str
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    for name in ("there.csv", "there.png"):
        Path(name).touch()
    with pytest.raises(InputError) as caught:
        trgbench.sweep(**{"beta": "0.3", "chi": 4, "out": "out.csv", **options})
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.csv", "there.png"]


def test_torch_says_that_its_traced_modes_have_no_second_derivative(tmp_path: Path) -> None:
    for package in ("distributed", "torch"):
        pytest.importorskip(package)
    with pytest.raises(InputError, match="no derivative of a derivative"):
        trgbench.sweep(0.3, 4, tmp_path / "o.csv", backend="torch", mode="traced", specific_heat=True)


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("html", b"<!doctype html>")])
def test_pictures(tmp_path: Path, ending: str, start: bytes) -> None:
    pytest.importorskip({"png": "matplotlib", "html": "plotly"}[ending])
    from trgbench.sweeps import pictures

    kept = Store.open(tmp_path / "out.csv", SETTINGS, resume=False)
    tied = GOOD._replace(min_cut_gap=1e-15, specific_heat=0.2, specific_heat_exact=0.3)
    kept.keep(range(6), [GOOD, BAD, tied, tied, GOOD, GOOD._replace(u=-0.25)])
    drawn = pictures.curves(kept.rows())
    assert [(curve.chi, len(curve.clear), len(curve.tied)) for curve in drawn] == [(8, 1, 1), (16, 2, 1)]
    path = tmp_path / f"out.{ending}"
    pictures.draw(path, kept.rows())
    kept.close()
    content = path.read_bytes()
    assert content.startswith(start)
    if ending == "html":  # opens without a network
        assert b"<script src=" not in content
        assert b"tie at a cut" in content
