"""A user's mistakes: each is one line, and nothing is lost by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trgbench import engine
from trgbench.errors import InputError

# --- bad input ------------------------------------------------------------------------------------


SIN = engine.trace(engine.sin, engine.spec(3))


def escaped_symbol() -> Any:
    kept: list[Any] = []

    def leaking(x: Any) -> Any:
        kept.append(x)
        return x

    engine.trace(leaking, engine.spec(3))
    return kept[0]


BAD_INPUT: dict[str, tuple[Callable[[engine.Session, engine.Tensor], object], str]] = {
    "shapes": (lambda s, x: x + s.variable(np.ones(4)), r"add: the shapes \(3,\) and \(4,\) do not"),
    "dtypes": (lambda s, x: x * np.ones(3, np.float32), r"multiply: argument 2 is float32\[3\].*dtypes"),
    "another session": (lambda s, x: x + engine.Session().variable(np.ones(3)), "tensor of another session"),
    "after its trace": (
        lambda s, x: engine.sin(escaped_symbol()),
        r"of `escaped.*leaking` \(.*test_engine_errors.py:\d+\) after its trace ended",
    ),
    "of an ended trace in another": (
        lambda s, x: engine.trace(lambda y: y + escaped_symbol(), engine.spec(3)),
        r"add in `.*lambda.*was given Symbol.* of `escaped.*leaking` .*, whose trace has ended; pass it in",
    ),
    "iteration while tracing": (lambda s, x: engine.trace(list, engine.spec(3)), "iteration needs a value"),
    "bool while tracing": (
        lambda s, x: engine.trace(lambda y: y if y else -y, engine.spec(())),
        r"bool\(\) needs a value.*`where`",
    ),
    "float while tracing": (lambda s, x: engine.trace(float, engine.spec(())), r"float\(\) needs a value"),
    "int while tracing": (lambda s, x: engine.trace(int, engine.spec(())), r"int\(\) needs a value"),
    "assignment while tracing": (
        lambda s, x: engine.trace(lambda y: y.__setitem__(0, 1.0), engine.spec(3)),
        "cannot be changed in place",
    ),
    "mixed faces": (
        lambda s, x: engine.trace(lambda y: y + x, engine.spec(3)),
        "mixes an eager tensor with a traced value",
    ),
    "nan into svd": (lambda s, x: engine.svd(np.full((2, 2), np.nan)), "svd: .* NaN or infinity"),
    "k too large": (lambda s, x: engine.svd(np.ones((2, 2)), 3), "k must be from 1 to 2"),
    "other shape": (
        lambda s, x: engine.Runtime().prepare(SIN)(np.ones(4)),
        r"argument 1 must be float64\[3\].*got float64\[4\]",
    ),
    "other dtype": (
        lambda s, x: engine.Runtime().prepare(SIN)(np.ones(3, np.float32)),
        r"got float32\[3\]",
    ),
    "other count": (
        lambda s, x: engine.Runtime().prepare(SIN)(),
        "prepared for 1 arguments; got 0",
    ),
    "gradient of a vector": (lambda s, x: engine.grad(SIN), "one scalar output"),
    "no such argument": (
        lambda s, x: engine.grad(engine.trace(engine.sum, engine.spec(3)), 1),
        "argnums 1 is out of range",
    ),
    "gradient of a comparison": (
        lambda s, x: engine.grad(engine.trace(lambda y: y > 0.0, engine.spec(()))),
        r"floating-point output; got bool\[\]",
    ),
    "gradient by integers": (
        lambda s, x: engine.grad(
            engine.trace(lambda y, i: engine.sum(y), engine.spec(2), engine.spec(2, int)), 1
        ),
        r"argument 1 is int64\[2\]",
    ),
    "an argument twice": (lambda s, x: engine.jvp(SIN, (0, -1)), "name an argument twice"),
    "grad of another session": (
        lambda s, x: s.grad(engine.sum(x), [engine.Session().variable(1.0)]),
        "tensor of another session",
    ),
    "backward of another session": (
        lambda s, x: s.backward([engine.Session().variable(1.0) * 2.0]),
        "tensor of another session",
    ),
    "grad by an array": (lambda s, x: s.grad(engine.sum(x), [np.ones(3)])  # type: ignore[list-item]
        , "tensors of this session"),
    "too many seeds": (lambda s, x: s.backward([engine.sum(x)], [1.0, 2.0]), "needs as many seeds; got 2"),
    "fractions among integers": (
        lambda s, x: engine.less(np.array([1, 2]), 1.5),
        r"less: argument 2 is float64\[\] and argument 1 is int64\[2\]",
    ),
    "an eager result": (lambda s, x: engine.trace(lambda y: x, engine.spec(3)), "returned an eager tensor"),
    "ragged rows": (lambda s, x: s.variable([[1.0], [1.0, 2.0]]), "rows of equal length"),
    "no dtype": (lambda s, x: engine.spec(3, "nope"), "dtype must be one of float64.*got 'nope'"),
    "a function for a graph": (lambda s, x: engine.grad(engine.sum), "engine.trace makes of a function"),  # type: ignore[arg-type]
    "a number for a graph": (lambda s, x: engine.Runtime().prepare(3), "a graph is wanted"),  # type: ignore[arg-type]
    "a function forward": (lambda s, x: engine.jvp(engine.sum), "a graph is wanted"),  # type: ignore[arg-type]
    "a shape for a spec": (lambda s, x: engine.trace(engine.sin, (2,)), "takes an engine.spec"),  # type: ignore[arg-type]
    "a huge number": (lambda s, x: x * 10**400, "is too large for float64"),
    "width": (lambda s, x: engine.Session(width=0), "width must be a whole number of at least 1"),
    "a list of words": (lambda s, x: s.variable(["a"]), "an array must be of dtype"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line_and_nothing_is_lost(name: str) -> None:
    act, message = BAD_INPUT[name]
    session = engine.Session()
    x = session.variable(np.ones(3))
    y = engine.sum(x * x)
    with pytest.raises(InputError, match=message) as caught:
        act(session, x)
    assert "\n" not in str(caught.value)
    (y + engine.sum(x)).backward()  # the session goes on
    assert x.grad.tolist() == [3.0, 3.0, 3.0]
