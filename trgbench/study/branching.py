"""Experiment 12: a branch on a value. Eager reads it; traced refuses, and `where` gives the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trgbench.console import one_line
from trgbench.study.claims import Claim, Facts, equals
from trgbench.study.lab import BACKENDS, LEFT_OUT, MISSING, Lab
from trgbench.study.tables import pick, table
from trgbench.study.tasks import bits

TITLE = "Can the function branch on a value that it computed?"

# f(x) = Σ x² if max x > 1, else Σ sin x, on the study's x = −2 … 2: the branch is Σ x².


def branch(backend: str, traced: bool) -> dict[str, Any]:
    """Return what eager and, if asked for, traced make of a host-language `if`, and of `where`."""
    import numpy as np

    from trgbench import backends

    x = np.linspace(-2, 2, 1000)
    gradient, refused, where = {"native": _native, "jax": _jax, "torch": _torch}[backend](x)
    reason = backends.get(backend).unavailable("traced") if traced else LEFT_OUT[MISSING]
    if reason:
        absent = {MISSING: reason}
        return {**_report(x, gradient, None, None), "traced": absent, "where": absent}
    return _report(x, gradient, refused, where)


# Each returns the eager gradient of the function with an `if`, what traces it, and the traced gradient
# of the function with `where`.


def _native(x: Any) -> tuple[Any, Any, Any]:
    from trgbench import engine

    def with_if(x: Any) -> Any:
        return engine.sum(x * x) if engine.max(x) > 1.0 else engine.sum(engine.sin(x))

    def with_where(x: Any) -> Any:
        return engine.where(engine.max(x) > 1.0, engine.sum(x * x), engine.sum(engine.sin(x)))

    session = engine.Session()

    def gradient(at: Any) -> Any:
        leaf = session.variable(at)
        with_if(leaf).backward()
        return leaf.grad

    def traced(function: Any) -> Any:
        return engine.Runtime().prepare(engine.grad(engine.trace(function, engine.spec(x.shape))))

    return gradient, lambda: traced(with_if)(x), lambda at: traced(with_where)(at)


def _jax(x: Any) -> tuple[Any, Any, Any]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

    def with_if(x: Any) -> Any:
        return jnp.sum(x * x) if jnp.max(x) > 1.0 else jnp.sum(jnp.sin(x))

    def with_where(x: Any) -> Any:
        return jnp.where(jnp.max(x) > 1.0, jnp.sum(x * x), jnp.sum(jnp.sin(x)))

    return jax.grad(with_if), lambda: jax.jit(jax.grad(with_if))(x), jax.jit(jax.grad(with_where))


def _torch(x: Any) -> tuple[Any, Any, Any]:
    import torch

    def with_if(x: Any) -> Any:
        return (x * x).sum() if x.max() > 1.0 else x.sin().sum()

    def with_where(x: Any) -> Any:
        return torch.where(x.max() > 1.0, (x * x).sum(), x.sin().sum())

    def gradient_of(function: Any) -> Any:
        def gradient(at: Any) -> Any:
            leaf = torch.as_tensor(at).requires_grad_()
            return torch.autograd.grad(function(leaf), leaf)[0]

        return gradient

    def compiled(function: Any) -> Any:
        return gradient_of(torch.compile(function, fullgraph=True))

    return gradient_of(with_if), lambda: compiled(with_if)(x), lambda at: compiled(with_where)(at)


def _report(x: Any, gradient: Any, traced: Any, where: Any) -> dict[str, Any]:
    """Return whether gradients are right on both sides of the branch, and bitwise that of eager."""
    import numpy as np

    small = x / 4  # the other side of the branch
    eager = [bits(gradient(x)), bits(gradient(small))]

    def right(gradients: list[list[str]]) -> bool:
        found = [[float.fromhex(number) for number in side] for side in gradients]
        return bool(np.allclose(found, [2 * x, np.cos(small)], rtol=0, atol=1e-14))

    report: dict[str, Any] = {"eager": {"right": right(eager)}}
    if traced is not None:
        message = ""
        try:
            traced()
        except Exception as error:
            message = one_line(error).partition(". ")[0]
        selected = [bits(where(x)), bits(where(small))]
        report["traced"] = {"refuses": bool(message), "message": message}
        report["where"] = {"right": right(selected), "same_bits": selected == eager}
    return report


def measure(lab: Lab) -> dict[str, Any]:
    # PyTorch's compiler takes half a minute, most of it to be imported.
    return {
        backend: lab.run(branch, backend=backend, traced=not (lab.quick and backend == "torch"))
        for backend in BACKENDS
    }


def tables(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [
        [
            backend,
            pick(data, backend, "eager", "right"),
            pick(data, backend, "traced", "message"),
            pick(data, backend, "where", "right"),
            pick(data, backend, "where", "same_bits"),
        ]
        for backend in data
    ]
    columns = [
        ("eager reads and branches", ""),
        ("traced says", ""),
        ("where gives both gradients", ""),
        ("bitwise those of eager", ""),
    ]
    title = "A branch on max(x): gradients at x = -2 ... 2 and at x/4, n = 1000"
    return [table("branching", title, ["backend"], columns, rows)]


def _refusal(facts: Facts) -> str:
    return facts["traced"]["message"] if facts["traced"]["refuses"] else "no error"


CLAIMS = (
    Claim(
        "native-eager-branches",
        "native",
        "Eager reads a value while it computes and branches on it; the gradient follows the branch.",
        "max(x) = 2 read, gradient of the branch taken",
        lambda facts: facts["native"]["eager"]["right"],
        equals(True),
        "the gradients on both sides of the branch are right",
        "both gradients right: {}",
    ),
    Claim(
        "native-traced-refuses-branch",
        "native",
        "Traced has no values while it builds the graph, so it cannot branch on one.",
        "max(x).attached_value() is none",
        lambda facts: _refusal(facts["native"]),
        lambda message: "where" in message,
        "it raises an error, which names `where`",
        better="the error says what to use instead",
    ),
    Claim(
        "native-where-same-bits",
        "native",
        "Traced with `where` gives the gradient of eager's branch, bit for bit.",
        "bitwise equal",
        lambda facts: facts["native"]["where"]["same_bits"],
        equals(True),
        "all 1000 elements on both sides of the branch have the same bits",
        "same bits: {}",
    ),
    Claim(
        "jax-jit-refuses-branch",
        "jax",
        "JAX's jit refuses a Python branch on a traced value.",
        "TracerBoolConversionError",
        lambda facts: _refusal(facts["jax"]),
        lambda message: "TracerBoolConversionError" in message,
        "it raises TracerBoolConversionError",
    ),
    Claim(
        "jax-eager-branches",
        "jax",
        "JAX without jit branches on a value as eager does.",
        "as in PyTorch",
        lambda facts: facts["jax"]["eager"]["right"],
        equals(True),
        "the gradients on both sides of the branch are right",
        "both gradients right: {}",
    ),
    Claim(
        "torch-eager-branches",
        "torch",
        "PyTorch branches on a value as eager does.",
        "as eager",
        lambda facts: facts["torch"]["eager"]["right"],
        equals(True),
        "the gradients on both sides of the branch are right",
        "both gradients right: {}",
    ),
)
