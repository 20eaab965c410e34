"""What the dashboard and the alerts show, asked of a real Prometheus that scrapes real metrics.

Two schedulers are scraped, one of which leads. Before anything is counted each is scraped once,
and queries are asked at the time of a scrape: so all that was counted lies between two samples,
Prometheus extrapolates nothing, and rates are exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import yaml

from scheduler.metrics import StreamSnapshot
from tests.monitoring.dashboard import (
    alert_rules,
    alerts,
    between,
    check_alerts,
    check_dashboard,
    exactly,
    metric_names,
    queries,
)
from tests.monitoring.exporter import Exporter, exporter
from tests.monitoring.prometheus import Programs, Prometheus, prometheus

pytestmark = pytest.mark.server

WINDOW = 600  # Seconds; what $__rate_interval is here.

ADS = StreamSnapshot(
    stream="ads",
    shares={"locked": 0.25, "unlocked": 0.125, "allocated": 0.1875, "consumed": 0.4375},
    blocks={"Active": 7, "Exhausted": 2},
    nearly_exhausted=0,
    most_consumed=0.75,
    claims={"Pending": 3, "Allocated": 4, "Consumed": 11, "Released": 5, "Denied": 2},
    waiting={"WaitingForUnlock": 2, "WaitingForRelease": 1},
    oldest_waiting=7200,
)
CLICKS = StreamSnapshot(
    stream="clicks",
    shares={"locked": 0.5, "unlocked": 0.25, "allocated": 0.125, "consumed": 0.125},
    blocks={"Active": 3, "Retired": 1},
    nearly_exhausted=0,
    most_consumed=0.5,
    claims={"Pending": 1, "Allocated": 2, "Consumed": 6},
    waiting={"WaitingForUnlock": 1},
    oldest_waiting=30,
)
QUIET = StreamSnapshot(
    stream="quiet",
    shares={"locked": 1},
    blocks={"Active": 1},
    nearly_exhausted=0,
    most_consumed=0,
    claims={"Pending": 1},
    waiting={"WaitingForUnlock": 1},
    oldest_waiting=7201,
)


@dataclass(frozen=True)
class World:
    """A Prometheus that scrapes two schedulers; the second does not lead."""

    prometheus: Prometheus
    leader: Exporter
    follower: Exporter

    def scraped(self) -> float:
        """Until all that was told to both is stored; the time to ask for."""
        self.prometheus.next_scrape(self.follower.target)
        return self.prometheus.next_scrape(self.leader.target)


@pytest.fixture(scope="module")
def world(
    programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, float]]:
    """The world, and the time of a scrape after which nothing was told."""
    folder = tmp_path_factory.mktemp("prometheus")
    with (
        exporter() as leader,
        exporter() as follower,
        prometheus([leader.target, follower.target], folder=folder) as running,
    ):
        made = World(running, leader, follower)
        told_at_first(made)
        made.scraped()
        told_then(made)
        yield made, made.scraped()


def told_at_first(world: World) -> None:
    leader, follower = world.leader.metrics, world.follower.metrics
    leader.leading(True)
    leader.show([ADS, CLICKS])
    leader.clock_skew(0.25)
    follower.leading(False)
    follower.show(())
    follower.clock_skew(-0.5)
    # Which calls are made is not known before: their counters appear with the first.
    leader.requested("list", "claims", "200")
    leader.requested("update", "claims", "200")
    leader.requested("update", "claims", "409")
    leader.requested("watch", "blocks", "none")


def told_then(world: World) -> None:
    leader, follower = world.leader.metrics, world.follower.metrics
    for delay in (0.06, 0.07, 0.08, 0.09):
        leader.answered("ads", "allocate", "Allocated", delay)
    for delay in (0.3, 3000):
        leader.answered("clicks", "allocate", "Allocated", delay)
    for stream, kind, reason, times in (
        ("ads", "consume", "Consumed", 3),
        ("ads", "release", "Released", 1),
        ("ads", "allocate", "TimedOut", 2),
        ("clicks", "allocate", "TimedOut", 1),
        ("clicks", "allocate", "ExceedsCapacity", 5),
        ("clicks", "consume", "NothingLeft", 4),
    ):
        for _ in range(times):
            leader.answered(stream, kind, reason)
    for _ in range(100):
        leader.passed("ads", 0.003)
    for _ in range(98):
        leader.passed("clicks", 0.003)
    for _ in range(2):
        leader.passed("clicks", 0.7)
    for stream, outcome, times in (
        ("ads", "done", 5),
        ("clicks", "done", 3),
        ("ads", "conflict", 2),
        ("ads", "fenced", 1),
    ):
        for _ in range(times):
            leader.committed(stream, outcome)
    for verb, code, times in (("list", "200", 20), ("update", "200", 30), ("update", "409", 6)):
        for _ in range(times):
            leader.requested(verb, "claims", code)
    for _ in range(4):
        leader.requested("watch", "blocks", "none")
    for kind, cause, times in (
        ("streams", "expired", 1),
        ("claims", "closed", 3),
        ("claims", "failed", 2),
    ):
        for _ in range(times):
            leader.watch_restarted(kind, cause)
    leader.bad_objects({})
    follower.bad_objects({})


def per_second(counts: dict[str, float]) -> dict[str, float]:
    return {labels: count / WINDOW for labels, count in counts.items()}


def test_every_panel_shows_what_was_told(world):
    there, at = world
    expected = {
        **{
            (f"Budget of {each.stream}", state): exactly({f"stream={each.stream}": share})
            for each in (ADS, CLICKS)
            for state, share in each.shares.items()
        },
        ("Blocks by phase", "{{phase}}"): exactly(
            {"phase=Active": 10, "phase=Exhausted": 2, "phase=Retired": 1}
        ),
        ("Most consumed block", "{{stream}}"): exactly({"stream=ads": 0.75, "stream=clicks": 0.5}),
        ("Claims by phase", "{{phase}}"): exactly(
            {
                "phase=Pending": 4,
                "phase=Allocated": 6,
                "phase=Consumed": 17,
                "phase=Released": 5,
                "phase=Denied": 2,
            }
        ),
        ("Waiting claims by reason", "{{reason}}"): exactly(
            {
                "reason=WaitingForUnlock": 3,
                "reason=WaitingForRelease": 1,
                "reason=WaitingForAllocate": 0,
            }
        ),
        ("Longest wait", "{{stream}}"): exactly({"stream=ads": 7200, "stream=clicks": 30}),
        ("Answers per second", "{{kind}}: {{reason}}"): exactly(
            per_second(
                {
                    "kind=allocate,reason=Allocated": 6,
                    "kind=allocate,reason=TimedOut": 3,
                    "kind=allocate,reason=ExceedsCapacity": 5,
                    "kind=consume,reason=Consumed": 3,
                    "kind=consume,reason=NothingLeft": 4,
                    "kind=release,reason=Released": 1,
                }
            )
        ),
        ("Denials in the last hour", "{{reason}}"): exactly(
            {"reason=TimedOut": 3, "reason=ExceedsCapacity": 5, "reason=NothingLeft": 4}
        ),
        # All four lie between 0.05 and 0.1, where Prometheus takes them to be spread evenly.
        ("Grant delay", "{{stream}} p50"): exactly({"stream=ads": 0.075, "stream=clicks": 0.5}),
        # One of two lies between 900 and 3600.
        ("Grant delay", "{{stream}} p99"): exactly({"stream=ads": 0.0995, "stream=clicks": 3546}),
        # The 99th is the first of two between 0.5 and 1.
        ("Pass time, p99", "{{stream}}"): exactly({"stream=ads": 0.004975, "stream=clicks": 0.75}),
        ("Commits per second", "{{outcome}}"): exactly(
            per_second({"outcome=done": 8, "outcome=conflict": 2, "outcome=fenced": 1})
        ),
        ("Who leads", "{{instance}}"): exactly(
            {f"instance={there.leader.target}": 1, f"instance={there.follower.target}": 0}
        ),
        # At least what was counted after the first scrape, at most all of it.
        ("API requests per second", "{{code}}"): between(
            {
                "code=200": (50 / WINDOW, 52 / WINDOW),
                "code=409": (6 / WINDOW, 7 / WINDOW),
                "code=none": (4 / WINDOW, 5 / WINDOW),
            }
        ),
        ("Watch restarts in the last hour", "{{kind}}: {{cause}}"): exactly(
            {
                "cause=expired,kind=streams": 1,
                "cause=closed,kind=claims": 3,
                "cause=failed,kind=claims": 2,
            }
        ),
        ("Bad objects", "{{kind}}"): exactly(
            {"kind=streams": 0, "kind=blocks": 0, "kind=claims": 0}
        ),
        ("Clock skew", "{{instance}}"): exactly(
            {f"instance={there.leader.target}": 0.25, f"instance={there.follower.target}": -0.5}
        ),
    }
    check_dashboard(there.prometheus, ["ads", "clicks"], expected, at, f"{WINDOW}s")


def test_panels_show_only_the_stream_that_is_selected(world):
    there, at = world
    of_the_scheduler = {
        "privatekube_leader",
        "privatekube_api_requests_total",
        "privatekube_watch_restarts_total",
        "privatekube_bad_objects",
        "privatekube_clock_skew_seconds",
    }
    for query in queries(["nobody"]):
        found = there.prometheus.query(query.expr, at)
        assert bool(found) == (metric_names(query.expr) <= of_the_scheduler), query


def test_streams_to_select_are_those_that_the_leader_shows(world):
    there, at = world
    found = there.prometheus.get(
        "label/stream/values", {"match[]": "privatekube_blocks", "end": str(at)}
    )
    assert found == ["ads", "clicks"]


def test_a_stream_that_is_gone_is_shown_no_more(programs):
    with exporter() as told, prometheus([told.target]) as running:
        told.metrics.show([ADS, CLICKS])
        told.metrics.committed("ads", "done")
        running.next_scrape(told.target)
        told.metrics.show([CLICKS])
        at = running.next_scrape(told.target)
        assert running.query('privatekube_blocks{stream="ads"}', at) == []
        assert len(running.query('privatekube_blocks{stream="clicks"}', at)) == 3
        # What this scheduler did stays counted.
        [(_, count)] = running.query('privatekube_commits_total{stream="ads",outcome="done"}', at)
        assert count == 1


def test_every_alert_of_a_scheduler_in_trouble(programs, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(alert_rules()))
    with (
        exporter() as leader,
        exporter() as follower,
        prometheus([leader.target, follower.target], rules=rules, folder=tmp_path) as running,
    ):
        there = World(running, leader, follower)

        # 1. All is well. A claim on ads has waited for two hours, while others are granted.
        told_at_first(there)
        there.scraped()
        told_then(there)
        check_alerts(running, {}, there.scraped())

        # 2. All goes wrong that can go wrong at once.
        follower.metrics.leading(True)
        leader.metrics.show(
            [
                replace(ADS, nearly_exhausted=1, most_consumed=0.9),
                replace(CLICKS, nearly_exhausted=3, most_consumed=0.99),
                QUIET,
            ]
        )
        for _ in range(3):
            leader.metrics.committed("ads", "fenced")
        leader.metrics.bad_objects({"claims": 2})
        follower.metrics.bad_objects({"claims": 1, "blocks": 1})
        follower.metrics.clock_skew(-45)
        of_follower = f"instance={follower.target},job=privatekube-scheduler"
        in_trouble = {
            "PrivateKubeBlocksNearlyExhausted": exactly({"stream=ads": 1, "stream=clicks": 3}),
            "PrivateKubeStreamNearlyExhausted": exactly({"stream=clicks": 3}),
            "PrivateKubeClaimsStarving": exactly({"stream=quiet": 7201}),
            "PrivateKubeTwoLeaders": exactly({"": 2}),
            "PrivateKubeCommitsFenced": exactly({"stream=ads": 4}),
            "PrivateKubeBadObjects": exactly({"kind=claims": 2, "kind=blocks": 1}),
            "PrivateKubeClockSkew": exactly({of_follower: 45}),
        }
        check_alerts(running, in_trouble, there.scraped())
        running.query_until(
            "count by (alertname) (ALERTS)",
            lambda found: {labels["alertname"] for labels, _ in found} == in_trouble.keys(),
        )

        # 3. It is over, but nobody leads.
        leader.metrics.show(())
        leader.metrics.leading(False)
        follower.metrics.leading(False)
        leader.metrics.bad_objects({})
        follower.metrics.bad_objects({})
        follower.metrics.clock_skew(0)
        nobody = {
            "PrivateKubeNoLeader": exactly({"": 0}),
            # Of the last 15 minutes.
            "PrivateKubeCommitsFenced": in_trouble["PrivateKubeCommitsFenced"],
        }
        check_alerts(running, nobody, there.scraped())

        # 4. One leads again, and the other is gone.
        leader.metrics.leading(True)
        follower.server.close()
        down = f'up{{instance="{follower.target}"}}'
        running.query_until(down, lambda found: found[0][1] == 0)
        one_is_gone = {
            "PrivateKubeSchedulerDown": exactly({of_follower: 0}),
            "PrivateKubeCommitsFenced": in_trouble["PrivateKubeCommitsFenced"],
        }
        check_alerts(running, one_is_gone, running.next_scrape(leader.target))

        # 5. Both are gone.
        leader.server.close()
        running.query_until("sum(up)", lambda found: found[0][1] == 0)
        found = {
            name: running.query(alerts()[name]["expr"])
            for name in ("PrivateKubeNotScraped", "PrivateKubeNoLeader", "PrivateKubeSchedulerDown")
        }
        assert [len(each) for each in found.values()] == [1, 1, 2]

        # 6. Prometheus had no trouble with any rule in all that time.
        groups = running.get("rules")["groups"]
        health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
        assert health == dict.fromkeys(alerts(), "ok")
