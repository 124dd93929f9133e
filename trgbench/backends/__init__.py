"""What can differentiate a problem: one file per backend, all with the same small contract.

A backend file `backends/<name>.py` imports its library at the top and defines

* `MODES`      the modes it has, in the order of `backends.MODES`;
* `SVD_RULES`  the SVD derivative rules it has, `"safe"` first;
* `version()`  the version of its library, a string;
* `unavailable(mode)`  why that mode cannot run on this machine (and what to do), or `None`;
* `build(problem, mode, threads, svd)`  pays everything that is paid once and returns a `Built`.

The file is found by its name without being imported; the extra that installs its library bears the
same name (`pip install 'trgbench[jax]'`).
"""

from __future__ import annotations

import importlib
import math
import os
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from trgbench.errors import InputError, Unavailable, check_choice, check_integer

if TYPE_CHECKING:
    from trgbench.problems import Problem

MODES = ("eager", "traced", "eager-staged", "traced-staged")
SVD_RULES = ("safe", "builtin")


class NonFiniteGradient(RuntimeWarning):
    """The input was fine and the value or gradient that came out is not finite."""


@dataclass(frozen=True)
class Built:
    """What a backend's `build` returns.

    Attributes:
        run: library array x → (value, gradient), both library arrays that `float` and
            `numpy.asarray` accept, finished when it returns. This is what a benchmark times.
        asarray: NumPy array → the library's own array.
        costs: seconds paid once, by name: `trace` (build and transform), `compile`, `prepare`
            (what remains: warm-up, thread set-up). `None` where the library does not separate it.
        notes: one-line remarks a user should see, for instance a thread count that could not be set.
    """

    run: Callable[[Any], tuple[Any, Any]]
    asarray: Callable[[np.ndarray], Any]
    costs: Mapping[str, float | None]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A problem made ready on one backend in one mode; call it as `x → (value, gradient)`.

    The call checks its input and warns with `NonFiniteGradient` about a result that is not finite;
    `built.run` does neither and is what benchmarks time.
    """

    problem: Problem
    backend: str
    mode: str
    threads: int
    svd: str
    built: Built = field(repr=False)

    def __call__(self, x: object) -> tuple[float, np.ndarray]:
        """Return the value (a float) and the gradient (float64, of the shape of x; writable).

        Raises:
            InputError: if `x` has another shape than the problem's example or is not finite.
        """
        checked = self.problem.check_input(x)
        value, gradient = self.built.run(self.built.asarray(checked))
        value, gradient = float(value), np.asarray(gradient, dtype=np.float64).copy()
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            import warnings

            warnings.warn(
                f"{self.backend} {self.mode} with the {self.svd} SVD rule gave a value of {value} and "
                f"{np.count_nonzero(~np.isfinite(gradient))} gradient elements that are not finite"
                + ("; use svd='safe'" if self.svd != "safe" else ""),
                NonFiniteGradient,
                stacklevel=2,
            )
        return value, gradient


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

    def unavailable(self, mode: str) -> str | None:
        """Return why `mode` cannot run on this machine, or `None` if it can."""
        return self.module.unavailable(check_choice("mode", mode, self.modes))

    def prepare(self, problem: Problem, mode: str, threads: int = 1, svd: str = "safe") -> Prepared:
        """Pay everything that is paid once, and return the callable that pays only the run.

        Thread counts are a setting of the whole process: of two preparations the later one holds.

        Raises:
            InputError: if the mode, SVD rule or thread count is not one this backend and machine have.
            Unavailable: if the mode exists but cannot run here.
        """
        check_choice("mode", mode, self.modes)
        check_choice(f"SVD rule of backend {self.name}", svd, self.svd_rules)
        available = len(os.sched_getaffinity(0))
        if check_integer("threads", threads, minimum=1) > available:
            raise InputError(
                f"threads must be at most the {available} CPUs this process may use; got {threads}; "
                f"ask for fewer, or allow more CPUs (taskset)"
            )
        if reason := self.unavailable(mode):
            raise Unavailable(f"backend {self.name} cannot run mode {mode}: {reason}")
        return Prepared(
            problem, self.name, mode, threads, svd, self.module.build(problem, mode, threads, svd)
        )


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
    ('eager', 'traced', 'eager-staged', 'traced-staged')
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
