"""PyTorch on CPU, in float64.

| mode | what it does |
|---|---|
| eager | autograd, one graph |
| traced | `torch.compile` of the function; AOTAutograd derives and Inductor compiles its backward |
| eager-staged | a leaf and a backward of its own for every stage |
| traced-staged | the same with one compiled program per stage shape, shared by all equal stages |
| forward | forward AD along 1, operation by operation |
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
from torch.autograd import forward_ad

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


def unavailable(mode: str, order: int) -> str | None:
    if order == 2 and mode == "forward":
        return "PyTorch does not nest forward AD; take the second derivative in mode eager or eager-staged"
    if order == 2 and mode.startswith("traced"):
        return "torch.compile has no derivative of a derivative; take it in mode eager or eager-staged"
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


class ForwardCutSVD(CutSVD):
    """`CutSVD` with a forward derivative, which torch.compile would refuse to trace."""

    @staticmethod
    def forward(ctx: Any, matrix: torch.Tensor, k: int) -> cut_svd.Factors:
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        ctx.save_for_forward(u, s, vh)
        ctx.k = k
        return u[:, :k].clone(), s[:k].clone(), vh[:k, :].clone()

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, _: None) -> cut_svd.Factors:
        return cut_svd.jvp(torch, ctx.saved_tensors, ctx.k, tangent)


def safe_svd(matrix: torch.Tensor, k: int) -> cut_svd.Factors:
    """Return the SVD cut to k values, with the guarded derivative; see `CutSVD`."""
    factors: cut_svd.Factors = CutSVD.apply(matrix, k)  # type: ignore[no-untyped-call]
    return factors


def forward_svd(matrix: torch.Tensor, k: int) -> cut_svd.Factors:
    """Return the SVD cut to k values, with the guarded forward derivative."""
    factors: cut_svd.Factors = ForwardCutSVD.apply(matrix, k)  # type: ignore[no-untyped-call]
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


def _value_gradient_and_curvature(
    function: Callable[[torch.Tensor], Any], x: torch.Tensor
) -> tuple[Any, ...]:
    leaf = x.detach().requires_grad_()
    value = function(leaf)
    (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
    (curvature,) = torch.autograd.grad(gradient, leaf)
    return value.detach(), gradient.detach(), curvature


def _along_one(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> tuple[Any, Any]:
    with forward_ad.dual_level():
        result = function(forward_ad.make_dual(x, torch.ones_like(x)))  # type: ignore[no-untyped-call]
        value, gradient = forward_ad.unpack_dual(result)  # type: ignore[no-untyped-call]
        return value, gradient


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
        # Detached: a kept carry must not keep the graph it came from.
        carry_value, term_value = [None if out is None else out.detach() for out in (carry_out, term)]
        return carry_value, term_value, (leaf, carry_out, term)

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

    def backward_again(
        self, stage: Stage, carry: torch.Tensor, ct_carry: Any, ct_term: float | None, adjoint: Any
    ) -> tuple[Any, Any]:
        _, _, saved = self.forward(stage, carry)
        seed = None if ct_carry is None else ct_carry.detach().requires_grad_()
        leaf, carry_out, term = saved
        surrogate = leaf.new_zeros(()) if seed is None else (carry_out * seed).sum()
        surrogate = surrogate if ct_term is None else surrogate + ct_term * term
        (gradient,) = torch.autograd.grad(surrogate, leaf, create_graph=True)
        wrt = [leaf] if seed is None else [leaf, seed]
        found = torch.autograd.grad(gradient, wrt, adjoint, materialize_grads=True)
        return found[0], None if seed is None else found[1]


def build(problem: Problem, mode: str, threads: int, svd: str, order: int, recompute: bool) -> Built:
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
    run: Callable[[Any], Any]
    if mode.endswith("staged") and order == 1:
        run = functools.partial(
            staged.value_and_gradient, problem.stages, runner=Runner(program), recompute=recompute
        )
    elif mode.endswith("staged"):
        one = torch.ones((), dtype=x.dtype)
        run = functools.partial(staged.hessian_vector, problem.stages, vector=one, runner=Runner(program))
    elif mode == "forward":
        forward_rule = forward_svd if svd == "safe" else builtin_svd
        run = functools.partial(_along_one, functools.partial(problem.value, xp, forward_rule))
    else:
        whole = _value_and_gradient if order == 1 else _value_gradient_and_curvature
        run = functools.partial(whole, program(problem.value))
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
            "prepare": None,
            "first_run": time.perf_counter() - middle if traced else middle - start,
        },
    )
