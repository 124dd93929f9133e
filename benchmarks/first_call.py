"""What does the first gradient cost in a fresh interpreter? (the study's experiment 5)"""

from __future__ import annotations

from benchmarks.common import BACKENDS, MODES, benchmark, installed, ready

PROBLEMS = {"vector(1000)": ("vector", 1000), "chain(100)": ("chain", 100), "trg(16, 4)": ("trg", 16, 4)}


class Fresh:
    """A benchmark whose every sample is a new interpreter."""

    version = "1"
    timeout = 900.0
    rounds = 1
    number = 1
    repeat = (1, 3, 10.0)  # up to 3 samples, but no new one after 10 s: torch.compile takes longer than that
    min_run_count = 1
    warmup_time = 0
    # With a compiled program from the disk this would not be a first call.
    env = {"JAX_ENABLE_COMPILATION_CACHE": "0", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}  # noqa: RUF012


class Import(Fresh):
    """Import of the backend and its library."""

    params = (BACKENDS,)
    param_names = ("backend",)

    def setup(self, backend: str) -> None:
        installed(backend, threads=1)

    @benchmark("Import of a backend in a fresh interpreter")
    def timeraw_import(self, backend: str) -> tuple[str, str]:
        return (
            f"from trgbench import backends; backends.get({backend!r})",
            "from trgbench import measure; measure.pin(1)",
        )


class FirstGradient(Fresh):
    """From an imported backend to the first gradient: trace, transform, compile, prepare, and one run."""

    params = (BACKENDS, MODES, tuple(PROBLEMS))
    param_names = ("backend", "mode", "problem")

    def setup(self, backend: str, mode: str, problem: str) -> None:
        ready(backend, mode, 1, *PROBLEMS[problem])  # checked here, since what is timed cannot check itself

    @benchmark(
        "First gradient in a fresh interpreter, import excluded",
        quick={"mode": ["eager", "traced"], "problem": ["vector(1000)"]},
    )
    def timeraw_first_gradient(self, backend: str, mode: str, problem: str) -> tuple[str, str]:
        return (
            f"prepared = backend.prepare(problem, {mode!r}); prepared(problem.example)",
            "from trgbench import measure; measure.pin(1)\n"
            "from trgbench import backends, problems\n"
            f"backend, problem = backends.get({backend!r}), problems.{problem}",
        )
