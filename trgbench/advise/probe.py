"""Measures one combination in this process, which should be fresh: `python -m trgbench.advise.probe REQUEST`.

The request is a JSON object of the fields of a `Setting` and a `Combination`. The answer is one JSON object a
line, as things become known, so that one who stops waiting keeps what is there: `{"doing": …}` before every
part, and fields of `Costs` after it, the last line with `"done": true`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import resource
import statistics
import sys
import time
import warnings
from typing import Any

from trgbench import measure

LONG = 0.2  # seconds; a call as long as this is steady from the second on (preparing ends with one)


def say(**fields: Any) -> None:
    print(json.dumps(fields), file=sys.__stdout__, flush=True)


def another_shape(name: str, sizes: dict[str, int]) -> dict[str, int]:
    """Return sizes next to these, whose arrays have other shapes and cost about the same."""
    if name == "vector":
        return {"n": sizes["n"] + 1}
    if name == "chain":
        return {**sizes, "n": 11}  # instead of 10
    from trgbench.trg import bond_dimensions

    kept = max(bond_dimensions(**sizes))  # above it chi changes nothing
    return {**sizes, "chi": kept - 1 if kept > 2 else 3}


def check(problem: Any, value: Any, gradient: Any) -> str | None:
    """Return why a result does not count, or None. Of TRG only its being finite is looked at here.

    TRG's reference outside the study's table is a finite difference that takes longer than what is measured;
    `trgbench.advise.survey` compares the combinations with one another instead.
    """
    import numpy as np

    from trgbench import problems

    if not (math.isfinite(float(value)) and np.all(np.isfinite(np.asarray(gradient)))):
        return "NaN: the gradient is not finite"
    if problem.name != "trg":
        try:
            problem.check(problem.example, value, gradient)
        except problems.WrongResult as error:
            return f"wrong: {error}"
    return None


def probe(
    problem: str,
    sizes: dict[str, int],
    threads: int,
    changing_shape: bool,
    backend: str,
    mode: str,
    svd: str,
    only_check: bool = False,
) -> None:
    """Measure, and say what came out."""
    measure.pin(threads)
    say(doing=f"importing {backend}")
    from trgbench import backends, problems
    from trgbench.errors import Unavailable

    try:
        library = backends.get(backend)
        if svd not in library.svd_rules:
            return say(why_not=f"backend {backend} has no {svd} SVD rule", done=True)
        if mode not in library.modes:
            return say(why_not=f"backend {backend} has no mode {mode}", done=True)
        if reason := library.unavailable(mode):
            return say(why_not=f"cannot run here: {reason}", done=True)
    except Unavailable as error:
        return say(why_not=f"not installed: {error}", done=True)
    made = getattr(problems, problem)(**sizes)
    if mode == "forward" and made.example.shape != ():
        return say(why_not="forward mode is for a scalar input only", done=True)
    say(doing="compiling it" if mode.startswith("traced") else "making it ready")
    clock = measure.Clock(threads)
    wall, start = time.perf_counter(), clock()
    built = library.prepare(made, mode, threads, svd).built
    share = min(1.0, (clock() - start) / (time.perf_counter() - wall))  # `costs` are of the wall's time
    costs = {name: built.costs[name] for name in ("trace", "compile", "prepare")}
    first = (built.costs["first_run"] or 0.0) * share
    say(
        traced=costs["trace"] is not None or costs["compile"] is not None,
        **{name: seconds and seconds * share for name, seconds in costs.items()},
    )
    say(doing="its second run")
    x = built.asarray(made.example)
    run = functools.partial(built.run, x)
    start = clock()
    value, gradient = run()
    second = clock() - start
    if reason := check(made, value, gradient):
        return say(why_not=reason, done=True)
    result = float(gradient) if made.example.shape == () else None
    say(
        first=first, result=result, doing="making another shape ready" if changing_shape else "its steady run"
    )
    if only_check:
        return say(each=second, done=True)
    if changing_shape:
        other = getattr(problems, problem)(**another_shape(problem, sizes))
        start = clock()
        library.prepare(other, mode, threads, svd)  # which ends with its first run
        say(each=clock() - start)
    elif second < LONG:
        say(each=measure.steady(run, timer=clock.timer))
    else:
        say(each=statistics.median([second, *(measure.once(run, timer=clock.timer) for _ in range(2))]))
    # First the peak of all so far: measuring one call resets the kernel's mark.
    say(process=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    say(memory=measure.peak_memory(run), done=True)


def main() -> None:
    request = json.loads(sys.argv[1])
    # Compilers talk on standard output; only what `say` says belongs there.
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        probe(**request)


if __name__ == "__main__":
    os.environ.update(measure.NO_CACHES)
    main()
