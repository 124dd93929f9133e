"""Every claim's verdict follows from what was measured: break the fact in real data, and the verdict turns.

`study_example.json` is a run of `trgbench study`, as it was measured.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trgbench import study
from trgbench.study.claims import FAILS, HOLDS, UNMEASURED, VERDICTS, Claim

EXAMPLE = json.loads((Path(__file__).parent / "study_example.json").read_text())
DATA = {entry["id"]: entry["data"] for entry in EXAMPLE["experiments"]}
LEDGER = [(name, claim) for name in study.EXPERIMENTS for claim in study.get(name).CLAIMS]

Change = tuple[
    str, Any
]  # a path into the experiment's data, and what it is to be, or a function of what it is


def times(factor: float) -> Callable[[float], float]:
    return lambda number: number * factor


SIN, COS, N2 = "jax/1000/sin_equal", "jax/1000/cos_equal", "fma(sin, 2x, x²·cos)"
EAGER_BITS = "0x1.b027db048a41ap-1"
OTHER_BITS = "0x1.b027db048a500p-1"

# Claim → what breaks the fact behind it (or makes it, where it does not hold on the machine of the example).
BREAKS: dict[str, list[Change]] = {
    "native-modes-same-bits": [("native/threads/2/equal", 999)],
    "native-widths-same-bits": [("native/same_at_all_widths/traced", False)],
    "jax-modes-differ-in-bits": [("jax/threads/1/equal", 1000), ("jax/threads/2/equal", 1000)],
    "jax-modes-differ-in-last-digit": [("jax/threads/1/max_difference", 1e-9)],
    "jax-sin-cos-same-bits": [(SIN, 999)],
    "jax-nojit-is-plain": [("jax/1000/nojit_plain", 998)],
    "jax-jit-is-one-kernel": [("jax/1000/kernels", 3)],
    "jax-jit-fuses-sin-product": [(f"jax/1000/jit/{N2}", 993)],
    "jax-jit-contracts-one-product": [("jax/1000/jit", lambda found: dict.fromkeys(found, 500))],
    "jax-some-elements-unexplained": [("jax/1000/unexplained", ["0x1.0p+0"] * 7)],
    "jax-jit-is-not-plain": [("jax/1000/jit/plain", 1000)],
    "trg-modes-same-bits": [("native/traced/bits", OTHER_BITS)],
    "trg-staged-same-bits": [("native/eager-staged/bits", OTHER_BITS)],
    "trg-gradient-is-exact": [("native/traced-staged/gradient", 0.8440540746)],
    "trg-torch-agrees": [("torch/eager/gradient", 0.8440540746)],
    "eager-backward-has-fixed-cost": [("native/1/1000/backward", times(100))],
    "eager-slower-when-small": [("native/1/10/eager_over_traced", 1.0)],
    "eager-overhead-amortises": [("native/1/1000000/eager_over_traced", 8.0)],
    "recording-doubles-a-small-forward": [("native/1/1000/recorded_over_not", 2.0)],
    "traced-uses-threads": [("native_speedup/traced", 7.0)],
    "eager-uses-threads-badly": [("native_speedup/eager", times(0.1))],
    "jax-nojit-is-flat": [("jax/1/1000/eager", times(100))],
    "jax-nojit-is-no-counterpart": [("jax/1/1000/eager", times(1e-3))],
    "jax-jit-fastest-when-small": [("jax/1/10/traced", times(1e-2))],
    "eager-backward-above-torch-when-small": [("torch/1/10/backward", times(1e-2))],
    "first-eager-below-jax": [("native/eager/total", times(1e3))],
    "first-traced-below-jax": [("native/traced/total", times(1e3))],
    "first-nojit-above-jit": [("jax/traced/total", times(10))],
    "first-backward-prepares": [("native/eager/steady", times(1e4))],
    "first-traced-below-eager": [("native/traced/total", times(10))],
    "depth-eager-backward-superlinear": [("native/growth/backward", 13.0)],
    "depth-eager-backward-above-traced": [("native_backward/over_traced", 39.0)],
    "depth-eager-backward-above-torch": [("native_backward/over_torch", 31.0)],
    "depth-eager-forward-linear": [("native/growth/forward", 16.0)],
    "depth-traced-linear": [("native/growth/traced", 16.0)],
    "depth-torch-backward-linear": [("torch/growth/backward", 16.0)],
    "whole-eager-backward-takes-seconds": [("native/eager/4/backward", 7.5)],
    "whole-eager-pays-every-time": [(f"native/calls/{call}/backward", 7.5) for call in range(4)],
    "whole-eager-cache-hits": [("native/calls/3/misses", 4), ("native/calls/3/hits", 0)],
    "whole-transform-exponential": [("native/traced/20/trace", times(1000))],
    "whole-operations-grow": [("native/traced/4/operations", 863)],
    "whole-operations-linear": [("native/traced/20/operations", times(4))],
    "whole-traced-pays-once": [("native/traced/4/run", times(1000))],
    "whole-eager-worse-than-traced": [("native/eager/4/run", 7.5)],
    "whole-torch-backward-small": [("torch/eager/4/backward", 7.5)],
    "staged-native-energies": [("native/eager-staged/0.44/u", -1.4)],
    "staged-torch-energies": [("torch/eager-staged/0.6/u", -1.9)],
    "staged-error-is-largest-near-critical": [("native/eager-staged/0.3/error", 0.01)],
    "staged-modes-near": [
        ("native/eager-staged/0.3/bits", EAGER_BITS),
        ("native/traced-staged/0.3/bits", "0x1.b027db048a424p-1"),
    ],
    "staged-beats-whole-in-eager": [("four_steps/whole", 6.981)],
    "staged-eager-faster-than-traced": [("ratio/eager_over_traced", 0.675)],
    "staged-backward-below-forward": [("halves/0.3/backward", times(20))],
    "cache-one-entry-a-shape": [("native/after/4/entries", 22)],
    "cache-shared-by-all-beta": [("native/after/4/misses", 35)],
    "cache-hits-the-rest": [("native/after/4/hits", 400)],
    "cache-evicts-nothing": [("native/after/4/evictions", 3)],
    "cache-is-small": [("native/after/4/retained_bytes", 10**9)],
    "svd-torch-20-steps-nan": [("torch/builtin/20/gradient_finite", True)],
    "svd-torch-nan-from-step-5": [("torch/builtin/4/gradient_finite", False)],
    "svd-jax-nan-from-step-5": [("jax/builtin/5/gradient_finite", True)],
    "svd-native-finite": [("native/safe/20/gradient", 0.7045)],
    "svd-torch-safe-right": [("torch/safe/20/gradient", 0.7045)],
    "shape-miss-then-hits": [("native/new shape again/misses", 3)],
    "shape-entries-stay": [("native/old shape again/programs", 1)],
    "shape-new-costs-more": [("native/new shape/seconds", times(1e-3))],
    "shape-new-below-first": [("native/new shape/seconds", times(1e4))],
    "shape-jax-compiles-again": [("jax/new shape/programs", 1)],
    "shape-native-below-jax": [("jax/new shape/seconds", times(1e-4))],
    "native-eager-branches": [("native/eager/right", False)],
    "native-traced-refuses-branch": [("native/traced/refuses", False)],
    "native-where-same-bits": [("native/where/same_bits", False)],
    "jax-jit-refuses-branch": [("jax/traced/refuses", False)],
    "jax-eager-branches": [("jax/eager/right", False)],
    "torch-eager-branches": [("torch/eager/right", False)],
}


def changed(data: dict[str, Any], changes: list[Change]) -> dict[str, Any]:
    """Return a copy of `data` with each change made; the path must be there."""
    result = copy.deepcopy(data)
    for path, new in changes:
        *folders, last = path.split("/")
        place: Any = result
        for name in folders:
            place = place[int(name)] if isinstance(place, list) else place[name]
        key: Any = int(last) if isinstance(place, list) else last
        place[key] = new(place[key]) if callable(new) else new
    return result


def test_the_ledger_is_whole() -> None:
    ids = [claim.id for _, claim in LEDGER]
    assert len(ids) == len(set(ids)) >= 30
    assert set(BREAKS) == set(ids), "each claim needs a case that breaks the fact behind it"
    assert {name for name, _ in LEDGER} == set(study.EXPERIMENTS)
    assert {claim.about for _, claim in LEDGER} == {"native", "jax", "torch"}
    assert all(claim.about == "native" for _, claim in LEDGER if claim.better)


@pytest.mark.parametrize(("name", "claim"), LEDGER, ids=lambda part: getattr(part, "id", ""))
def test_a_verdict_turns_when_its_fact_is_broken(name: str, claim: Claim) -> None:
    before = claim.judged(name, DATA[name])
    after = claim.judged(name, changed(DATA[name], BREAKS[claim.id]))
    assert before["verdict"] in (HOLDS, FAILS), before["reason"]
    assert {before["verdict"], after["verdict"]} == {HOLDS, FAILS}
    assert before["measured"]
    assert before["reason"].startswith("met" if before["verdict"] == HOLDS else "not met")


@pytest.mark.parametrize(("name", "claim"), LEDGER, ids=lambda part: getattr(part, "id", ""))
def test_without_its_measurement_a_claim_says_why(name: str, claim: Claim) -> None:
    reason = "backend jax needs the package jax, which is not installed"
    for data in ({key: {"missing": reason} for key in DATA[name]}, {"missing": reason}):
        entry = claim.judged(name, data)
        assert (entry["verdict"], entry["reason"]) == (UNMEASURED, reason)
        assert (entry["value"], entry["measured"]) == (None, "")


def test_claims_about_others_survive_a_missing_backend() -> None:
    for name, claim in LEDGER:
        data = {key: {"missing": "gone"} if key == "jax" else part for key, part in DATA[name].items()}
        verdict = claim.judged(name, data)["verdict"]
        if claim.about == "jax":
            assert verdict == UNMEASURED, claim.id
        elif "jax" not in claim.id:
            assert verdict in VERDICTS[:2], claim.id


def test_the_example_was_judged_as_this_version_judges() -> None:
    judged = {claim.id: claim.judged(name, DATA[name])["verdict"] for name, claim in LEDGER}
    assert judged == {entry["id"]: entry["verdict"] for entry in EXAMPLE["claims"]}
