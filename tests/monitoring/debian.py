"""Debian packages without installing any: fetched and unpacked into a folder.

`prometheus` calls this. It reads the machine's apt sources and writes those of Debian 12 beside its
own package lists. So nothing of the machine changes, no service starts, and root is not needed.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Protocol

CODENAME = "bookworm"
_SUITES = (CODENAME, f"{CODENAME}-updates", f"{CODENAME}-security")


class Run(Protocol):
    """Runs a command to its end and returns what it wrote; raises when it fails."""

    def __call__(self, command: list[str], *, cwd: Path | None = None) -> str: ...


def why_not() -> str | None:
    """What this machine lacks to fetch Debian 12's packages, or None."""
    try:
        release = Path("/etc/os-release").read_text()
    except OSError:
        release = ""
    if not re.search(rf'^VERSION_CODENAME="?{CODENAME}"?$', release, re.M):
        return "this is not Debian 12"
    missing = [name for name in ("apt-get", "apt-config", "dpkg", "tar") if not shutil.which(name)]
    if missing:
        return f"{' and '.join(missing)} cannot be found"
    if not _machine_sources():
        return f"apt has no source for {CODENAME}"
    return None


class Apt:
    """apt-get with sources, lists and caches of its own in `folder`."""

    def __init__(self, folder: Path, run: Run) -> None:
        self._run = run
        self._downloads = folder / "downloads"
        parts = folder / "sources.list.d"
        for made in (self._downloads, parts, folder / "lists/partial", folder / "cache"):
            made.mkdir(parents=True)
        for name, text in _machine_sources().items():
            (parts / name).write_text(text)
        self._config = folder / "apt.conf"
        # Hooks of the machine's configuration would touch the machine's own lists and caches.
        self._config.write_text(
            f'Dir::Etc::SourceList "{folder / "none"}";\n'
            f'Dir::Etc::SourceParts "{parts}";\n'
            f'Dir::State::Lists "{folder / "lists"}";\n'
            f'Dir::Cache "{folder / "cache"}";\n'
            'Acquire::Languages "none";\n'
            'Acquire::Retries "3";\n'
            "#clear Acquire::IndexTargets::deb::DEP-11;\n"
            "#clear Acquire::IndexTargets::deb::CNF;\n"
            "#clear APT::Update::Pre-Invoke;\n"
            "#clear APT::Update::Post-Invoke;\n"
            "#clear APT::Update::Post-Invoke-Success;\n"
        )

    def update(self) -> None:
        """Fetch the lists of packages."""
        self._apt("update")

    def unpack(self, packages: list[str], into: Path) -> None:
        """Unpack binary packages, without what they depend on and without running their scripts."""
        self._apt("download", *packages)
        for package in packages:
            [archive] = self._downloads.glob(f"{package}_*.deb")
            self._run(["dpkg", "-x", str(archive), str(into)])
            archive.unlink()

    def _apt(self, *arguments: str) -> None:
        command = ["apt-get", "-q", "-c", str(self._config), *arguments]
        self._run(command, cwd=self._downloads)


def _machine_sources() -> dict[str, str]:
    """The machine's sources of Debian 12, by file name."""
    asked = ["one", "Dir::Etc::SourceList/f", "parts", "Dir::Etc::SourceParts/d"]
    answer = subprocess.run(
        ["apt-config", "shell", *asked], check=True, capture_output=True, text=True
    )
    settings = dict(re.findall(r"^(\w+)='(.*)'$", answer.stdout, re.M))
    files = [Path(settings["one"])] if settings.get("one") else []
    if settings.get("parts"):
        files += sorted(Path(settings["parts"]).glob("*"))
    found = {}
    for file in files:
        if file.is_file() and file.suffix in (".list", ".sources"):
            text = file.read_text()
            kept = of_debian(text) if file.suffix == ".list" else of_debian_822(text)
            if kept:
                found[file.name] = kept
    return found


def of_debian(text: str) -> str:
    """Of a file with one source a line, those of Debian 12.

    Others that serve the same release (their component is rarely `main`) have no part in it.
    """
    kept = []
    for line in text.splitlines():
        match = re.match(r"deb\s+((?:\[[^\]]*\]\s+)?\S+)\s+(\S+)\s+([^#]+)", line.strip())
        if match and match[2] in _SUITES and "main" in match[3].split():
            kept.append(f"deb {match[1]} {match[2]} {match[3].strip()}\n")
    return "".join(kept)


def of_debian_822(text: str) -> str:
    """The same of a file of stanzas with fields."""
    kept = []
    text = re.sub(r"^#.*\n", "", text, flags=re.M)
    for stanza in re.split(r"\n\s*\n", text.strip()):
        fields = {
            name.lower(): value
            for name, value in re.findall(r"^([^\s:]+):(.*(?:\n[ \t].*)*)", stanza, re.M)
        }
        suites = [suite for suite in fields.get("suites", "").split() if suite in _SUITES]
        enabled = fields.get("enabled", "yes").strip().lower() not in ("no", "false", "off", "0")
        packages = "deb" in fields.get("types", "").split()
        if suites and enabled and packages and "main" in fields.get("components", "").split():
            fields |= {"types": " deb", "suites": " " + " ".join(suites)}
            kept.append("".join(f"{name}:{value}\n" for name, value in fields.items()))
    return "\n".join(kept)
