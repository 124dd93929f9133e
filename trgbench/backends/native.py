"""Our own engine: eager and traced share one VJP transform, so both give the same bits.

| mode | what it does |
|---|---|
| eager | a tape, and `backward` over it |
| traced | one prepared program |
| eager-staged | a leaf, a small tape and a backward for every stage |
| traced-staged | a forward and a reverse program for each stage shape, shared by all equal stages |
| forward | one prepared program of values and tangents; no tape |
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import trgbench
from trgbench import engine, staged
from trgbench.backends import MODES, Built
from trgbench.problems import Problem
from trgbench.staged import Stage

__all__ = ["MODES", "SVD_RULES", "build", "unavailable", "version"]

# The engine's derivative is finite with every method; what differs is which triplets are computed.
SVDS = {
    "safe": functools.partial(engine.svd, method="full"),
    "lanczos": functools.partial(engine.svd, method="auto"),
    "matrix-free": engine.linalg.network_svd,
}
SVD_RULES = tuple(SVDS)


def version() -> str:
    return trgbench.__version__


def unavailable(mode: str, order: int) -> str | None:
    """Every mode runs wherever NumPy does."""
    return None


def build(problem: Problem, mode: str, threads: int, svd: str, order: int, recompute: bool) -> Built:
    """Return the problem ready to run; see `trgbench.backends`."""
    runtime, rule = engine.Runtime(width=threads), SVDS[svd]
    if svd == "matrix-free" and problem.matrix_free:
        problem = dataclasses.replace(problem, stages=problem.matrix_free)
    costs: dict[str, float | None] = {"trace": None, "compile": None, "prepare": None}
    lazy = 0.0  # seconds of tracing and compiling that fall into the first run
    run: Callable[[np.ndarray], Any]
    if mode in ("traced", "forward"):
        start = time.perf_counter()
        graph = _graph(problem, mode, order, rule)
        middle = time.perf_counter()
        program = runtime.prepare(graph)
        costs["trace"], costs["compile"] = middle - start, time.perf_counter() - middle
        run = program if mode == "traced" else _along_one(program, order)
    elif mode == "eager":
        run = _eager(problem, runtime, order, rule)
    else:
        runner: Programs | Tapes = (
            Programs(runtime, rule) if mode == "traced-staged" else Tapes(runtime, rule)
        )
        run = (
            functools.partial(staged.value_and_gradient, problem.stages, runner=runner, recompute=recompute)
            if order == 1
            else functools.partial(staged.hessian_vector, problem.stages, vector=np.ones(()), runner=runner)
        )
    start = time.perf_counter()
    run(_asarray(problem.example))  # makes the programs, which later runs find in the cache
    first = time.perf_counter() - start
    if mode == "traced-staged":
        assert isinstance(runner, Programs)
        costs["trace"], costs["compile"] = runner.trace_seconds, runner.compile_seconds
        lazy = runner.trace_seconds + runner.compile_seconds
    costs["first_run"] = first - lazy
    return Built(run, _asarray, costs)


def _asarray(x: np.ndarray) -> np.ndarray:
    """A read-only copy, which the engine need not copy again."""
    array = np.array(x, dtype=np.float64)
    array.flags.writeable = False
    return array


def _graph(problem: Problem, mode: str, order: int, svd: Any) -> engine.Graph:
    """Return the graph x → (value, gradient[, second derivative]), or for `forward` that of its tangents."""
    graph = engine.trace(lambda x: problem.value(engine, svd, x), engine.spec(problem.example.shape))
    if mode == "forward":
        return engine.jvp(graph) if order == 1 else engine.jvp(engine.jvp(graph), 0)
    if order == 1:
        return engine.value_and_grad(graph)
    gradient = engine.value_and_grad(graph)
    second = engine.grad(engine.grad(graph))
    return engine.trace(lambda x: (*gradient(x), second(x)), engine.spec(problem.example.shape))


def _along_one(program: engine.PreparedProgram, order: int) -> Callable[[np.ndarray], Any]:
    """Run a program of tangents along 1: its outputs are f, f′ and, of the second order, f, f′, f′, f″."""
    one = np.ones(())

    def run(x: np.ndarray) -> Any:
        outputs = program(x, *[one] * order)
        return outputs[:2] if order == 1 else (outputs[0], outputs[1], outputs[3])

    return run


def _eager(problem: Problem, runtime: engine.Runtime, order: int, svd: Any) -> Callable[[np.ndarray], Any]:
    session = engine.Session(runtime=runtime)

    def run(x: np.ndarray) -> Any:
        leaf = session.variable(x)
        value = problem.value(engine, svd, leaf)
        if order == 1:
            value.backward()
            return value.value, leaf.grad
        (gradient,) = session.grad(value, [leaf])
        gradient.backward()
        return value.value, gradient.value, leaf.grad

    return run


class Tapes:
    """Eager and in stages: a leaf, a small recording and a backward for each."""

    def __init__(self, runtime: engine.Runtime, svd: Any) -> None:
        self.runtime, self.svd = runtime, svd

    def forward(self, stage: Stage, carry: np.ndarray) -> tuple[Any, Any, Any]:
        session = engine.Session(runtime=self.runtime)
        leaf = session.variable(carry)
        carry_out, term = stage.function(engine, self.svd, leaf)
        carry_array, term_array = (None if out is None else out.value for out in (carry_out, term))
        # Now only the results hold the recording: else it and its session would hold each other, and what a
        # recomputing sweep drops here would stay until Python next collects cycles.
        session.clear()
        return carry_array, term_array, (session, leaf, carry_out, term)

    def backward(self, stage: Stage, saved: Any, ct_carry: Any, ct_term: float | None) -> np.ndarray:
        session, leaf, carry_out, term = saved
        seeded = [(out, ct) for out, ct in ((carry_out, ct_carry), (term, ct_term)) if ct is not None]
        session.backward([out for out, _ in seeded], [ct for _, ct in seeded])
        return leaf.grad

    def backward_again(
        self, stage: Stage, carry: np.ndarray, ct_carry: Any, ct_term: float | None, adjoint: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        session = engine.Session(runtime=self.runtime)
        leaf = session.variable(carry)
        seed = None if ct_carry is None else session.variable(ct_carry)
        (gradient,) = session.grad(_surrogate(stage, self.svd, leaf, seed, ct_term), [leaf])
        session.backward([gradient], [adjoint])
        return leaf.grad, None if seed is None else seed.grad


class Programs:
    """Traced and in stages: a forward and a reverse program for each stage function and shape.

    The forward program hands the reverse program its residuals, so no SVD is done twice.
    """

    def __init__(self, runtime: engine.Runtime, svd: Any) -> None:
        self.runtime, self.svd = runtime, svd
        self.made: dict[tuple, Any] = {}
        self.trace_seconds = self.compile_seconds = 0.0

    def _prepared(self, *graphs: engine.Graph) -> list[engine.PreparedProgram]:
        start = time.perf_counter()
        programs = [self.runtime.prepare(graph) for graph in graphs]
        self.compile_seconds += time.perf_counter() - start
        return programs

    def _forward_and_reverse(self, stage: Stage, carry: np.ndarray) -> Any:
        """Return the two programs, and which of (carry_out, term) the stage has."""
        key = (stage.function, carry.shape)
        if key not in self.made:
            start = time.perf_counter()
            has: list[bool] = []

            def outputs(x: Any) -> list[Any]:
                results = stage.function(engine, self.svd, x)
                has.extend(out is not None for out in results)
                return [out for out in results if out is not None]

            graphs = engine.pullback(engine.trace(outputs, engine.spec(carry.shape)))
            self.trace_seconds += time.perf_counter() - start
            self.made[key] = (*self._prepared(*graphs), *has)
        return self.made[key]

    def forward(self, stage: Stage, carry: np.ndarray) -> tuple[Any, Any, Any]:
        forward, reverse, has_carry, has_term = self._forward_and_reverse(stage, carry)
        results = list(forward(carry))
        carry_out = results.pop(0) if has_carry else None
        term = results.pop(0) if has_term else None
        return carry_out, term, (reverse, results)

    def backward(self, stage: Stage, saved: Any, ct_carry: Any, ct_term: float | None) -> np.ndarray:
        reverse, residuals = saved
        return reverse(*residuals, *[ct for ct in (ct_carry, ct_term) if ct is not None])[0]

    def backward_again(
        self, stage: Stage, carry: np.ndarray, ct_carry: Any, ct_term: float | None, adjoint: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        key = (stage.function, carry.shape, "again")
        # The weight is an input: stages that differ in nothing else share the program.
        arguments = [carry, adjoint, 0.0 if ct_term is None else ct_term]
        arguments += [] if ct_carry is None else [ct_carry]
        if key not in self.made:
            start = time.perf_counter()
            x_spec, v_spec, *specs = [engine.spec(np.shape(argument)) for argument in arguments]
            silent = ct_term is None
            gradient = engine.grad(
                engine.trace(
                    lambda x, weight, seed=None: _surrogate(
                        stage, self.svd, x, seed, None if silent else weight
                    ),
                    x_spec,
                    *specs,
                )
            )
            along = engine.trace(
                lambda x, v, *rest: engine.sum(gradient(x, *rest) * v), x_spec, v_spec, *specs
            )
            graph = engine.grad(along, (0,) if ct_carry is None else (0, 3))
            self.trace_seconds += time.perf_counter() - start
            (self.made[key],) = self._prepared(graph)
        at_carry, *at_seed = self.made[key](*arguments)
        return at_carry, at_seed[0] if at_seed else None


def _surrogate(stage: Stage, svd: Any, leaf: Any, seed: Any, weight: float | None) -> Any:
    """Return ⟨carry_out, seed⟩ + weight · term, whose gradient with respect to the leaf flows back."""
    carry_out, term = stage.function(engine, svd, leaf)
    parts = [] if seed is None else [engine.sum(carry_out * seed)]
    parts += [] if weight is None else [term * weight]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]
