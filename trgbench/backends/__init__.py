"""What can differentiate a problem: one file per backend, all with the same small contract.

A backend file `backends/<name>.py` imports its library at the top and defines

* `MODES`      the modes it has, in the order of `backends.MODES`;
* `SVD_RULES`  the SVD derivative rules it has, `"safe"` first; native's `"lanczos"` is as safe, and faster;
* `version()`  the version of its library, a string;
* `unavailable(mode, order)`  why that mode cannot run on this machine (and what to do), or `None`;
* `build(problem, mode, threads, svd, order, recompute)`  pays what is paid once and returns a `Built`.

The file is found by its name without being imported; the extra that installs its library bears the
same name (`pip install 'trgbench[jax]'`).
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from trgbench.errors import InputError, Unavailable, check_choice, check_integer, check_threads

if TYPE_CHECKING:
    from trgbench.problems import Problem

MODES = ("eager", "traced", "eager-staged", "traced-staged", "forward")
SVD_RULES = ("safe", "builtin")


class NonFiniteGradient(RuntimeWarning):
    """The input was fine and the value or gradient that came out is not finite."""


@dataclass(frozen=True)
class Built:
    """What a backend's `build` returns.

    Attributes:
        run: library array x → (value, gradient), or (value, gradient, second derivative) of order 2: library
            arrays that `float` and `numpy.asarray` accept, finished when it returns. A benchmark times this.
        asarray: NumPy array → the library's own array.
        costs: seconds paid once, by name: `trace` (build and transform), `compile`, `prepare` (what else
            comes before a run), `first_run` (the first run of all, which `build` does, less what of the
            others falls into it). `None` where the library does not separate it.
        notes: one-line remarks a user should see, for instance a thread count that could not be set.
    """

    run: Callable[[Any], Any]
    asarray: Callable[[np.ndarray], Any]
    costs: Mapping[str, float | None]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A problem made ready on one backend in one mode; call it as `x → (value, gradient)`.

    Of order 2 it is `x → (value, gradient, second derivative)`.

    The call checks its input and warns with `NonFiniteGradient` about a result that is not finite;
    `built.run` does neither and is what benchmarks time.
    """

    problem: Problem
    backend: str
    mode: str
    threads: int
    svd: str
    built: Built = field(repr=False)

    def __call__(self, x: object) -> tuple[Any, ...]:
        """Return the value (a float), and the gradient (float64, of the shape of x; writable).

        Raises:
            InputError: if `x` has another shape than the problem's example or is not finite.
        """
        value, *derivatives = self.built.run(self.built.asarray(self.problem.check_input(x)))
        value = float(value)
        arrays = [np.asarray(derivative, dtype=np.float64).copy() for derivative in derivatives]
        bad = sum(np.count_nonzero(~np.isfinite(array)) for array in arrays)
        if bad or not math.isfinite(value):
            warnings.warn(
                f"{self.backend} {self.mode} with the {self.svd} SVD rule gave a value of {value} and "
                f"{bad} derivatives that are not finite" + ("; use svd='safe'" if self.svd != "safe" else ""),
                NonFiniteGradient,
                stacklevel=2,
            )
        return (value, *arrays)


@dataclass(frozen=True)
class Backend:
    """A backend whose library is installed; made by `get`."""

    name: str
    module: ModuleType = field(repr=False)

    @property
    def modes(self) -> tuple[str, ...]:
        return self.module.MODES

    @property
    def svd_rules(self) -> tuple[str, ...]:
        return self.module.SVD_RULES

    @property
    def version(self) -> str:
        return self.module.version()

    def unavailable(self, mode: str, order: int = 1) -> str | None:
        """Return why `mode` cannot run on this machine, or `None` if it can."""
        return self.module.unavailable(check_choice("mode", mode, self.modes), order)

    def prepare(
        self,
        problem: Problem,
        mode: str,
        threads: int = 1,
        svd: str = "safe",
        *,
        order: int = 1,
        recompute: bool = False,
    ) -> Prepared:
        """Pay everything that is paid once, and return the callable that pays only the run.

        Thread counts are a setting of the whole process: of two preparations the later one holds.

        Args:
            order: 2 for the second derivative too; the input must be a scalar, as it must in mode `forward`.
            recompute: in staged modes, keep only the carries between the sweeps (see `trgbench.staged`).

        Raises:
            InputError: if the mode, SVD rule, order or thread count is not one this backend, problem and
                machine have.
            Unavailable: if the mode exists but cannot run here.

        >>> from trgbench import problems
        >>> value, gradient = get("native").prepare(problems.trg(chi=16, steps=4), "eager")(0.3)
        >>> round(value, 12), round(float(gradient), 12)
        (0.799095207857, 0.844054073624)
        """
        check_choice("mode", mode, self.modes)
        check_choice(f"SVD rule of backend {self.name}", svd, self.svd_rules)
        if check_integer("order", order, minimum=1) > 2:
            raise InputError(f"order must be 1 (the gradient) or 2 (the second derivative too); got {order}")
        if (mode == "forward" or order == 2) and problem.example.shape != ():
            what = "mode forward" if mode == "forward" else "order 2"
            raise InputError(f"{what} is for problems with a scalar input, such as trg; got {problem}")
        if recompute and (order == 2 or not mode.endswith("staged")):
            raise InputError(f"recompute is a choice of the staged modes at order 1; got {mode} at {order}")
        threads = check_threads(threads)
        if reason := self.unavailable(mode, order):
            raise Unavailable(f"backend {self.name} cannot run mode {mode}: {reason}")
        built = self.module.build(problem, mode, threads, svd, order, recompute)
        return Prepared(problem, self.name, mode, threads, svd, built)


def names() -> tuple[str, ...]:
    """Return the names of all backends, installed or not, without importing any.

    >>> names()
    ('jax', 'native', 'torch')
    """
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def get(name: str) -> Backend:
    """Return the backend `name`, importing its library.

    Raises:
        InputError: if there is no such backend.
        Unavailable: if its library is not installed.

    >>> get("native").modes
    ('eager', 'traced', 'eager-staged', 'traced-staged', 'forward')
    """
    check_choice("backend", name, names())
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"backend {name} needs the package {error.name}, which is not installed; "
            f"install it with: pip install 'trgbench[{name}]'"
        ) from error
    return Backend(name, module)
