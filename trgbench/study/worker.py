"""The measuring process: `python -m trgbench.study.worker REQUEST` runs one task and prints JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys

from trgbench import measure
from trgbench.console import one_line, strict_json


def main(request: str) -> None:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no part of the answer
    module, task, threads, arguments = json.loads(request)
    measure.pin(threads)  # before the task imports NumPy or a backend
    try:
        result = getattr(importlib.import_module(module), task)(**arguments)
    except Exception as error:
        result = {"missing": one_line(error)[:300]}
    answer.write(strict_json(result))
    answer.flush()
    os._exit(0)  # libraries' threads and exit handlers have nothing to say


if __name__ == "__main__":
    main(sys.argv[1])
