"""What was measured, against what was promised: a table for people and JSON for machines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Result:
    """One number. `target` says in words what it has to be, `passed` whether it is."""

    name: str
    value: float
    unit: str
    target: str | None = None
    passed: bool | None = None


def at_least(name: str, value: float, unit: str, bound: float, judged: bool) -> Result:
    return Result(name, value, unit, f">= {bound:g}", value >= bound if judged else None)


def at_most(name: str, value: float, unit: str, bound: float, judged: bool) -> Result:
    return Result(name, value, unit, f"<= {bound:g}", value <= bound if judged else None)


def show(results: list[Result], console: Console) -> None:
    table = Table("measured", "value", "unit", "target", "")
    table.columns[1].justify = "right"
    verdicts = {None: "", True: "[green]met[/]", False: "[bold red]MISSED[/]"}
    for result in results:
        value = f"{result.value:,.0f}" if result.value >= 100 else f"{result.value:,.2f}"
        verdict = verdicts[result.passed]
        table.add_row(result.name, value, result.unit, result.target or "", verdict)
    console.print(table)


def save(results: list[Result], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
