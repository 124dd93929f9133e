"""The Ising model on the square lattice: the tensor that TRG starts from, and what is known exactly.

Zero field, J = k_B = 1, β = 1/T; the energy is −Σ s s' over nearest neighbours. `lnz`, `energy` and
`specific_heat` are per site on the infinite lattice (L. Onsager, Phys. Rev. 65, 117 (1944); the
forms used here are those of K. Huang, Statistical Mechanics, 2nd ed., §15.4, rearranged so that
nothing overflows at large β and nothing cancels at small β).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

from scipy import special

from trgbench.errors import InputError, shown

BETA_CRITICAL = math.log1p(math.sqrt(2.0)) / 2
"""The inverse temperature of the phase transition, ln(1 + √2)/2, where sinh 2β = 1."""

BETA_MAXIMUM = 150.0
"""Above it the squared norm of the initial tensor, about exp(4β)/16, leaves the range of float64."""


def check_beta(beta: object) -> float:
    """Return `beta` as a float if it is an inverse temperature that can be used here.

    Raises:
        InputError: if it is not a real number, not finite, not above 0, or above `BETA_MAXIMUM`.

    >>> check_beta(0.3)
    0.3
    """
    real = isinstance(beta, numbers.Real) and not isinstance(beta, bool)
    if not real or not 0 < beta <= BETA_MAXIMUM:  # type: ignore[operator]
        raise InputError(f"beta must be a number above 0 and at most {BETA_MAXIMUM:g}; got {shown(beta)}")
    return float(beta)  # type: ignore[arg-type]


def initial_tensor(xp: Any, beta: Any) -> Any:
    """Return T[u,r,d,l] = Σ_s W[s,u] W[s,r] W[s,d] W[s,l], shape (2, 2, 2, 2), of the 0-d array `beta`.

    W[s,u] is a square root of the Boltzmann weight of a bond: Σ_u W[s,u] W[s',u] = exp(β s s'). With
    spins s = ±1 it is [[√cosh β, √sinh β], [√cosh β, −√sinh β]].

    >>> import numpy as np
    >>> T = initial_tensor(np, np.asarray(0.3))
    >>> bool(np.isclose(T[0, 0, 0, 0], 2 * np.cosh(0.3) ** 2)), float(T[0, 0, 0, 1])
    (True, 0.0)
    """
    even, odd = xp.sqrt(xp.cosh(beta)), xp.sqrt(xp.sinh(beta))
    weight = xp.reshape(xp.stack([even, odd, even, -odd]), (2, 2))
    # The array API has no einsum: an outer product by broadcasting, with s leading and summed at the end.
    up = xp.reshape(weight, (2, 2, 1, 1, 1))
    right = xp.reshape(weight, (2, 1, 2, 1, 1))
    down = xp.reshape(weight, (2, 1, 1, 2, 1))
    left = xp.reshape(weight, (2, 1, 1, 1, 2))
    return xp.sum(up * right * down * left, axis=0)


def _modulus(beta: float) -> tuple[float, float, float]:
    """Return (κ, κ', m = κ²) of Onsager's elliptic integrals.

    κ = 2 sinh 2β/cosh² 2β, and κ' = 2 tanh² 2β − 1 carries the sign of β − β_c and has κ² + κ'² = 1.
    """
    decay = math.exp(-4 * beta)
    kappa = 4 * math.exp(-2 * beta) * -math.expm1(-4 * beta) / (1 + decay) ** 2
    complement = 2 * math.tanh(2 * beta) ** 2 - 1
    # tanh is rounded, so κ' of the float nearest to β_c is a few 1e-16 of either sign: it is 0.
    return kappa, 0.0 if abs(complement) < 1e-15 else complement, kappa * kappa


def _integral(integrand: Callable[[float], float], start: float, end: float, absolute: float) -> float:
    # Imported here: it brings SciPy's optimizers, half of what a process of the suite takes to start.
    from scipy import integrate

    return float(integrate.quad(integrand, start, end, epsabs=absolute, epsrel=1e-13)[0])


def lnz(beta: float) -> float:
    """Return Onsager's lnZ/N.

    lnZ/N = ln(2 cosh 2β) + (1/π) ∫₀^{π/2} ln[(1 + √(1 − κ² sin² φ))/2] dφ

    Raises:
        InputError: if `beta` cannot be used (see `check_beta`).

    >>> round(lnz(0.3), 12)
    0.790559070951
    """
    beta = check_beta(beta)
    _, complement, _ = _modulus(beta)

    # With θ = π/2 − φ the root is √(sin² θ + κ'² cos² θ), which does not cancel near β_c, where it has
    # a feature of width κ' at θ = 0: the break point tells the quadrature about it.
    def integrand(theta: float) -> float:
        return math.log1p(0.5 * (math.hypot(math.sin(theta), complement * math.cos(theta)) - 1))

    edge = min(4 * abs(complement), math.pi / 4)
    pieces = [(0.0, edge), (edge, math.pi / 2)]
    integral = sum(_integral(integrand, *piece, absolute=1e-14) for piece in pieces)
    return float(2 * beta + math.log1p(math.exp(-4 * beta)) + integral / math.pi)


def energy(beta: float) -> float:
    """Return Onsager's internal energy per site, u = −d(lnZ/N)/dβ; −√2 at β_c.

    u = −coth 2β [1 + (2/π) κ' K(κ)] with κ' = 2 tanh² 2β − 1

    Raises:
        InputError: if `beta` cannot be used (see `check_beta`).

    >>> round(energy(0.3), 12), round(energy(BETA_CRITICAL) + 2**0.5, 14)
    (-0.704499070832, 0.0)
    """
    beta = check_beta(beta)
    kappa, complement, _ = _modulus(beta)
    if kappa < 0.5 and complement < 0:
        # At small β the bracket above cancels. The derivative of the integral in `lnz` does not:
        # u = −2 tanh 2β + (κ κ_β/π) ∫₀^{π/2} sin² φ/(Δ(1 + Δ)) dφ, Δ = √(1 − κ² sin² φ).
        def integrand(phi: float) -> float:
            sine = math.sin(phi)
            delta = math.sqrt(1 - (kappa * sine) ** 2)
            return sine * sine / (delta * (1 + delta))

        slope = -4 * complement / math.cosh(2 * beta)  # dκ/dβ
        integral = _integral(integrand, 0, math.pi / 2, absolute=0)
        return float(-2 * math.tanh(2 * beta) + kappa * slope / math.pi * integral)
    singular = complement * special.ellipkm1(complement**2) if complement else 0.0
    return float(-(1 + 2 / math.pi * singular) / math.tanh(2 * beta))


def specific_heat(beta: float) -> float:
    """Return Onsager's specific heat per site, β² d²(lnZ/N)/dβ²; infinite at β_c.

    It diverges there as −ln|β − β_c|.

    C = (4/π) (β coth 2β)² {K − E − (1 − tanh² 2β) [π/2 + κ' K]}; accurate to about 1e-15 absolutely.

    Raises:
        InputError: if `beta` cannot be used (see `check_beta`).

    >>> specific_heat(BETA_CRITICAL)
    inf
    """
    beta = check_beta(beta)
    _, complement, m = _modulus(beta)
    if not complement:
        return math.inf
    first = special.ellipkm1(complement**2)
    # K − E = (m/3) R_D(0, 1 − m, 1) (DLMF 19.25.1): the difference itself would cancel at large β.
    difference = m / 3 * special.elliprd(0, complement**2, 1)
    decay = 1 / math.cosh(2 * beta) ** 2
    bracket = difference - decay * (math.pi / 2 + complement * first)
    return float(4 / math.pi * (beta / math.tanh(2 * beta)) ** 2 * bracket)
