"""Onsager's closed forms against values from independent arithmetic, and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trgbench import ising
from trgbench.errors import InputError

# β, lnZ/N, u, C: Onsager's integrals evaluated by mpmath with 40 digits.
EXACT = [
    (0.001, 0.693148180560778643, -0.00200000333333760006, 2.00001000002133351e-6),
    (0.1, 0.703231242285832436, -0.203377391097355667, 0.0210223157886543156),
    (0.2, 0.73453081227632605, -0.428228833240348085, 0.0976521775884797082),
    (0.3, 0.790559070951262858, -0.704499070832445045, 0.286290202872045746),
    (0.4, 0.879363820774948213, -1.10607920374579103, 0.861698356830763894),
    (0.44, 0.928728540456888479, -1.40222696003142121, 2.88968709237658772),
    (0.4406, 0.929572744079023038, -1.41224325757404565, 3.91324242028385464),
    (0.4408, 0.929855645737128265, -1.41670588081638897, 3.78211964052674869),
    (0.5, 1.02579281269491758, -1.74556457531255396, 0.724871448601573928),
    (0.6, 1.2101323882884129, -1.90908617768407519, 0.313445358126167208),
    (1.0, 2.00034828370071028, -1.99716020411225113, 0.0233795646865421345),
    (3.0, 6.00000000003775181, -1.99999999969798367, 2.17453762101416817e-8),
    (10.0, 20.0, -2.0, 1.15510485452538778e-31),
]


@pytest.mark.parametrize(("beta", "lnz", "energy", "specific_heat"), EXACT)
def test_exact_values(beta: float, lnz: float, energy: float, specific_heat: float) -> None:
    assert ising.lnz(beta) == pytest.approx(lnz, rel=1e-14)
    assert ising.energy(beta) == pytest.approx(energy, rel=3e-15)
    # Close to β_c the condition number of C is 1/|β − β_c|: there no float64 input gives more digits.
    tolerance = 1e-15 + 1e-16 / abs(beta - ising.BETA_CRITICAL)
    assert ising.specific_heat(beta) == pytest.approx(specific_heat, rel=1e-11, abs=tolerance)


def test_at_the_critical_point() -> None:
    assert math.sinh(2 * ising.BETA_CRITICAL) == pytest.approx(1.0, rel=1e-15)
    catalan = 0.915965594177219015
    assert ising.lnz(ising.BETA_CRITICAL) == pytest.approx(math.log(2) / 2 + 2 * catalan / math.pi, rel=1e-14)
    assert ising.energy(ising.BETA_CRITICAL) == pytest.approx(-math.sqrt(2), rel=1e-15)
    assert ising.specific_heat(ising.BETA_CRITICAL) == math.inf


def test_limits_neither_overflow_nor_cancel() -> None:
    for beta in (50.0, ising.BETA_MAXIMUM):
        assert ising.lnz(beta) == 2 * beta
        assert ising.energy(beta) == -2.0
        assert ising.specific_heat(beta) == pytest.approx(0.0, abs=1e-80)
    assert ising.energy(1e-9) == pytest.approx(-2e-9, rel=1e-14)
    assert ising.lnz(1e-9) == pytest.approx(math.log(2), rel=1e-15)


@pytest.mark.parametrize("beta", [0.1, 0.15, 0.3, 0.43, 0.45, 0.7, 1.2])
def test_energy_and_specific_heat_are_derivatives_of_lnz(beta: float) -> None:
    h = 1e-4 * min(1, abs(beta - ising.BETA_CRITICAL) * 20)
    slope = (ising.lnz(beta + h) - ising.lnz(beta - h)) / (2 * h)
    assert -slope == pytest.approx(ising.energy(beta), rel=1e-6)
    slope = (ising.energy(beta + h) - ising.energy(beta - h)) / (2 * h)
    assert -(beta**2) * slope == pytest.approx(ising.specific_heat(beta), rel=1e-6)


@pytest.mark.parametrize("beta", [1e-3, 0.3, 2.0])
def test_initial_tensor_is_the_sum_over_the_spin_of_a_site(beta: float) -> None:
    even, odd = math.sqrt(math.cosh(beta)), math.sqrt(math.sinh(beta))
    weight = np.array([[even, odd], [even, -odd]])
    np.testing.assert_allclose(weight @ weight.T, np.exp(beta * np.array([[1, -1], [-1, 1]])), rtol=1e-14)
    expected = np.einsum("su,sr,sd,sl->urdl", weight, weight, weight, weight)
    tensor = ising.initial_tensor(np, np.asarray(beta))
    np.testing.assert_allclose(tensor, expected, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("beta", [0.0, -0.3, math.nan, math.inf, 200.0, "0.3", None, True, 0.3 + 0j, [0.3]])
def test_an_unusable_beta_is_an_input_error(beta: object) -> None:
    for function in (ising.check_beta, ising.lnz, ising.energy, ising.specific_heat):
        with pytest.raises(InputError, match="beta must be a number above 0 and at most 150; got"):
            function(beta)  # type: ignore[arg-type]
