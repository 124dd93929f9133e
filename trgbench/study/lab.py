"""Where experiments measure: every task in a fresh process, pinned before any library is loaded."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

BACKENDS = ("native", "jax", "torch")
MISSING = "missing"  # {MISSING: reason} stands in the data for what could not be measured
LEFT_OUT = {MISSING: "left out by --quick"}
TIMEOUT = 240.0


@dataclass
class Lab:
    """Runs tasks for the experiments.

    Attributes:
        quick: fewer sizes and fewer samples.
        missing: backend → why it is left out.
        progress: is told what is being done.
    """

    quick: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)
    progress: Callable[[str], None] = lambda doing: None
    cpus: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends that can be used; `native` is always there."""
        return tuple(name for name in BACKENDS if name not in self.missing)

    @property
    def widths(self) -> tuple[int, ...]:
        """Thread counts to compare: one, and all there are."""
        return tuple(dict.fromkeys((1, self.cpus)))

    def run(
        self,
        task: Callable[..., Any],
        *,
        threads: int = 1,
        timeout: float = TIMEOUT,
        environment: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Any:
        """Return what `task(**arguments)` returns in a fresh process of `threads` CPUs, passed on as JSON.

        A backend that is missing, an error, or more than `timeout` seconds give `{MISSING: reason}`.
        """
        named = arguments.get("backend")
        if isinstance(named, str) and named in self.missing:
            return {MISSING: self.missing[named]}
        said = ", ".join(f"{name} {value}" for name, value in arguments.items())
        self.progress(f"{task.__name__} {said}, threads {threads}")
        request = json.dumps([task.__module__, task.__name__, threads, arguments])
        # A session of its own: Ctrl-C reaches only us, and the compilers a task has started end with it.
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                [sys.executable, "-m", "trgbench.study.worker", request],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            ) as process,
        ):
            try:
                answer, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                return {MISSING: f"it took longer than the {timeout:.0f} s allowed"}
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            if process.returncode:
                errors.seek(0)
                last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
                how = f"ended with {process.returncode}" if process.returncode > 0 else "was killed"
                return {MISSING: f"the measuring process {how}: {' '.join(last)[:300]}".removesuffix(": ")}
        return json.loads(answer)

    def each(self, task: Callable[..., Any], **options: Any) -> dict[str, Any]:
        """Return `run` for every backend, by its name."""
        return {name: self.run(task, backend=name, **options) for name in BACKENDS}
