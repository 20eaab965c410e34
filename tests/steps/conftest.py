import json
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.sqlite import SqliteLedger
from privatekube_kfp.ledger.streams import StreamSpec
from privatekube_kfp.steps.claims import allocate
from privatekube_kfp.steps.log_lines import WIDTH, error_in
from tests.kubeflow.metadata import given_back

DAYS = ("monday", "tuesday", "wednesday")


@dataclass
class Artifact:
    """What a step sees of a Kubeflow artifact."""

    path: str
    metadata: dict = field(default_factory=dict)

    def travelled(self):
        """The same after its way through Kubeflow."""
        name = Path(self.path).name
        return Artifact(self.path, given_back(json.loads(json.dumps(self.metadata)), name))


class World:
    """A ledger in a file, three days of data, and one run."""

    run = "run-1"

    def __init__(self, folder, address):
        self.folder = folder
        self.address = address
        self.ledger = SqliteLedger(str(folder / "ledger.db"), create=True)
        self.ledger.create_stream(StreamSpec("clicks", "1", "1e-7", ByPipelines(1)))
        for number, day in enumerate(DAYS):
            self.ledger.create_block(day, "clicks", data_source=str(self.write(day, [number] * 3)))

    def write(self, day, values):
        path = self.folder / f"{day}.parquet"
        table = pyarrow.table({"user": values, "day": [day] * len(values)})
        pyarrow.parquet.write_table(table, path)
        return path

    def artifact(self, name):
        return Artifact(str(self.folder / "artifacts" / name))

    def allocate(self, **asked):
        claim, report = self.artifact("claim"), self.artifact("report")
        wanted = {
            "run_id": self.run,
            "claim_name": "claim",
            "stream": "clicks",
            "epsilon": "0.4",
            "last_blocks": 2,
            "timeout": "0s",
        }
        self.count = allocate(claim, report, **{**wanted, **asked})
        return claim.travelled()

    def claim(self, name="run-1.claim"):
        return self.ledger.claim(name)

    def epsilons(self, day):
        """Allocated and consumed."""
        budget = self.ledger.block(day).budget
        return tuple(part.to_json()["epsilon"] for part in (budget.allocated, budget.consumed))


@pytest.fixture
def world(tmp_path, monkeypatch):
    address = f"sqlite:///{tmp_path}/ledger.db"
    monkeypatch.setenv("PRIVATEKUBE_LEDGER", address)
    Path(tmp_path, "artifacts").mkdir()
    made = World(tmp_path, address)
    yield made
    made.ledger.close()


@pytest.fixture
def fails():
    """The reason and the sentence in which a step ends."""

    def run(step, *args, **kwargs):
        with pytest.raises(SystemExit) as ended:
            step(*args, **kwargs)
        assert isinstance(ended.value.code, str), "it must say why"
        lines = ended.value.code.splitlines()
        assert len(lines[-1]) <= WIDTH
        return error_in(lines)

    return run
