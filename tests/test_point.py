"""One TRG calculation beside the exact solution: how it is told, and what is refused before it starts."""

import dataclasses
import math
from typing import Any

import pytest

from trgbench import point
from trgbench.errors import InputError

POINT = point.Point(
    beta=0.44,
    steps=20,
    chi=16,
    backend="torch",
    mode="eager",
    threads=1,
    svd="safe",
    lnz=0.93,
    u=-1.4,
    lnz_exact=0.92,
    u_exact=-1.3,
    min_cut_gap=0.1,
    times={"trace": None, "compile": 2.5, "prepare": 0.0, "first_run": 0.02, "steady_run": 3e-6},
)


@pytest.mark.parametrize(
    ("changes", "wanted", "unwanted"),
    [
        (
            {},
            ["+1.000e-02", "-1.000e-01", "cut: 0.1", "compile 2.5 s", "steady run 3 us"],
            ["trace", "not finite"],
        ),
        ({"min_cut_gap": 0.003}, ["0.003 (small: lnZ/N may jump"], []),
        ({"min_cut_gap": 3e-15}, ["a cut parts two singular values", "use another chi"], ["not u)"]),
        ({"min_cut_gap": 1.0}, ["nothing was cut"], ["(small"]),
        ({"u": math.nan}, ["u               not finite", "double precision at beta = 0.44"], ["--svd"]),
        ({"u": math.nan, "svd": "builtin"}, ["0.93", "not finite", "--svd safe"], ["nan"]),
        ({"lnz": math.inf, "u": math.nan}, ["lnZ/N           not finite"], ["inf ", "nan"]),
    ],
)
def test_report(changes: dict[str, Any], wanted: list[str], unwanted: list[str]) -> None:
    changed = dataclasses.replace(POINT, **changes)
    text = "\n".join([point.report(changed), *point.remarks(changed)])
    assert [part for part in wanted if part not in text] == []
    assert [part for part in unwanted if part in text] == []


@pytest.mark.parametrize(
    ("chi", "steps", "memory", "fits"),
    [
        (16, 20, 10**8, True),
        (10**9, 4, 2**20, True),  # four steps are exact at bond dimension 16
        (64, 20, 10**9, False),
        (10**9, 20, 2**40, False),
        (10**9, 100, 2**40, False),
        (10**200, 100, 2**40, False),
    ],
)
def test_what_cannot_fit_is_refused_at_once(chi: int, steps: int, memory: int, fits: bool) -> None:
    if fits:
        point.check_affordable(chi, steps, memory)
    else:
        with pytest.raises(
            InputError, match=r"^chi=\d+\S* at steps=\d+ cannot fit .*; choose a chi well below \d+$"
        ):
            point.check_affordable(chi, steps, memory)
