"""The dashboard and the alerts on a real scheduler in a real cluster."""

import socket
import urllib.request

import pytest

from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.ledger.kubernetes.api import BLOCKS, Api
from privatekube_kfp.ledger.kubernetes.ledger import KubernetesLedger
from privatekube_kfp.ledger.requests import ConsumeRequest, ReleaseRequest
from tests.contract.world import ask, basic_stream
from tests.monitoring.dashboard import (
    between,
    check_alerts,
    check_dashboard,
    exactly,
    queries,
)
from tests.monitoring.prometheus import prometheus
from tests.scheduler.running import clean, install, start_process, until

pytestmark = [pytest.mark.server, pytest.mark.slow]
WINDOW = 600


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def fetch(target, path):
    with urllib.request.urlopen(f"http://{target}/{path}", timeout=180) as answer:
        return answer.read().decode()


def test_every_panel_and_alert(control_plane, namespace, programs, tmp_path):
    install(control_plane)
    target, standby = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"

    def start(listen):
        # The one that leads goes on leading on a slow machine too, until it is killed.
        long = ("--lease-duration=20s", "--renew-deadline=15s")
        return start_process(control_plane.kubeconfig, namespace, *long, f"--listen={listen}")

    processes = [start(target)]
    ledger = KubernetesLedger(Api(control_plane.client), namespace, answer_within=180)
    try:
        until(lambda: "privatekube_leader 1.0" in _metrics(target))
        assert fetch(target, "healthz") == fetch(target, "readyz") == "ok\n"
        processes.append(start(standby))
        until(lambda: "privatekube_leader 0.0" in _metrics(standby))
        ledger.create_stream(basic_stream("clicks", unlocking=ByPipelines(4)))
        ledger.create_block("b", "clicks")
        until(lambda: 'privatekube_blocks{phase="Active",stream="clicks"} 1.0' in _metrics(target))
        with prometheus([target, standby], folder=tmp_path) as there:
            there.next_scrape(standby)
            there.next_scrape(target)
            spend_some(ledger)
            until(lambda: 'bad_objects{kind="blocks"} 1.0' in _metrics(target))
            until(lambda: _shows(_metrics(target), "consumed", 0.2))
            until(lambda: _shows(_metrics(target), "allocated", 0.1))
            there.next_scrape(standby)
            at = there.next_scrape(target)
            check_dashboard(there, ["clicks"], expected(target, standby), at, f"{WINDOW}s")
            check_alerts(there, {"PrivateKubeBadObjects": exactly({"kind=blocks": 1})}, at)
            # The leader dies: for a moment there is none, then the other one shows the same.
            processes[0].kill()
            processes[0].wait()
            until(lambda: _shows(_metrics(standby), "consumed", 0.2))
            at = there.next_scrape(standby)
            for query in queries(["clicks"], f"{WINDOW}s"):
                if query.panel == "Budget of clicks":
                    check = expected(target, standby)[query.key]
                    assert check(there.query(query.expr, at)) is None, query
    finally:
        for process in processes:
            process.kill()
            process.wait()
        ledger.close()
        clean(control_plane)


def spend_some(ledger):
    """One claim of each fate; and a block that makes no sense."""
    ledger.submit("spent", ask("0.2", "b", stream="clicks"))
    ledger.submit("spent", ConsumeRequest("consume"))
    ledger.submit("holder", ask("0.1", "b", stream="clicks"))
    ledger.submit("back", ask("0.05", "b", stream="clicks"))
    ledger.submit("back", ReleaseRequest("release"))
    ledger.submit("large", ask("0.75", "b", stream="clicks", timeout=None))
    assert ledger.submit("never", ask("3", "b", stream="clicks")).denied
    ledger._api.create(
        BLOCKS,
        {
            "apiVersion": BLOCKS.api_version,
            "kind": BLOCKS.kind,
            "metadata": {"name": "odd"},
            "spec": {"stream": "clicks", "users": [0, 9]},
        },
    )


def expected(target, standby):
    def per_second(counts):
        return {labels: count / WINDOW for labels, count in counts.items()}

    a_while = between({"stream=clicks": (0.0, 60.0)})
    some = {("Budget of clicks", state): share for state, share in SHARES.items()}
    return {
        **{key: exactly({"stream=clicks": share}) for key, share in some.items()},
        ("Blocks by phase", "{{phase}}"): exactly(
            {"phase=Active": 1, "phase=Exhausted": 0, "phase=Retired": 0}
        ),
        ("Most consumed block", "{{stream}}"): exactly({"stream=clicks": 0.2}),
        ("Claims by phase", "{{phase}}"): exactly(
            {
                "phase=Pending": 1,
                "phase=Allocated": 1,
                "phase=Consumed": 1,
                "phase=Released": 1,
                "phase=Denied": 1,
            }
        ),
        ("Waiting claims by reason", "{{reason}}"): exactly(
            {
                "reason=WaitingForUnlock": 0,
                "reason=WaitingForRelease": 1,
                "reason=WaitingForAllocate": 0,
            }
        ),
        ("Longest wait", "{{stream}}"): a_while,
        ("Answers per second", "{{kind}}: {{reason}}"): exactly(
            per_second(
                {
                    "kind=allocate,reason=Allocated": 3,
                    "kind=allocate,reason=ExceedsCapacity": 1,
                    "kind=consume,reason=Consumed": 1,
                    "kind=release,reason=Released": 1,
                }
            )
        ),
        ("Denials in the last hour", "{{reason}}"): exactly({"reason=ExceedsCapacity": 1}),
        ("Grant delay", "{{stream}} p50"): a_while,
        ("Grant delay", "{{stream}} p99"): a_while,
        ("Pass time, p99", "{{stream}}"): a_while,
        ("Commits per second", "{{outcome}}"): exactly(
            per_second({"outcome=done": 7, "outcome=conflict": 0, "outcome=fenced": 0})
        ),
        ("Who leads", "{{instance}}"): exactly({f"instance={target}": 1, f"instance={standby}": 0}),
        ("API requests per second", "{{code}}"): _some_requests,
        ("Watch restarts in the last hour", "{{kind}}: {{cause}}"): lambda found: None,
        ("Bad objects", "{{kind}}"): exactly(
            {"kind=streams": 0, "kind=blocks": 1, "kind=claims": 0}
        ),
        ("Clock skew", "{{instance}}"): between(
            {f"instance={target}": (-2, 2), f"instance={standby}": (-2, 2)}
        ),
    }


# Four pipelines have asked: all is unlocked.
SHARES = {"locked": 0.0, "unlocked": 0.7, "allocated": 0.1, "consumed": 0.2}


def _some_requests(found):
    codes = {labels["code"]: number for labels, number in found}
    if not codes.get("200", 0) > 0:
        return f"no successful requests in {codes}"
    return f"failures in {codes}" if codes.get("500") or codes.get("403") else None


def _metrics(target):
    try:
        return fetch(target, "metrics")
    except OSError:
        return ""


def _shows(metrics, state, share):
    return f'privatekube_budget_share{{state="{state}",stream="clicks"}} {share}' in metrics
