"""What tests share: a browser, threads in a hurry, and a tiny repository with a suite, for the nightly's.

asv runs as always: it makes a virtual environment, and builds, installs and measures each commit in it. Only
what it installs beforehand is lent from the environment of the tests, so that all of it takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

ENVIRONMENT = f"""
import pathlib
from asv.plugins.virtualenv import Virtualenv

class Light(Virtualenv):
    tool_name = "light"

    def _install_requirements(self):
        [site] = pathlib.Path(self._path).glob("lib/python*/site-packages")
        (site / "lent.pth").write_text({sysconfig.get_path("purelib")!r})
"""
INSTALL = """
import pathlib, shutil, sysconfig
target = pathlib.Path(sysconfig.get_path("purelib"), "trgbench")
shutil.rmtree(target, ignore_errors=True)
shutil.copytree("trgbench", target)
"""
BENCHMARKS = """
import time
import trgbench

class Step:
    version, number, repeat, warmup_time, rounds = "1", 1, 8, 0.0, 1

    def time_step(self):
        trgbench.step()

class Figure:
    version, unit = "1", "things"
    params, param_names = ([1, 2],), ["n"]

    def track_figure(self, n):
        return trgbench.figure(n)

# What the gate compares by default gives the same in every run, which two processes tell.
for function, tolerance in (Step.time_step, None), (Figure.track_figure, 0.0):
    function.pretty_name, function.tolerance = "a figure", tolerance
Figure.track_figure.gate = {}
"""
PACKAGE = """
import time

def step():
    time.sleep(0.001)

def figure(n):
    return {figure} * n
"""
CONFIGURATION = {
    "version": 1,
    "project": "trgbench",
    "repo": ".",
    "branches": ["main"],
    "environment_type": "light",
    "plugins": [".light"],
    "pythons": [PYTHON],
    "build_command": [],
    "install_command": ["in-dir={build_dir} python install.py"],
    "uninstall_command": [],
    "env_dir": ".asv/env",
    "results_dir": "results",
    "html_dir": "html",
    "default_benchmark_timeout": 60,
}


class Scratch:
    """The repository at `root`; `main` at its newest commit, and nothing measured yet."""

    def __init__(self, root: Path) -> None:
        self.root = root
        identity = {"NAME": "t", "EMAIL": "t@example.org"}
        self.env = os.environ | {"HOME": str(root.parent), "PYTHONPATH": str(ROOT)}
        self.env |= {
            f"GIT_{who}_{key}": text for who in ("AUTHOR", "COMMITTER") for key, text in identity.items()
        }
        self.env.pop("GIT_DIR", None)

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.root, env=self.env, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def write(self, **files: str) -> None:
        """Write files; `__` in a name stands for a slash, and the ending is `.py`."""
        for name, text in files.items():
            path = self.root / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, subject: str, package: str | None = None, **files: str) -> str:
        """Commit a package (or the one there was) and return the hash."""
        if package is not None:
            (self.root / "trgbench").mkdir(exist_ok=True)
            (self.root / "trgbench" / "__init__.py").write_text(package)
        self.write(**files)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def start(self, *arguments: str, module: str = "trgbench", **options: Any) -> subprocess.Popen[str]:
        """Start the real command in the repository; its own package must not be taken for the project's."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            cwd=self.root,
            env=self.env,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options,
        )

    def run(self, *arguments: str, module: str = "trgbench") -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, module=module)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def nightly(self, *arguments: str) -> tuple[dict[str, Any], str]:
        """Run the nightly and return its report, and what it printed."""
        report = self.root.parent / "report.json"
        report.unlink(missing_ok=True)
        done = self.run("nightly", "--machine", "here", "--json", str(report), *arguments)
        said = done.stdout + done.stderr
        assert report.exists(), said
        content: dict[str, Any] = json.loads(report.read_text())
        assert content["exit_code"] == done.returncode, said
        return content, said

    def records(self) -> dict[str, Any]:
        """Return the content of each results file by the first eight characters of its commit."""
        return {
            path.name[:8]: json.loads(path.read_text())
            for path in (self.root / "results" / "here").glob("????????-*.json")
        }


@pytest.fixture
def scratch(tmp_path: Path) -> Callable[..., Scratch]:
    """Return what makes a scratch repository of commits, each a package, or a figure that it gives."""

    def make(*packages: str | float, **files: str) -> Scratch:
        repository = Scratch(tmp_path / "checkout")
        repository.root.mkdir()
        repository.git("init", "-q", "-b", "main")
        (repository.root / "asv.conf.json").write_text(json.dumps(CONFIGURATION))
        (repository.root / ".gitignore").write_text(".asv/\nhtml/\n.html.new/\n__pycache__/\n")
        repository.write(
            light=ENVIRONMENT,
            install=INSTALL,
            benchmarks____init__="",
            benchmarks__tiny=BENCHMARKS,
            **files,
        )
        for i, package in enumerate(packages):
            text = package if isinstance(package, str) else PACKAGE.format(figure=package)
            repository.commit(f"commit {i}", text)
        return repository

    return make


@pytest.fixture
def run_hurried() -> Callable[..., None]:
    """Return what runs functions in a thread each, switched as often as Python can."""

    def run(*work: Callable[[], object]) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=each) for each in work]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)

    return run


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, one in a process: Playwright's calls cannot be nested."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium here: install Debian's package chromium to open the pages in it")
    flags = [
        *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    ]
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, headless=True, args=flags)
        yield running
        running.close()
