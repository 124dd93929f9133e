"""JAX on CPU, in float64.

| mode | what it does |
|---|---|
| eager | `value_and_grad`, not jitted: dispatched operation by operation |
| traced | `jit(value_and_grad)`, compiled ahead of time |
| eager-staged | `vjp` of every stage, not jitted |
| traced-staged | one program forward and one backward per stage shape, shared by all equal stages |
| forward | `jit(jvp)` along 1, compiled ahead of time |

A second derivative is taken forward over reverse, as JAX's manual advises; in stages reverse over reverse.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trgbench import cut_svd, staged
from trgbench.backends import MODES, SVD_RULES, Built
from trgbench.engine.runtime import activate
from trgbench.problems import Problem
from trgbench.staged import Stage

__all__ = ["MODES", "SVD_RULES", "build", "unavailable", "version"]

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
jax.devices()  # makes XLA's thread pool, of the size of the CPU set that the process has now
POOL_SIZE = len(os.sched_getaffinity(0))


def version() -> str:
    return jax.__version__


def unavailable(mode: str, order: int) -> str | None:
    return None


def builtin_svd(matrix: jax.Array, k: int) -> cut_svd.Factors:
    """Return the k leading columns of JAX's own thin SVD, with its own derivative."""
    u, s, vh = jnp.linalg.svd(matrix, full_matrices=False)
    return u[:, :k], s[:k], vh[:k, :]


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def safe_svd(matrix: jax.Array, k: int) -> cut_svd.Factors:
    """Return the SVD cut to k values, with the guarded derivative of `trgbench.cut_svd`.

    A rule for the tangent serves every order and both directions: JAX transposes it for reverse mode, and the
    uncut SVD that it computes is this same function, so it can be differentiated again.
    """
    return builtin_svd(matrix, k)


