"""TRG in stages on the native engine, eagerly: a fresh leaf and a backward for each step."""

from __future__ import annotations

from typing import Any

from trgbench.study.tasks import clock


def sweep(problem: Any, x: Any, runtime: Any) -> tuple[Any, Any, float, float]:
    """Return the value and the gradient at `x`, and the seconds of the forward and of the reverse sweep.

    Newest first, the surrogate ⟨T_{n+1}, ct_{n+1}⟩ + c_n ln‖T_n‖ of each step is differentiated, and the
    gradient of its leaf is the cotangent of the step before.
    """
    from trgbench import engine

    now = clock()
    start = now()
    records, carry, value = [], x, 0.0
    for stage in problem.stages:
        session = engine.Session(runtime=runtime)
        leaf = session.variable(carry)
        tensor, term = stage.function(engine, engine.svd, leaf)
        records.append((session, leaf, tensor, term, stage.weight))
        if term is not None:
            value = value + stage.weight * term.value
        carry = None if tensor is None else tensor.value
    middle = now()
    cotangent: Any = None
    while records:
        session, leaf, tensor, term, weight = records.pop()
        seeded = [(out, ct) for out, ct in ((tensor, cotangent), (term, weight)) if out is not None]
        session.backward([out for out, _ in seeded], [ct for _, ct in seeded])
        cotangent = leaf.grad
    return value, cotangent, middle - start, now() - middle
