"""The advice: its model and its exclusions as tables, what keeps the costs, and some real measuring."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from trgbench.__main__ import CANNOT, DONE, main
from trgbench.advise import command, profile, survey
from trgbench.advise.advice import Question, advise, as_json, chart, recommendation
from trgbench.advise.costs import NO_TIME_LEFT, Combination, Costs, Setting, break_even
from trgbench.advise.probe import another_shape

TRG = Setting("trg", (("chi", 16), ("steps", 20)))
VECTOR = Setting("vector", (("n", 1000),))
EAGER, TRACED = Combination("native", "eager"), Combination("native", "traced")
JAX, TORCH = Combination("jax", "traced"), Combination("torch", "traced-staged")
BUILTIN = Combination("torch", "eager", "builtin")

MEASURED = {
    EAGER: Costs(prepare=0.1, first=0.25, each=0.2, traced=False, result=0.7),
    TRACED: Costs(trace=0.5, compile=0.5, prepare=0.1, first=0.1, each=0.1, traced=True, result=0.7),
    JAX: Costs(trace=2.0, compile=10.0, prepare=0.1, first=0.05, each=0.05, traced=True, result=0.7),
    TORCH: Costs(why_not="compiling it took more than 25 s", at_least=25.0),
    BUILTIN: Costs(why_not="NaN: the gradient is not finite"),
}


# ---------------------------------------------------------------------------------------- the model


@pytest.mark.parametrize(
    ("ahead", "behind", "wanted"),
    [
        ((1.0, 1.0), (2.0, 2.0), 1),  # ahead all along
        ((2.0, 2.0), (1.0, 1.0), None),  # never
        ((1.0, 2.0), (2.0, 1.0), 1),  # ahead at first only
        ((2.0, 1.0), (1.0, 2.0), 3),  # 2 at N = 2 is a draw: ahead from 3 on
        ((2.5, 1.0), (1.0, 2.0), 3),
        ((1.0, 1.0), (1.0, 1.0), None),  # the same
        ((1.0, 1.0), (1.0, 2.0), 2),  # the same at first
        ((1e6, 1e-9), (1e-9, 2e-9), 10**15 + 1),
    ],
)
def test_break_even(ahead: tuple[float, float], behind: tuple[float, float], wanted: int | None) -> None:
    a, b = (Costs(first=once, each=each) for once, each in (ahead, behind))
    number = break_even(a, b)
    assert number == (wanted if wanted is None or wanted < 10**9 else pytest.approx(wanted, rel=1e-9))
    if number is not None and number < 10**9:
        assert a.seconds(number) < b.seconds(number)
        assert number == 1 or not a.seconds(number - 1) < b.seconds(number - 1)


@pytest.mark.parametrize(
    ("setting", "evaluations", "branches", "wanted"),
    [
        (TRG, 500, False, "traced-staged"),
        (TRG, 1, False, "eager-staged"),
        (TRG, 500, True, "eager-staged"),
        (VECTOR, 500, False, "traced"),
        (VECTOR, 2, False, "eager"),
        (dataclasses.replace(VECTOR, changing_shape=True), 500, False, "eager"),
        (Setting("chain", (("depth", 400),)), 500, False, "traced-staged"),
        (Setting("chain", (("depth", 10),)), 500, False, "traced"),
    ],
)
def test_the_studys_chart(setting: Setting, evaluations: int, branches: bool, wanted: str) -> None:
    assert chart(Question(setting, evaluations, branches)) == wanted


@pytest.mark.parametrize(
    ("evaluations", "branches", "best", "seconds"),
    [
        (1, False, EAGER, 0.35),
        (100, False, TRACED, 11.1),
        (10_000, False, JAX, 512.1),
        (10_000, True, EAGER, 2000.15),
    ],
)
def test_the_fastest_is_recommended(
    evaluations: int, branches: bool, best: Combination, seconds: float
) -> None:
    advice = advise(Question(TRG, evaluations, branches), MEASURED)
    assert advice.best == best
    assert advice.times[best] == pytest.approx(seconds)
    assert list(advice.times.values()) == sorted(advice.times.values())
    sentence = recommendation(advice)
    assert sentence.startswith(f"Use {best}: ")
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_what_is_excluded_says_why() -> None:
    advice = advise(Question(TRG, 100, value_branches=True), MEASURED)
    assert set(advice.times) == {EAGER}
    for key in (TRACED, JAX):
        assert advice.excluded[key].startswith("cannot branch on a value")
        assert "where" in advice.excluded[key]
    assert advice.excluded[TORCH].startswith("cannot branch")  # though it was not measured to the end
    assert advice.excluded[BUILTIN].startswith("NaN")
    advice = advise(Question(TRG, 1000), MEASURED)
    assert advice.excluded[TORCH] == "compiling it took more than 25 s"
    assert "torch traced-staged could not be measured in time" in recommendation(advice)
    assert "torch" not in recommendation(
        advise(Question(TRG, 1), MEASURED)
    )  # 25 s are more than all of the best


def test_a_gradient_that_is_not_that_of_the_others_is_excluded() -> None:
    wrong = {**MEASURED, JAX: dataclasses.replace(MEASURED[JAX], result=0.7 + 1e-4)}
    advice = advise(Question(TRG, 10_000), wrong)
    assert advice.excluded[JAX].startswith("wrong")
    assert advice.best == TRACED


def test_nothing_to_recommend_is_said() -> None:
    advice = advise(Question(TRG, 1), {TORCH: MEASURED[TORCH]})
    assert advice.best is None
    assert recommendation(advice).startswith("Nothing can be recommended")
    assert as_json(advice)["recommended"] is None


def test_json_has_every_pair_of_break_evens() -> None:
    content = as_json(advise(Question(TRG, 100), MEASURED))
    pairs = {(*entry["ahead"], *entry["behind"]): entry["from"] for entry in content["break_evens"]}
    assert len(pairs) == 6
    assert pairs["native", "traced", "native", "eager"] == 10  # 1.2 + 0.1 (N − 1) < 0.35 + 0.2 (N − 1)
    assert [entry["seconds"] is None for entry in content["combinations"]] == [False] * 3 + [True] * 2


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        (("vector", {"n": 5}), {"n": 6}),
        (("chain", {"depth": 7}), {"depth": 7, "n": 11}),
        (("trg", {"chi": 16, "steps": 20}), {"chi": 15, "steps": 20}),
        (("trg", {"chi": 99, "steps": 3}), {"chi": 3, "steps": 3}),  # 3 steps keep at most 4
        (("trg", {"chi": 2, "steps": 9}), {"chi": 3, "steps": 9}),
    ],
)
def test_another_shape(sizes: tuple[str, dict[str, int]], wanted: dict[str, int]) -> None:
    assert another_shape(*sizes) == wanted


# -------------------------------------------------------------------------------- keeping the costs


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "trgbench" / "advice.json"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Combination]:
    """Measure nothing; return the list of what would have been measured."""
    found: list[Combination] = []

    def measure_one(setting: Setting, combination: Combination, limit: float) -> Costs:
        found.append(combination)
        return MEASURED.get(combination, Costs(why_not="not installed: no such thing"))

    monkeypatch.setattr(survey, "measure_one", measure_one)
    return found


ADVISE = ["advise", "--problem", "vector", "--n", "1000", "--json"]


def test_costs_are_measured_once(
    path: Path, asked: list[Combination], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ADVISE, "--evaluations", "100"]) == DONE
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert content["recommended"] == {"backend": "native", "mode": "traced", "svd": "safe"}
    assert err == ""
    assert len(asked) == len(set(asked)) == 12
    assert main([*ADVISE, "--evaluations", "1"]) == DONE  # another question, the same costs
    assert json.loads(capsys.readouterr().out)["recommended"]["mode"] == "eager"
    assert len(asked) == 12
    assert main([*ADVISE, "--changing-shape"]) == DONE
    assert len(asked) == 24
    # 'torch traced-staged' had taken too long: a larger budget tries it again
    assert main([*ADVISE, "--budget", "500"]) == DONE
    assert asked[24:] == [TORCH]
    assert Costs.from_json(json.loads(json.dumps(MEASURED[TORCH].to_json()))).at_least == 25


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cpu": "another"}, "measured with cpu another, and here it is"),
        ({"numpy": "1.0"}, "measured with numpy 1.0, and here it is"),
        ({"sources": "00"}, "measured with sources 00, and here it is"),
    ],
)
def test_costs_of_another_machine_or_version(
    path: Path,
    asked: list[Combination],
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    reason: str,
) -> None:
    main(ADVISE)
    content = json.loads(path.read_text())
    content["conditions"] |= change
    foreign = json.dumps(content)
    path.write_text(foreign)
    capsys.readouterr()
    assert main([*ADVISE, "--profile", str(path)]) == CANNOT  # a file of the user's is not replaced
    assert reason in capsys.readouterr().err
    assert path.read_text() == foreign
    assert main(ADVISE) == DONE  # our own is, and it says why
    assert reason in capsys.readouterr().err
    assert len(asked) == 24
    assert json.loads(path.read_text())["conditions"] == profile.conditions()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 0}',
        '{"format": 1, "conditions": {}, "settings": {"x": [1]}}',
        "\x00",
        "[" * 99999,
    ],
)
def test_a_broken_profile_is_no_profile(
    path: Path, asked: list[Combination], capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path.parent.mkdir()
    path.write_text(text)
    assert main([*ADVISE, "--profile", str(path)]) == CANNOT
    assert main(ADVISE) == DONE
    assert "not readable" in capsys.readouterr().err
    assert main([*ADVISE, "--profile", str(path)]) == DONE


@pytest.mark.parametrize(
    "change",
    [{"first": -1.0}, {"first": None}, {"each": "fast"}, {"extra": 1}, {"why_not": 3}, {"result": "x"}],
)
def test_costs_that_are_none_are_refused(change: dict[str, Any]) -> None:
    good = MEASURED[TRACED].to_json()
    assert Costs.from_json(good) == MEASURED[TRACED]
    with pytest.raises(ValueError, match="costs"):
        Costs.from_json({**good, **change})


def test_a_place_that_cannot_be_written_is_said_before_measuring(
    tmp_path: Path,
    asked: list[Combination],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert main(ADVISE) == CANNOT
    assert main([*ADVISE, "--profile", str(tmp_path / "none" / "x.json")]) == CANNOT
    assert main([*ADVISE, "--profile", str(tmp_path)]) == CANNOT
    assert capsys.readouterr().err.count("trgbench: error: cannot ") == 3
    assert asked == []


def test_an_interrupted_survey_goes_on_where_it_was(
    path: Path, asked: list[Combination], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = survey.measure_one

    def interrupted(*arguments: Any) -> Costs:
        if len(asked) == 5:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(survey, "measure_one", interrupted)
    assert main(ADVISE) == 128 + signal.SIGINT
    assert len(profile.Profile.parse(path.read_text()).settings[str(VECTOR)]) == 5
    monkeypatch.setattr(survey, "measure_one", whole)
    assert main(ADVISE) == DONE
    assert len(asked) == len(set(asked)) == 12
    assert sorted(os.listdir(path.parent)) == [".advice.json.lock", "advice.json"]


def test_two_at_once_measure_once(path: Path, asked: list[Combination]) -> None:
    def ask() -> None:
        command.costs_of(VECTOR, 100.0, None, lambda doing: None, lambda note: None)

    path.parent.mkdir()
    with open(path.with_name(".advice.json.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a first one does while it measures
        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        assert asked == []
    for thread in threads:
        thread.join()
    assert len(asked) == len(set(asked)) == 12


# ---------------------------------------------------------------------------------------- measuring


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("combination", [EAGER, TRACED], ids=str)
def test_a_combination_is_measured(combination: Combination, changing: bool) -> None:
    setting = Setting("trg", (("chi", 4), ("steps", 3)), changing_shape=changing)
    costs = survey.measure_one(setting, combination, 60.0)
    assert costs.why_not is None
    assert 0 < costs.first < 1
    assert 0 < costs.each < 1
    assert costs.traced == (combination is TRACED) == (costs.trace is not None)
    assert costs.result == pytest.approx(0.87, abs=0.2)
    assert costs.process is not None and costs.process > 2**24
    assert Costs.from_json(costs.to_json()) == costs


def test_a_combination_that_takes_too_long_is_given_up() -> None:
    start = time.monotonic()
    costs = survey.measure_one(Setting("chain", (("depth", 10**6),)), EAGER, 2.0)
    assert time.monotonic() - start < 5
    assert costs.why_not is not None
    assert "took more than" in costs.why_not
    assert costs.given_up
    assert math.isnan(costs.each)


def test_a_measuring_process_that_dies_is_an_exclusion() -> None:
    costs = survey.measure_one(Setting("vector", (("n", 10**12),)), EAGER, 30.0)
    assert costs.why_not is not None
    assert "MemoryError" in costs.why_not or "killed" in costs.why_not
    assert not costs.given_up


def test_what_is_left_when_the_time_is_used_up_is_not_begun(asked: list[Combination]) -> None:
    found = dict(survey.measure_all(VECTOR, [EAGER, TRACED], 1.0, lambda doing: None))
    assert asked == []
    assert {costs.why_not for costs in found.values()} == {NO_TIME_LEFT}


# ------------------------------------------------------------------------------------ what is asked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--problem", "ising"], "unknown problem 'ising'; choose one of: vector, chain, trg"),
        (["--problem", "vector"], "problem vector wants --n; --n is missing"),
        (
            ["--problem", "vector", "--n", "10", "--chi", "4"],
            "--chi is no size of problem vector; it takes --n",
        ),
        (["--problem", "vector", "--n", "0"], "n must be a whole number of at least 1; got 0"),
        (["--problem", "vector", "--n", str(10**15)], "cannot fit into"),
        (["--chi", "1"], "chi must be a whole number of at least 2; got 1"),
        (["--chi", "400"], "cannot fit into"),
        (["--evaluations", "0"], "evaluations must be a whole number of at least 1; got 0"),
        (["--evaluations", "many"], "evaluations must be a whole number of at least 1; got 'many'"),
        (["--threads", "9999"], "threads must be at most"),
        (["--budget", "0"], "budget must be a number of seconds, 1 to 86400; got 0.0"),
        (["--budget", "nan"], "budget must be"),
        (["--fixed-shape", "--changing-shape"], "not allowed with argument"),
    ],
)
def test_a_question_that_cannot_be_answered(
    arguments: list[str], said: str, asked: list[Combination], path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", *arguments]) == CANNOT
    out, err = capsys.readouterr()
    assert said in err
    assert err.count("\n") == 1
    assert out == ""
    assert asked == []


def test_advice_for_people(path: Path, asked: list[Combination], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "--evaluations", "100"]) == DONE
    out = capsys.readouterr().out
    said = ("trg(chi=16, steps=20)", "Break-even", "Excluded", "NaN: the gradient", "Use native traced: 100")
    assert all(part in out for part in said), out
    assert BUILTIN in asked