@safe_svd.defjvp
def _safe_svd_jvp(
    k: int, primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[cut_svd.Factors, cut_svd.Factors]:
    (matrix,), (tangent,) = primals, tangents
    u, s, vh = safe_svd(matrix, min(matrix.shape))
    return (u[:, :k], s[:k], vh[:k, :]), cut_svd.jvp(jnp, (u, s, vh), k, tangent)


SVDS = {"safe": safe_svd, "builtin": builtin_svd}


@dataclass
class Costs:
    """Seconds spent so far in tracing (with lowering to StableHLO) and in compiling."""

    trace: float = 0.0
    compile: float = 0.0

    def compiled(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        """Return `function` compiled for arguments of these shapes, adding up what that cost."""
        start = time.perf_counter()
        lowered = jax.jit(function).trace(*arguments).lower()
        middle = time.perf_counter()
        program = lowered.compile()
        self.trace += middle - start
        self.compile += time.perf_counter() - middle
        return program


def _forward(stage: Stage, svd: Any, carry: Any) -> Any:
    """Return ((carry_out, term), pullback). The pullback is a pytree: its arrays are what it keeps."""
    return jax.vjp(functools.partial(stage.function, jnp, svd), carry)


def _backward(pullback: Any, ct_carry: Any, ct_term: Any) -> Any:
    (cotangent,) = pullback((ct_carry, ct_term))
    return cotangent


def _backward_again(stage: Stage, svd: Any, carry: Any, ct_carry: Any, ct_term: Any, adjoint: Any) -> Any:
    """Return the gradients of ⟨adjoint, ct_in⟩ with respect to the carry and to its cotangent."""

    def back(carry: Any, ct_carry: Any) -> Any:
        return _backward(_forward(stage, svd, carry)[1], ct_carry, ct_term)

    return jax.vjp(back, carry, ct_carry)[1](adjoint)


def along_one(function: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, Any]]:
    """Return x → (f, f′) of a scalar function, by forward mode."""
    return lambda x: jax.jvp(function, (x,), (jnp.ones(()),))


def derivatives(function: Callable[[Any], Any], mode: str, order: int) -> Callable[[Any], tuple[Any, ...]]:
    """Return x → (f, f′) or, of order 2, (f, f′, f″) of a function on the whole graph."""
    first = along_one(function) if mode == "forward" else jax.value_and_grad(function)
    if order == 1:
        return first

    def second(x: Any) -> tuple[Any, ...]:
        (value, gradient), (_, curvature) = along_one(first)(x)
        return value, gradient, curvature

    return second


@dataclass
class EagerRunner:
    """Runs stages operation by operation."""

    svd: Any

    def forward(self, stage: Stage, carry: Any) -> tuple[Any, Any, Any]:
        (carry_out, term), pullback = _forward(stage, self.svd, carry)
        return carry_out, term, pullback

    def backward(self, stage: Stage, saved: Any, ct_carry: Any, ct_term: float | None) -> Any:
        return _backward(saved, ct_carry, None if ct_term is None else jnp.asarray(ct_term))

    def backward_again(
        self, stage: Stage, carry: Any, ct_carry: Any, ct_term: float | None, adjoint: Any
    ) -> Any:
        weight = None if ct_term is None else jnp.asarray(ct_term)
        return _backward_again(stage, self.svd, carry, ct_carry, weight, adjoint)


@dataclass
class TracedRunner:
    """Runs stages as compiled programs, made when a stage of a new function or shape first comes by.

    The pullback that a forward program returns holds the SVD's factors, so that no backward program
    computes them again.
    """

    svd: Any
    costs: Costs
    forwards: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    backwards: dict[Any, Callable[..., Any]] = field(default_factory=dict)

    def forward(self, stage: Stage, carry: Any) -> tuple[Any, Any, Any]:
        key = (stage.function, carry.shape)
        if key not in self.forwards:
            self.forwards[key] = self.costs.compiled(functools.partial(_forward, stage, self.svd), carry)
        (carry_out, term), pullback = self.forwards[key](carry)
        return carry_out, term, (key, pullback)

    def backward(self, stage: Stage, saved: Any, ct_carry: Any, ct_term: float | None) -> Any:
        key, pullback = saved
        arguments = (pullback, ct_carry, None if ct_term is None else np.float64(ct_term))
        if key not in self.backwards:
            self.backwards[key] = self.costs.compiled(_backward, *arguments)
        return self.backwards[key](*arguments)

    def backward_again(
        self, stage: Stage, carry: Any, ct_carry: Any, ct_term: float | None, adjoint: Any
    ) -> Any:
        key = (stage.function, carry.shape, "again")
        arguments = (carry, ct_carry, None if ct_term is None else np.float64(ct_term), adjoint)
        if key not in self.backwards:
            again = functools.partial(_backward_again, stage, self.svd)
            self.backwards[key] = self.costs.compiled(again, *arguments)
        return self.backwards[key](*arguments)


def build(problem: Problem, mode: str, threads: int, svd: str, order: int, recompute: bool) -> Built:
    """Return the problem ready to run; see `trgbench.backends`."""
    start = time.perf_counter()
    activate(threads)  # LAPACK is SciPy's; XLA's own pool cannot be changed any more
    costs, rule, x = Costs(), SVDS[svd], jnp.asarray(problem.example)
    call: Callable[[Any], tuple[Any, ...]]
    if mode.endswith("staged"):
        runner = EagerRunner(rule) if mode == "eager-staged" else TracedRunner(rule, costs)
        call = (
            functools.partial(staged.value_and_gradient, problem.stages, runner=runner, recompute=recompute)
            if order == 1
            else functools.partial(staged.hessian_vector, problem.stages, vector=jnp.ones(()), runner=runner)
        )
    else:
        call = derivatives(functools.partial(problem.value, jnp, rule), mode, order)
        if mode != "eager":
            call = costs.compiled(call, x)

    def run(x: Any) -> tuple[Any, ...]:
        results = call(x)
        for result in results:
            result.block_until_ready()
        return results

    ready, before = time.perf_counter(), costs.trace + costs.compile
    run(x)
    done, spent = time.perf_counter(), costs.trace + costs.compile
    traced = not mode.startswith("eager")
    notes: tuple[str, ...] = ()
    if threads != POOL_SIZE:
        notes = (
            f"XLA's own pool keeps the {POOL_SIZE} threads it got from the CPUs of this process when JAX was "
            f"imported, not the {threads} asked for; start the process on {threads} CPUs (taskset) for that",
        )
    return Built(
        run=run,
        asarray=jnp.asarray,
        costs={
            "trace": costs.trace if traced else None,
            "compile": costs.compile if traced else None,
            "prepare": ready - start - before,
            "first_run": done - ready - (spent - before),
        },
        notes=notes,
    )
