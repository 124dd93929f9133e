"""The project's own rules: one set of versions, imports that run one way, small files, light imports."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path for folder in ("trgbench", "benchmarks", "tests") for path in (ROOT / folder).rglob("*.py")
)


def pins() -> dict[str, str]:
    lines = (ROOT / "pins.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def asv_configuration() -> dict[str, Any]:
    text = (ROOT / "asv.conf.json").read_text()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_asv_installs_the_pinned_versions() -> None:
    matrix = asv_configuration()["matrix"]["req"]
    wanted = {canonicalize_name(name.removeprefix("pip+")): versions for name, versions in matrix.items()}
    assert wanted == {name: [pins()[name]] for name in wanted}
    assert {"jax", "jaxlib", "torch", "asv-runner"} <= wanted.keys()
    # All that a backend needs; the others are the command line's own.
    base = {canonicalize_name(Requirement(line).name) for line in project()["dependencies"]}
    assert base - wanted.keys() == {"rich", "jsonschema"}


def test_make_installs_the_pinned_versions_and_ci_installs_nothing_else() -> None:
    installs = re.findall(r"pip install.*", (ROOT / "Makefile").read_text())
    assert installs
    assert all("-c pins.txt" in line for line in installs)
    ci = (ROOT / ".ci" / "run").read_text()
    assert "pip install" not in ci
    assert "make test" in ci


def test_every_dependency_is_pinned_to_a_version_that_its_range_allows() -> None:
    extras = project()["optional-dependencies"]
    for line in [*project()["dependencies"], *(line for lines in extras.values() for line in lines)]:
        requirement = Requirement(line)
        version = pins()[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), line


def test_make_asv_and_the_package_agree_on_the_python() -> None:
    [version] = asv_configuration()["pythons"]
    assert f"PYTHON ?= python{version}\n" in (ROOT / "Makefile").read_text()
    assert version in str(Requirement(f"python{project()['requires-python']}").specifier)


# Who may import whom, by the first name after `trgbench.` (design: imports run one way).
PHYSICS = {"errors", "ising", "trg", "cut_svd", "staged", "problems"}
USERS = {"errors", "measure", "backends", "problems", "ising"}  # ising: the exact values to compare with
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "measure": {"errors"},
    "engine": {"errors", "engine", "cut_svd"},
    "ising": PHYSICS,
    "trg": PHYSICS,
    "cut_svd": PHYSICS,
    "staged": PHYSICS,
    "problems": PHYSICS,
    "backends": PHYSICS | {"engine", "backends"},
    # The engine: what a cache counts and what a tape costs is no part of a backend's contract.
    "study": USERS | {"study", "engine", "console"},
    # What it keeps is written, and its machine described, as the study's results are; point knows what fits,
    # and trg what another shape is.
    "advise": USERS | {"advise", "study", "console", "point", "trg"},
    # What the gate keeps is written, and its machine described, as the study's results are; the front page is
    # drawn as its report is.
    "suite": USERS | {"suite", "study", "console"},
    # It measures in the same fresh processes as the study.
    "speed": USERS | {"speed", "study", "console"},
    # It computes what the subcommand trg does, point by point.
    "sweeps": USERS | {"sweeps", "point", "console"},
    "console": {"errors"},
    "point": USERS | {"trg", "console"},
    "__main__": USERS | {"advise", "console", "point", "study", "suite", "sweeps"},
    "benchmarks": USERS | {"benchmarks"},
}


def part_of(module: str) -> str | None:
    """Return the part of the project that a module belongs to, None if it is not ours."""
    first, *rest = module.split(".")
    if first == "benchmarks":
        return first
    return rest[0] if first == "trgbench" and rest else None


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the full names of all modules and names that a file imports, at any depth in it."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if path.parts[len(ROOT.parts)] != "tests"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_imports_run_one_way(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    if module == "trgbench.__init__":
        # What the package offers itself; test_imports_are_light sees that it is not imported with it.
        assert set(imported_modules(path)) <= {"trgbench.sweeps.sweep"}
        return
    part = part_of(module)
    assert part in MAY_IMPORT, f"say in MAY_IMPORT what trgbench.{part} may import"
    used = {part_of(name) for name in imported_modules(path)} - {None, "__version__"}
    assert used <= MAY_IMPORT[part]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_can_be_read_at_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("trgbench", ["jax", "torch", "asv", "numpy", "rich", "dask", "trgbench.sweeps"]),
        ("trgbench.measure", ["numpy", "scipy"]),  # it must be there before NumPy is
        ("trgbench.backends", ["jax", "torch", "asv"]),
        ("trgbench.problems", ["jax", "torch", "asv"]),
        ("trgbench.__main__", ["jax", "torch", "asv", "numpy", "dask", "pyarrow", "matplotlib"]),
        ("benchmarks.common", ["jax", "torch", "asv", "numpy"]),
    ],
)
def test_imports_are_light(module: str, unwanted: list[str]) -> None:
    code = f"import sys, {module}; print(*[name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
