"""The scripts that asv's pages load from elsewhere, fetched once by pip and kept on this machine.

asv 0.6 takes jQuery, Flot, Bootstrap and the like from CDNs; its source package 0.5.1 had them in a folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from asv.util import UserError

KEPT = Path(".asv/www-vendor")
VERSION = "0.5.1"
SHA256 = "805fc3cc46c0bcf3e7baeaa16a12e4b92f1276c25490db4cb80fc541afa52bfc"
# pip runs the setup.py of a source package even to download it, and this one does not know newer setuptools.
BUILD_CONSTRAINT = "setuptools<72"


def ready(kept: Path = KEPT) -> Path:
    """Return the folder with the scripts and style sheets; fetch them, as pip is configured, if need be.

    Raises:
        UserError: if they are not there and pip cannot get them.
    """
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            fetched = _fetch(Path(scratch))
            try:
                fetched.rename(kept)
            except OSError:
                if not kept.is_dir():  # else another process was faster
                    raise
    return kept


def _fetch(scratch: Path) -> Path:
    wanted, constraint = scratch / "wanted.txt", scratch / "constraint.txt"
    wanted.write_text(f"asv=={VERSION} --hash=sha256:{SHA256}\n")
    constraint.write_text(f"{BUILD_CONSTRAINT}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "asv", "--require-hashes"]
    done = subprocess.run(
        [*command, "--quiet", "--dest", str(scratch), "--requirement", str(wanted)],
        env={**os.environ, "PIP_CONSTRAINT": str(constraint), "PIP_BUILD_CONSTRAINT": str(constraint)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        raise UserError(
            f"the scripts of asv's pages are not in {KEPT}/ and pip could not download asv=={VERSION}, which "
            f"has them; publish once with a package index within pip's reach, later it needs no network. "
            f"pip says: {said[0].removeprefix('ERROR: ') if said else done.stderr.strip()[-300:]}"
        )
    vendor = scratch / "vendor"
    vendor.mkdir()
    with tarfile.open(scratch / f"asv-{VERSION}.tar.gz") as package:
        for member in package:
            folder, name = os.path.split(member.name)
            content = package.extractfile(member) if folder.endswith("asv/www/vendor") else None
            if content is not None and name.endswith((".js", ".css")):
                with content, (vendor / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
    return vendor
