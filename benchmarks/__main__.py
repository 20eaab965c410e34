"""`python -m benchmarks [--quick] [--json FILE] [--part PART]`: exits 1 if a target is missed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import cluster, core, ingesting, local_runs, report, simulating, startup, training

PARTS = {
    "core": core.measure,
    "local": local_runs.measure,
    "startup": startup.measure,
    "ingest": ingesting.measure,
    "simulator": simulating.measure,
    "training": training.measure,
    "cluster": cluster.measure,
}
OUT = Path(__file__).parent / "out"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes; targets are not judged")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the results go")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part")
    chosen = parser.parse_args()
    console = Console()

    results: list[report.Result] = []
    for part in chosen.part or PARTS:
        results += PARTS[part](chosen.quick, lambda text: console.print(text, highlight=False))
    report.show(results, console)
    path = chosen.json or OUT / ("quick.json" if chosen.quick else "results.json")
    report.save(results, path)
    console.print(f"Results are in {path}", soft_wrap=True)
    if chosen.quick:
        console.print("Targets are for full sizes: run without --quick to have them judged.")
    missed = [result for result in results if result.passed is False]
    for result in missed:
        wanted = f"{result.target} {result.unit}"
        console.print(f"[bold red]Missed:[/] {result.name} is {result.value:.4g}, wanted {wanted}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
