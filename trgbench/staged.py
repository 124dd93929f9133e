"""A function in stages, and its reverse sweep: written once, for every problem and every backend.

A value is Σ weight · term over the stages, where each stage takes the carry of the one before:

    x = carry_0 → stage 0 → carry_1, term_0 → stage 1 → carry_2, term_1 → … → None, term_n

`whole` composes the stages into one function, to be differentiated as one graph. `value_and_gradient`
keeps them apart: every stage gets a leaf and a derivative of its own, newest first, so the cost of a
transform never depends on how many stages there are, and stages that are equal share one program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Stage:
    """One stage of a function.

    Attributes:
        function: (xp, svd, carry) → (carry_out, term), either of which may be None. Hashable: equal
            functions on carries of equal shape are the same program.
        weight: what the term is multiplied by.
    """

    function: Callable[[Any, Any, Any], tuple[Any, Any]]
    weight: float = 1.0


class Runner(Protocol):
    """How a backend runs one stage forward and backward. `saved` is whatever it wants to keep between."""

    def forward(self, stage: Stage, carry: Any) -> tuple[Any, Any, Any]:
        """Return (carry_out, term, saved)."""

    def backward(self, stage: Stage, saved: Any, ct_carry: Any, ct_term: float | None) -> Any:
        """Return the cotangent of the carry that went in.

        `ct_carry` is the cotangent of carry_out, None for a stage without one; `ct_term` is the weight,
        None for a stage without a term. A program takes it as an input: it is no part of its identity.
        """

    def backward_again(
        self, stage: Stage, carry: Any, ct_carry: Any, ct_term: float | None, adjoint: Any
    ) -> tuple[Any, Any]:
        """Differentiate `backward`, as a function of the carry and of `ct_carry`, along `adjoint`.

        Return the gradients of ⟨adjoint, backward(carry, ct_carry)⟩ with respect to the two; the second is
        None for a stage without carry_out.
        """


def weighted_sum(weights: Iterable[float], terms: Iterable[Any]) -> Any:
    """Return Σ weight · term from left to right, leaving out terms that are None.

    A weight of 1 multiplies nothing, so every way to evaluate a problem does the same operations.

    >>> weighted_sum([1.0, 0.5, 0.25], [1.0, None, 4.0])
    2.0
    """
    value: Any = None
    for weight, term in zip(weights, terms, strict=True):
        if term is not None:
            weighted = term if weight == 1.0 else weight * term
            value = weighted if value is None else value + weighted
    return value


def whole(stages: Iterable[Stage], xp: Any, svd: Any, x: Any) -> Any:
    """Return the value of the stages at `x`: the function of which a whole-graph mode takes the derivative.

    >>> import math
    >>> double = Stage(lambda xp, svd, x: (2 * x, x), weight=3.0)
    >>> end = Stage(lambda xp, svd, x: (None, xp.sqrt(x)))
    >>> whole([double, double, end], math, None, 1.0)  # 3·1 + 3·2 + √4
    11.0
    """
    weights, terms, carry = [], [], x
    for stage in stages:
        carry, term = stage.function(xp, svd, carry)
        weights.append(stage.weight)
        terms.append(term)
    return weighted_sum(weights, terms)


def value_and_gradient(
    stages: Iterable[Stage], x: Any, runner: Runner, recompute: bool = False
) -> tuple[Any, Any]:
    """Return the value of the stages at `x` and its gradient, by one forward and one reverse sweep.

    With `recompute` only the carries are kept between the sweeps, and every stage is run forward again
    when its turn comes: less memory, more time. The numbers are the same.
    """
    tape, carry = [], x
    for stage in stages:
        carry_in = carry
        carry, term, saved = runner.forward(stage, carry)
        tape.append((stage, term, carry_in if recompute else saved))
    value = weighted_sum((stage.weight for stage, _, _ in tape), (term for _, term, _ in tape))
    cotangent = None
    while tape:  # popped, so that what a stage saved can be freed as soon as it was used
        stage, term, saved = tape.pop()
        if recompute:
            _, _, saved = runner.forward(stage, saved)
        cotangent = runner.backward(stage, saved, cotangent, None if term is None else stage.weight)
    return value, cotangent


def hessian_vector(stages: Iterable[Stage], x: Any, vector: Any, runner: Runner) -> tuple[Any, Any, Any]:
    """Return value, gradient and H·vector at `x`; for a scalar x and vector 1, the second derivative.

    Reverse over reverse, stage by stage. The gradient is itself a chain, ct_i = backward_i(carry_i,
    ct_{i+1}): its adjoints run forward from `vector`, and what they leave at the carries runs back once more.
    """
    chain = tuple(stages)
    carries, terms = [x], []
    for stage in chain:
        carry, term, _ = runner.forward(stage, carries[-1])
        carries.append(carry)
        terms.append(term)
    value = weighted_sum((stage.weight for stage in chain), terms)
    ct_terms = [None if term is None else stage.weight for stage, term in zip(chain, terms, strict=True)]

    def back(number: int, ct_carry: Any, ct_term: float | None) -> Any:
        _, _, saved = runner.forward(chain[number], carries[number])
        return runner.backward(chain[number], saved, ct_carry, ct_term)

    cotangents: list[Any] = [None] * (len(chain) + 1)
    for number in reversed(range(len(chain))):
        cotangents[number] = back(number, cotangents[number + 1], ct_terms[number])
    left, adjoint = [], vector
    for number, stage in enumerate(chain):
        at_carry, adjoint = runner.backward_again(
            stage, carries[number], cotangents[number + 1], ct_terms[number], adjoint
        )
        left.append(at_carry)
    product = left[-1]
    for number in reversed(range(len(chain) - 1)):
        product = left[number] + back(number, product, None if terms[number] is None else 0.0)
    return value, cotangents[0], product
