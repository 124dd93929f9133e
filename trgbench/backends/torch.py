"""PyTorch on CPU, in float64.

| mode | what it does |
|---|---|
| eager | autograd, one graph |
| traced | `torch.compile` of the function; AOTAutograd derives and Inductor compiles its backward |
| eager-staged | a leaf and a backward of its own for every stage |
| traced-staged | the same with one compiled program per stage shape, shared by all equal stages |
"""

from __future__ import annotations

import functools
import itertools
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import array_api_compat.torch as xp
import torch

from trgbench import cut_svd, staged
from trgbench.backends import MODES, SVD_RULES, Built
from trgbench.problems import Problem
from trgbench.staged import Stage

__all__ = ["MODES", "SVD_RULES", "build", "unavailable", "version"]


def version() -> str:
    return torch.__version__


@functools.cache
def _missing_compiler() -> str | None:
    """Return why `torch.compile` cannot run here: its Inductor writes C++ and needs a compiler for it."""
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler:
        return "torch.compile found no C++ compiler; install g++ or name one in the environment variable CXX"
    return None


def unavailable(mode: str) -> str | None:
    return _missing_compiler() if mode.startswith("traced") else None


def builtin_svd(matrix: torch.Tensor, k: int) -> cut_svd.Factors:
    """Return the k leading columns of PyTorch's own thin SVD, with its own derivative."""
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    return u[:, :k], s[:k], vh[:k, :]


class CutSVD(torch.autograd.Function):
    """The SVD cut to k values, with the guarded derivative of `trgbench.cut_svd`."""

    @staticmethod
    def forward(ctx: Any, matrix: torch.Tensor, k: int) -> cut_svd.Factors:
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        ctx.save_for_backward(matrix, u, s, vh)
        ctx.k = k
        return u[:, :k].clone(), s[:k].clone(), vh[:k, :].clone()

    @staticmethod
    def backward(ctx: Any, ct_u: Any, ct_s: Any, ct_vh: Any) -> tuple[torch.Tensor, None]:
        matrix, u, s, vh = ctx.saved_tensors
        if torch.is_grad_enabled():
            # Asked for a derivative of this derivative (create_graph): the factors kept know nothing of
            # the matrix, so compute them again as a function of it.
            u, s, vh = safe_svd(matrix, min(matrix.shape))
        return cut_svd.vjp(torch, (u, s, vh), ctx.k, (ct_u, ct_s, ct_vh)), None


def safe_svd(matrix: torch.Tensor, k: int) -> cut_svd.Factors:
    """Return the SVD cut to k values, with the guarded derivative; see `CutSVD`."""
    factors: cut_svd.Factors = CutSVD.apply(matrix, k)  # type: ignore[no-untyped-call]
    return factors


SVDS = {"safe": safe_svd, "builtin": builtin_svd}

_program_number = itertools.count()


def compiled(function: Callable[..., Any], svd: Any) -> Callable[[torch.Tensor], Any]:
    """Return x → function(xp, svd, x), to be compiled at its first call for the shape of that x.

    TorchDynamo keeps its programs by code object, gives up when one has too many, and searches them at every
    call. So every program gets a code object of its own, and no problem is slowed down by those before it.
    """

    def program(x: torch.Tensor) -> Any:
        return function(xp, svd, x)

    program.__code__ = program.__code__.replace(co_name=f"program_{next(_program_number)}")
    return torch.compile(program, fullgraph=True, dynamic=False)


def _value_and_gradient(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> tuple[Any, Any]:
    leaf = x.detach().requires_grad_()
    value = function(leaf)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


@dataclass
class Runner:
    """Runs every stage from a leaf of its own, by a function that `program` makes once per stage shape."""

    program: Callable[[Callable[..., Any]], Callable[[torch.Tensor], Any]]
    programs: dict[Any, Callable[[torch.Tensor], Any]] = field(default_factory=dict)

    def forward(self, stage: Stage, carry: torch.Tensor) -> tuple[Any, Any, Any]:
        key = (stage.function, carry.shape)
        if key not in self.programs:
            self.programs[key] = self.program(stage.function)
        leaf = carry.detach().requires_grad_()
        carry_out, term = self.programs[key](leaf)
        return carry_out, None if term is None else term.detach(), (leaf, carry_out, term)

    def backward(self, stage: Stage, saved: Any, ct_carry: Any, ct_term: float | None) -> Any:
        leaf, carry_out, term = saved
        outputs, cotangents = [], []
        if ct_carry is not None:
            outputs.append(carry_out)
            cotangents.append(ct_carry)
        if ct_term is not None:
            outputs.append(term)
            cotangents.append(torch.tensor(ct_term, dtype=term.dtype))
        (cotangent,) = torch.autograd.grad(outputs, leaf, cotangents)
        return cotangent


def build(problem: Problem, mode: str, threads: int, svd: str) -> Built:
    """Return the problem ready to run; see `trgbench.backends`.

    PyTorch compiles at the first call, forward and backward each when first wanted, so the build makes that
    call; its cost is not separable into tracing and compiling, and all of it is reported as `compile`.
    """
    torch.set_num_threads(threads)
    rule, x = SVDS[svd], torch.as_tensor(problem.example)
    traced = mode.startswith("traced")
    program: Callable[[Callable[..., Any]], Callable[[torch.Tensor], Any]]
    if traced:
        program = functools.partial(compiled, svd=rule)
    else:
        program = lambda function: functools.partial(function, xp, rule)  # noqa: E731
    run: Callable[[Any], tuple[Any, Any]]
    if mode.endswith("staged"):
        run = functools.partial(staged.value_and_gradient, problem.stages, runner=Runner(program))
    else:
        run = functools.partial(_value_and_gradient, program(problem.value))
    start = time.perf_counter()
    with warnings.catch_warnings():
        for category in (FutureWarning, DeprecationWarning):  # Inductor's, about what PyTorch itself calls
            warnings.simplefilter("ignore", category)
        run(x)
    middle = time.perf_counter()
    if traced:
        run(x)
    return Built(
        run=run,
        asarray=torch.as_tensor,
        costs={
            "trace": None,
            "compile": middle - start if traced else None,
            "prepare": time.perf_counter() - middle if traced else middle - start,
        },
    )
