"""A stream with data, on a file or in a cluster with its scheduler, and `privatekube run` on it."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from privatekube_kfp.accounting import Plan, PureEpsilon
from privatekube_kfp.core.selection import Selection
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.client import ClaimClient
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.ledger.streams import StreamSpec
from tests.kubernetes.fixtures import binaries, control_plane, namespace  # noqa: F401
from tests.scheduler.running import assert_verified, served

HERE = Path(__file__).parent
TOP = HERE.parents[1]


@dataclass
class Ended:
    """How a run ended: its exit code, its one JSON document, and what people read meanwhile."""

    code: int
    document: dict
    told: str

    @property
    def tasks(self):
        """The tasks that were started, in order."""
        lines = self.told.splitlines()
        return [line.split(":")[0] for line in lines if line.endswith(": started")]

    @property
    def claim(self):
        (claim,) = self.document["claims"]
        return claim


class Place:
    """Two days of clicks, and where their budget is."""

    def __init__(self, folder, ledger, address, environment):
        self.folder = folder
        self.ledger = ledger
        self.address = address
        self.environment = environment
        self.journal = folder / "journal"
        self.out = folder / "published" / "model"
        self.ledger.create_stream(StreamSpec("clicks", "1", "1e-7", ByPipelines(1)))
        for day in ("monday", "tuesday"):
            path = folder / f"{day}.parquet"
            pyarrow.parquet.write_table(pyarrow.table({"user": [1, 2, 3]}), path)
            self.ledger.create_block(day, "clicks", data_source=str(path))

    def begin(self, pipeline, *flags, **arguments):
        """`privatekube run`, as a process."""
        said = [f"--arg={name}={_text(value)}" for name, value in arguments.items()]
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "privatekube_kfp.cli", "run", str(pipeline), "--json"),
                *("--ledger", self.address, "--folder", str(self.folder / "runs")),
                *(*said, *flags),
            ],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, pipeline, *flags, **arguments):
        process = self.begin(pipeline, *flags, **arguments)
        answer, told = process.communicate(timeout=1200)
        return Ended(process.returncode, json.loads(answer), told)

    def seven_steps(self, *flags, **arguments):
        wanted = {"uri": self.out, "journal": self.journal, **arguments}
        return self.run(HERE / "seven_steps.py", *flags, **wanted)

    def hold(self, epsilon):
        """Somebody else's claim, who keeps it."""
        client = ClaimClient(self.ledger)
        plan, selection = Plan.of(PureEpsilon(epsilon)), Selection(last=2)
        answer = client.allocate("other", stream="clicks", selection=selection, plan=plan)
        assert answer.done, answer

    @property
    def done(self):
        """What the pipeline's own steps wrote down, each time they ran."""
        return self.journal.read_text().split() if self.journal.exists() else []

    def epsilons(self, day):
        """Allocated and consumed, as the claims say."""
        self.ledger.tend()
        assert_verified(self.ledger)
        budget = self.ledger.block(day).budget
        return tuple(part.to_json()["epsilon"] for part in (budget.allocated, budget.consumed))

    def verify(self):
        assert_verified(self.ledger)


def tells(text, number):
    """Whether a number is told by itself: in digests, run ids and times any digits may come."""
    return re.search(rf"(?<![-.0-9A-Za-z]){number}(?![0-9A-Za-z])", text) is not None


def _text(value):
    return (
        value
        if isinstance(value, str)
        else str(value)
        if isinstance(value, Path)
        else (json.dumps(value))
    )


@pytest.fixture
def on_a_file(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    environment.pop("PRIVATEKUBE_LEDGER", None)
    with SqliteLedger(str(tmp_path / "ledger.db"), create=True) as ledger:
        place = Place(tmp_path, ledger, f"sqlite:///{tmp_path}/ledger.db", environment)
        yield place
        place.verify()


@pytest.fixture
def in_a_cluster(tmp_path, control_plane, namespace):  # noqa: F811
    environment = {
        **os.environ,
        "PYTHONPATH": str(TOP),
        "KUBECONFIG": str(control_plane.kubeconfig),
    }
    with served(control_plane, namespace, "--block-status-every=0s") as ledger:
        place = Place(tmp_path, ledger, f"kubernetes://{namespace}", environment)
        yield place
        place.verify()


@pytest.fixture(params=["sqlite", pytest.param("kubernetes", marks=pytest.mark.server)])
def place(request):
    """The same on a file, and in a cluster with its scheduler."""
    return request.getfixturevalue("on_a_file" if request.param == "sqlite" else "in_a_cluster")
