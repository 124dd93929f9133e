"""Our own engine: eager and traced share one VJP transform, so both give the same bits."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import trgbench
from trgbench import engine, staged
from trgbench.backends import MODES, Built
from trgbench.problems import Problem
from trgbench.staged import Stage

__all__ = ["MODES", "SVD_RULES", "build", "unavailable", "version"]

SVD_RULES = ("safe",)  # the engine has one rule, and it is finite


def version() -> str:
    return trgbench.__version__


def unavailable(mode: str) -> str | None:
    """Every mode runs wherever NumPy does."""
    return None


def build(problem: Problem, mode: str, threads: int, svd: str) -> Built:
    """Make `problem` ready; see `trgbench.backends`."""
    runtime = engine.Runtime(width=threads)
    start = time.perf_counter()
    costs: dict[str, float | None] = {"trace": None, "compile": None, "prepare": None}
    if mode == "traced":
        graph = engine.trace(
            lambda x: problem.value(engine, engine.svd, x), engine.spec(problem.example.shape)
        )
        graph = engine.value_and_grad(graph)
        costs["trace"] = time.perf_counter() - start
        start = time.perf_counter()
        run = runtime.prepare(graph)
        costs["compile"] = time.perf_counter() - start
    elif mode == "traced-staged":
        programs = _Programs(runtime)
        programs.prepare_all(problem)
        run = _sweep(problem, programs)
        costs["trace"], costs["compile"] = programs.trace_seconds, programs.compile_seconds
    elif mode == "eager-staged":
        run = _sweep(problem, _Leaves(runtime))
    else:
        run = _eager(problem, runtime)
    if not mode.startswith("traced"):
        run(_asarray(problem.example))  # makes the derivative programs, which later runs find in the cache
        costs["prepare"] = time.perf_counter() - start
    return Built(run, _asarray, costs)


def _asarray(x: np.ndarray) -> np.ndarray:
    """A read-only copy, which the engine need not copy again."""
    array = np.array(x, dtype=np.float64)
    array.flags.writeable = False
    return array


def _eager(problem: Problem, runtime: engine.Runtime) -> Any:
    session = engine.Session(runtime=runtime)

    def run(x: np.ndarray) -> tuple[Any, Any]:
        leaf = session.variable(x)
        value = problem.value(engine, engine.svd, leaf)
        value.backward()
        return value.value, leaf.grad

    return run


def _sweep(problem: Problem, runner: staged.Runner) -> Any:
    return lambda x: staged.value_and_gradient(problem.stages, x, runner)


class _Leaves:
    """Eager and in stages: a leaf, a small recording and a backward for each."""

    def __init__(self, runtime: engine.Runtime) -> None:
        self.runtime = runtime

    def forward(self, stage: Stage, carry: np.ndarray) -> tuple[Any, Any, Any]:
        session = engine.Session(runtime=self.runtime)
        leaf = session.variable(carry)
        carry_out, term = stage.function(engine, engine.svd, leaf)
        carry_array, term_array = (None if out is None else out.value for out in (carry_out, term))
        return carry_array, term_array, (session, leaf, carry_out, term)

    def backward(self, stage: Stage, saved: Any, ct_carry: Any, ct_term: float | None) -> np.ndarray:
        session, leaf, carry_out, term = saved
        seeded = [(out, ct) for out, ct in ((carry_out, ct_carry), (term, ct_term)) if out is not None]
        session.backward([out for out, _ in seeded], [ct for _, ct in seeded])
        return leaf.grad


class _Programs:
    """Traced and in stages: a forward and a reverse program for each stage function and shape.

    The forward program hands the reverse program its residuals, so no SVD is done twice.
    """

    def __init__(self, runtime: engine.Runtime) -> None:
        self.runtime = runtime
        self.programs: dict[tuple, tuple[engine.PreparedProgram, engine.PreparedProgram, bool, bool]] = {}
        self.trace_seconds = self.compile_seconds = 0.0

    def prepare_all(self, problem: Problem) -> None:
        """Prepare the programs of all stages, by running the shapes through them."""
        carry = problem.example
        for stage in problem.stages:
            carry, _, _ = self.forward(stage, carry)

    def _programs(self, stage: Stage, carry: np.ndarray) -> Any:
        key = (stage.function, carry.shape)
        found = self.programs.get(key)
        if found is None:
            found = self.programs[key] = self._make(stage, carry)
        return found

    def _make(self, stage: Stage, carry: np.ndarray) -> Any:
        has: list[bool] = []

        def outputs(x: Any) -> list[Any]:
            given = stage.function(engine, engine.svd, x)
            has[:] = [out is not None for out in given]
            return [out for out in given if out is not None]

        start = time.perf_counter()
        forward, reverse = engine.pullback(engine.trace(outputs, engine.spec(carry.shape)))
        traced = time.perf_counter()
        programs = self.runtime.prepare(forward), self.runtime.prepare(reverse)
        self.trace_seconds += traced - start
        self.compile_seconds += time.perf_counter() - traced
        return *programs, *has

    def forward(self, stage: Stage, carry: np.ndarray) -> tuple[Any, Any, Any]:
        forward, reverse, has_carry, has_term = self._programs(stage, carry)
        results = list(forward(carry))
        carry_out = results.pop(0) if has_carry else None
        term = results.pop(0) if has_term else None
        return carry_out, term, (reverse, results)

    def backward(self, stage: Stage, saved: Any, ct_carry: Any, ct_term: float | None) -> np.ndarray:
        reverse, residuals = saved
        return reverse(*residuals, *[ct for ct in (ct_carry, ct_term) if ct is not None])[0]
