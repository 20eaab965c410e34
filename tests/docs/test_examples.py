"""What the documentation shows is what happens.

Every ```console block is typed into a shell, one shell a page, in an empty folder; what follows a
command is what it must print. Every ```python block runs, one interpreter a page. A block that is
only there to be read is marked ```sh or ```text.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scheduler.running import clean, install, start_process

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
IN_A_CLUSTER = ("scheduler.md",)
"""Pages whose sessions need a cluster with a scheduler."""
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CHANGES = [
    (re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{6})?Z"), "TIME"),
    (re.compile(r"consume-[0-9a-f]{12}"), "consume-ID"),
    (re.compile(r": done in \d+\.\d s"), ": done in 0.1 s"),
    (re.compile(r"^(METRIC +|TASK +METRIC +)VALUE$", re.MULTILINE), "METRIC VALUE"),
    (re.compile(r"^-?\d+\.\d minutes$", re.MULTILINE), "NOISY minutes"),
    (re.compile(r"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun) -?\d+$", re.MULTILINE), r"\1 NOISY"),
    (re.compile(r"^(show-\w+ +\w+ +)-?\d+(\.\d+)?$", re.MULTILINE), "show NOISY"),
    (re.compile(r"accuracy about \d+\.\d% \(± \d+\.\d\)"), "accuracy about NOISY"),
    (re.compile(r"^(\w+\.yaml):\d+:", re.MULTILINE), r"\1:LINE:"),
]
_FILE = re.compile(r"\A# (\w+\.py)\n")
"""The first line of a block that is a file of the page's sessions."""
_MARK = "--- end of command ---"


@dataclass
class Command:
    line: int
    text: str
    output: list[str]


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The blocks of a language, each with the number of its first line."""
    text = page.read_text()
    return [
        (text.count("\n", 0, match.start(2)) + 1, match[2])
        for match in _BLOCK.finditer(text)
        if match[1] == language
    ]


def commands(page: Path) -> list[Command]:
    found: list[Command] = []
    for first, block in blocks(page, "console"):
        for number, line in enumerate(block.splitlines(), start=first):
            if line.startswith("$ "):
                found.append(Command(number, line[2:], []))
            elif line.startswith("> ") and not found[-1].output:
                found[-1].text += "\n" + line[2:]
            else:
                found[-1].output.append(line)
    return found


def files_of(page: Path) -> dict[str, str]:
    found = [(_FILE.match(block), block) for _, block in blocks(page, "python")]
    return {match[1]: block[match.end() :] for match, block in found if match}


def settled(lines: list[str]) -> list[str]:
    """Without what differs from run to run."""
    text = "\n".join(line.rstrip() for line in lines)
    for pattern, replacement in _CHANGES:
        text = pattern.sub(replacement, text)
    return text.strip("\n").split("\n")


def with_block(language: str, slow: tuple[str, ...] = ()) -> list:
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in slow else [])
        for page in PAGES
        if blocks(page, language) and page.name not in IN_A_CLUSTER
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", with_block("console"))
def test_sessions(page, tmp_path):
    run_sessions(page, tmp_path, {})


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("page", [pytest.param(ROOT / "docs" / n, id=n) for n in IN_A_CLUSTER])
def test_sessions_in_a_cluster(page, tmp_path, control_plane, namespace):
    install(control_plane)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(control_plane.kubectl_path)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(Path(control_plane.kubeconfig).read_text())
    env = {"KUBECONFIG": str(kubeconfig), "PATH": f"{tools}:{os.environ['PATH']}"}
    subprocess.run(
        [tools / "kubectl", "config", "set-context", "--current", f"--namespace={namespace}"],
        env=os.environ | env,
        check=True,
        capture_output=True,
    )
    scheduler = start_process(control_plane.kubeconfig, namespace)
    try:
        run_sessions(page, tmp_path, env)
    finally:
        scheduler.terminate()
        assert scheduler.wait(timeout=180) == 0
        clean(control_plane)


def run_sessions(page, tmp_path, more_env, python=sys.executable):
    """Type in what the page shows, with the library of this checkout or that of `python`."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    for name, what in (("privatekube", " -m privatekube_kfp.cli"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {python}{what} "$@"\n')
        program.chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "pipelines").symlink_to(ROOT / "pipelines")
    for name, text in files_of(page).items():
        (folder / name).write_text(text)
    typed = [
        command for command in commands(page) if shutil.which("jq") or "jq" not in command.text
    ]
    script = "".join(f"{command.text}\necho '{_MARK}'\n" for command in typed)
    env = {name: value for name, value in os.environ.items() if name != "PRIVATEKUBE_LEDGER"}
    env |= {"PATH": f"{programs}:{env['PATH']}"}
    if python == sys.executable:
        env |= {"PYTHONPATH": str(ROOT)}
    env |= more_env
    result = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    outputs = result.stdout.split(f"{_MARK}\n")
    assert len(outputs) == len(typed) + 1, outputs[-1]
    for command, output in zip(typed, outputs, strict=False):
        where = f"{page.name}:{command.line}: $ {command.text}"
        assert settled(output.splitlines()) == settled(command.output), where


@pytest.mark.parametrize("page", with_block("python", slow=("training.md",)))
def test_programs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for first, block in blocks(page, "python"):
        padded = "\n" * (first - 1) + block
        exec(compile(padded, str(page), "exec"), names)


@pytest.mark.parametrize("name", ["visits.py"])
def test_a_file_in_the_readme_is_the_one_in_the_folder(name):
    assert files_of(ROOT / "README.md")[name] == (ROOT / "pipelines" / name).read_text()


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_links_lead_somewhere():
    for page in PAGES:
        for name, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
            if not name.startswith(("http://", "https://")):
                target = page.parent / name if name else page
                assert target.exists(), f"{page.name} links to {name}"
                assert not anchor or anchor in headings(target), f"{page.name}: {name}#{anchor}"
