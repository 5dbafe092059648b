"""Triton in a version of choice beside the installed one: folders under build/triton."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path

NEWEST = "newest"


class MissingTriton(Exception):
    """A version that is neither at hand nor to be had; the message is one line for the user."""


def find_triton(version: str, folder: Path) -> Path | None:
    """Return the folder to put before the path for `version`, None for the installed Triton.

    "newest" asks the package index, or takes the newest folder when there is no answer. What is
    missing gets installed into `folder`. Raises MissingTriton.
    """
    if version == NEWEST:
        version = ask_newest() or newest_of(folder)
    if version == installed_version():
        return None
    place = folder / version
    if not (place / "triton" / "__init__.py").is_file():
        install(version, place)
    return place


def installed_version() -> str:
    """Return the version of the Triton of this interpreter, empty when there is none."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


def ask_newest() -> str:
    """Return the newest version of the package index, empty when it does not answer."""
    report = ("--dry-run", "--ignore-installed", "--report", "-")
    done = run_pip("install", "--quiet", "--no-deps", *report, "triton")
    if done.returncode:
        return ""
    return json.loads(done.stdout)["install"][0]["metadata"]["version"]


def newest_of(folder: Path) -> str:
    """Return the newest version among the folders; raises MissingTriton when there is none."""
    found = [path.name for path in folder.glob("*.*") if (path / "triton").is_dir()]
    found += [installed_version()] if installed_version() else []
    if not found:
        raise MissingTriton(
            f"newest triton: no package index answers and {folder} holds none; "
            "name an installed one with --triton VERSION"
        )
    newest = max(found, key=lambda name: [int(part) for part in name.split(".") if part.isdigit()])
    print(f"no package index answers: taking triton {newest} for the newest", file=sys.stderr)
    return newest


def install(version: str, place: Path) -> None:
    """Install `version` into `place`; raises MissingTriton."""
    unfinished = place.with_name(place.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    done = run_pip(
        "install", "--quiet", "--no-deps", "--target", str(unfinished), f"triton=={version}"
    )
    if done.returncode:
        shutil.rmtree(unfinished, ignore_errors=True)
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise MissingTriton(
            f"triton {version}: not installed and pip gives none ({reason}); without internet "
            f"copy an unpacked wheel to {place}, or use an interpreter that has it"
        )
    shutil.rmtree(place, ignore_errors=True)
    unfinished.rename(place)


def run_pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True)
