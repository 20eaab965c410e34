"""What Kubeflow could do to a budget: cache, retry, repeat, nest. The ledger is right in each."""

import re
import subprocess
import sys
import threading

import pytest
import yaml
from kfp import compiler

from tests.e2e import traps
from tests.e2e.conftest import HERE
from tests.scheduler.running import until

pytestmark = pytest.mark.slow


def run(place, name, **arguments):
    return place.run(HERE / "traps.py", f"--function={name}", **arguments)


BARE = """
import sys
from kfp import components, local

local.init(
    local.SubprocessRunner(use_venv=False),
    pipeline_root=sys.argv[2],
    enable_caching=True,
    cache_root=sys.argv[3],
)
components.load_component_from_file(sys.argv[1])(uri=sys.argv[4])
"""


def run_bare(place, pipeline):
    """With `kfp.local` alone, which looks results up before it fills in the id of the run."""
    words = [pipeline, place.folder / "artifacts", place.folder / "cache", place.out]
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BARE, *map(str, words)],
        env={**place.environment, "PRIVATEKUBE_LEDGER": place.address},
        cwd=place.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def with_caching(place, is_cached):
    """A compiled pipeline, with caching forced on for some tasks."""
    path = place.folder / "cached.yaml"
    compiler.Compiler().compile(traps.nested, str(path))
    documents = list(yaml.safe_load_all(path.read_text()))
    forced = []
    for component in [*documents[0]["components"].values(), documents[0]["root"]]:
        for name, task in component.get("dag", {}).get("tasks", {}).items():
            if is_cached(name):
                task["cachingOptions"] = {"enableCache": True}
                forced.append(name)
    assert "allocate" in forced
    path.write_text(yaml.safe_dump_all(documents))
    return path


def test_a_run_that_is_all_from_the_cache_lets_nothing_out(on_a_file):
    place = on_a_file
    pipeline = with_caching(place, lambda name: True)
    assert run_bare(place, pipeline).returncode == 0
    place.out.unlink()
    second = run_bare(place, pipeline)
    assert second.returncode == 0
    ran = re.findall(r"Executing task \S*'(\S+?)'", second.stdout)
    assert ran in ([], ["release"]), "giving back is safe at any time; nothing else runs"
    assert not place.out.exists()
    assert place.epsilons("monday") == ("0", "0.1")


@pytest.mark.parametrize("also", ["allocate", "consume"])
def test_a_claim_from_the_cache_is_of_no_use(on_a_file, also):
    """It belongs to another run: nothing is read, or let out, on the budget of that one."""
    place = on_a_file
    pipeline = with_caching(place, lambda name: name in ("allocate", also))
    assert run_bare(place, pipeline).returncode == 0
    place.out.unlink()
    second = run_bare(place, pipeline)
    assert second.returncode == 1
    assert "the claim artifact is not what Allocate made" in second.stdout
    assert not place.out.exists()
    assert place.epsilons("monday") == ("0", "0.1")


def test_caching_that_is_forced_on_is_found(on_a_file):
    """And where nobody asks the linter, every run pays for itself."""
    place = on_a_file
    pipeline = with_caching(place, lambda name: True)
    refused = place.run(pipeline, uri=place.out)
    assert refused.code == 1
    assert refused.tasks == []
    for turn in (1, 2):
        assert place.run(pipeline, "--no-lint", uri=place.folder / f"{turn}").code == 0
        assert place.epsilons("monday") == ("0", f"0.{turn}")


def test_retries(place):
    """Download fails until its data are there; nothing is asked for or spent twice."""
    data = place.folder / "monday.parquet"
    hidden = data.rename(place.folder / "hidden")
    process = place.begin(HERE / "traps.py", "--function=retrying", uri=place.out)
    told = []

    def read():
        for line in process.stderr:
            told.append(line)
            if line.startswith("download: ") and "attempt 2" in line and hidden.exists():
                hidden.rename(data)

    reader = threading.Thread(target=read)
    reader.start()
    process.stdout.read()
    assert process.wait(timeout=120) == 0, "".join(told)
    reader.join()
    process.stdout.close()
    process.stderr.close()
    assert not hidden.exists(), "it was never tried again"
    assert place.out.read_text() == "12"
    until(lambda: place.epsilons("monday") == ("0", "0.1"))


def test_a_loop_over_claims(place):
    ended = run(place, "looping", folder=place.folder)
    assert ended.code == 0, ended.told
    phases = {
        claim["name"].rpartition(".")[2]: claim["phase"] for claim in ended.document["claims"]
    }
    assert phases == {"around": "Released", "monday": "Consumed", "tuesday": "Consumed"}
    for day in ("monday", "tuesday"):
        assert (place.folder / day).read_text() == "6"
        until(lambda day=day: place.epsilons(day) == ("0", "0.1"))


def test_two_claims(place):
    ended = run(place, "two_claims", folder=place.folder / "model")
    assert ended.code == 0, ended.told
    assert {claim["phase"] for claim in ended.document["claims"]} == {"Consumed", "Released"}
    until(lambda: place.epsilons("monday") == ("0", "0.1"))
    until(lambda: place.epsilons("tuesday") == ("0", "0"))


def test_nested_pipelines(place):
    ended = run(place, "nested", uri=place.out)
    assert ended.code == 0, ended.told
    assert place.out.read_text() == "12"
    until(lambda: place.epsilons("monday") == ("0", "0.1"))
