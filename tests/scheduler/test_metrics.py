"""What a scrape reads, and how the status server answers whatever is asked of it."""

import http.client
import logging
import socket
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.metrics import Metrics, StreamSnapshot
from scheduler.server import StatusServer

ADS = StreamSnapshot(
    stream="ads",
    shares={"locked": 0.25, "unlocked": 0.125, "allocated": 0.25, "consumed": 0.375},
    blocks={"Active": 7, "Exhausted": 2},
    nearly_exhausted=1,
    most_consumed=0.93,
    claims={"Pending": 3, "Denied": 2},
    waiting={"WaitingForUnlock": 3},
    oldest_waiting=120,
)
NEW = StreamSnapshot("new", {}, {}, 0, 0, {}, {}, 0)


def scraped(metrics):
    """Every sample by name and labels."""
    content_type, text = metrics.exposition()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): (
            sample.value
        )
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@pytest.fixture
def metrics():
    return Metrics("1.2.3")


class TestMetrics:
    def test_streams(self, metrics):
        metrics.show([ADS])
        found = scraped(metrics)
        assert found["privatekube_budget_share", "state=consumed", "stream=ads"] == 0.375
        assert found["privatekube_blocks", "phase=Active", "stream=ads"] == 7
        assert found["privatekube_blocks_nearly_exhausted", "stream=ads"] == 1
        assert found["privatekube_block_most_consumed_share", "stream=ads"] == 0.93
        assert found["privatekube_claims", "phase=Pending", "stream=ads"] == 3
        assert found["privatekube_claims_waiting", "reason=WaitingForUnlock", "stream=ads"] == 3
        assert found["privatekube_oldest_waiting_seconds", "stream=ads"] == 120

    def test_what_a_snapshot_does_not_name_is_zero(self, metrics):
        metrics.show([ADS])
        found = scraped(metrics)
        assert found["privatekube_blocks", "phase=Retired", "stream=ads"] == 0
        assert found["privatekube_claims", "phase=Allocated", "stream=ads"] == 0
        assert found["privatekube_claims_waiting", "reason=WaitingForRelease", "stream=ads"] == 0

    def test_what_is_shown_replaces_what_was_shown(self, metrics):
        metrics.show([ADS])
        metrics.show([NEW])
        streams = {
            label
            for name, *labels in scraped(metrics)
            for label in labels
            if label.startswith("stream=") and not name.startswith(COUNTED)
        }
        assert streams == {"stream=new"}

    def test_who_does_not_lead_shows_no_stream(self, metrics):
        assert not any("stream=" in label for key in scraped(metrics) for label in key)
        metrics.show([ADS])
        metrics.show(())
        shown = {key[0] for key in scraped(metrics) if any("stream=" in label for label in key)}
        assert all(name.startswith(COUNTED) for name in shown)

    def test_a_scrape_never_sees_half_of_a_change(self, metrics):
        """Every share of every stream is the same number, and all change at once."""
        wrong, done = [], threading.Event()

        def scrape():
            while not done.is_set():
                shares = [
                    sample.value
                    for family in metrics.registry.collect()
                    for sample in family.samples
                    if sample.name == "privatekube_budget_share"
                ]
                if len(set(shares)) != 1:
                    wrong.append(shares)

        metrics.show(quarters(0))
        thread = threading.Thread(target=scrape)
        thread.start()
        for number in range(2000):
            metrics.show(quarters(number))
        done.set()
        thread.join()
        assert wrong == []

    def test_a_stream_twice_is_refused(self, metrics):
        metrics.show([NEW])
        with pytest.raises(ValueError, match="given twice"):
            metrics.show([ADS, ADS])
        assert ("privatekube_oldest_waiting_seconds", "stream=new") in scraped(metrics)

    def test_leading(self, metrics):
        def seen():
            found = scraped(metrics)
            return (
                found[("privatekube_leader",)],
                found[("privatekube_leadership_changes_total",)],
            )

        assert seen() == (0, 0)
        metrics.leading(False)
        assert seen() == (0, 0)
        metrics.leading(True)
        metrics.leading(True)
        assert seen() == (1, 1)
        metrics.leading(False)
        assert seen() == (0, 2)

    def test_answers(self, metrics):
        metrics.answered("ads", "allocate", "Allocated", 0.02)
        metrics.answered("ads", "allocate", "TimedOut")
        metrics.answered("ads", "allocate", "TimedOut")
        found = scraped(metrics)
        answered = "privatekube_requests_answered_total"
        assert found[answered, "kind=allocate", "reason=Allocated", "stream=ads"] == 1
        assert found[answered, "kind=allocate", "reason=TimedOut", "stream=ads"] == 2
        delay = "privatekube_grant_delay_seconds"
        assert found[f"{delay}_count", "stream=ads"] == 1
        assert found[f"{delay}_bucket", "le=0.01", "stream=ads"] == 0
        assert found[f"{delay}_bucket", "le=0.025", "stream=ads"] == 1

    def test_delays_from_milliseconds_to_a_day_are_told_apart(self, metrics):
        metrics.answered("ads", "allocate", "Allocated", 1)
        bounds = [
            float(label.removeprefix("le="))
            for name, *labels in scraped(metrics)
            if name == "privatekube_grant_delay_seconds_bucket"
            for label in labels
            if label.startswith("le=")
        ]
        assert (bounds[0], bounds[-2]) == (0.005, 86400)
        assert bounds == sorted(set(bounds))

    def test_a_delay_before_the_arrival_is_none(self, metrics):
        """The clocks of the scheduler and of the API server differ."""
        metrics.answered("ads", "allocate", "Allocated", -3)
        found = scraped(metrics)
        assert found["privatekube_grant_delay_seconds_sum", "stream=ads"] == 0
        assert found["privatekube_grant_delay_seconds_bucket", "le=0.005", "stream=ads"] == 1

    def test_work(self, metrics):
        metrics.passed("ads", 0.003)
        metrics.committed("ads", "fenced")
        metrics.requested("update", "claims", "409")
        metrics.retried("claims")
        metrics.watch_restarted("blocks", "expired")
        metrics.bad_object("claims", "Unreadable")
        metrics.event_dropped()
        found = scraped(metrics)
        for key in (
            ("privatekube_pass_seconds_count", "stream=ads"),
            ("privatekube_commits_total", "outcome=fenced", "stream=ads"),
            ("privatekube_api_requests_total", "code=409", "kind=claims", "verb=update"),
            ("privatekube_api_retries_total", "kind=claims"),
            ("privatekube_watch_restarts_total", "cause=expired", "kind=blocks"),
            ("privatekube_bad_objects_seen_total", "kind=claims", "reason=Unreadable"),
            ("privatekube_events_dropped_total",),
            ("privatekube_build_info", "version=1.2.3"),
        ):
            assert found[key] == 1, key

    def test_bad_objects_are_those_of_now(self, metrics):
        def seen():
            found = scraped(metrics)
            return [found["privatekube_bad_objects", f"kind={kind}"] for kind in KINDS]

        assert seen() == [0, 0, 0]
        metrics.bad_objects({"claims": 2, "blocks": 1})
        assert seen() == [0, 1, 2]
        metrics.bad_objects({"claims": 1})
        assert seen() == [0, 0, 1]

    def test_clock_skew_is_unknown_before_it_is_measured(self, metrics):
        assert ("privatekube_clock_skew_seconds",) not in scraped(metrics)
        metrics.clock_skew(-0.5)
        assert scraped(metrics)[("privatekube_clock_skew_seconds",)] == -0.5

    def test_counters_of_a_stream_start_at_zero(self, metrics):
        """Prometheus cannot see the increase with which a counter appears."""
        metrics.show([ADS])
        found = scraped(metrics)
        for key in (
            ("privatekube_commits_total", "outcome=fenced", "stream=ads"),
            (
                "privatekube_requests_answered_total",
                "kind=allocate",
                "reason=Allocated",
                "stream=ads",
            ),
            ("privatekube_grant_delay_seconds_count", "stream=ads"),
            ("privatekube_pass_seconds_count", "stream=ads"),
            ("privatekube_watch_restarts_total", "cause=expired", "kind=claims"),
            ("privatekube_api_retries_total", "kind=leases"),
        ):
            assert found[key] == 0, key

    def test_nothing_is_shared_between_two(self, metrics):
        metrics.event_dropped()
        assert scraped(Metrics("1.2.3"))[("privatekube_events_dropped_total",)] == 0

    def test_the_process_itself(self, metrics):
        assert scraped(metrics)[("process_resident_memory_bytes",)] > 0

    def test_no_series_that_nobody_needs(self, metrics):
        metrics.show([ADS])
        assert not [key for key in scraped(metrics) if key[0].endswith("_created")]

    def test_every_metric_says_what_it_is(self, metrics):
        for family in metrics.registry.collect():
            assert family.documentation.endswith("."), family.name


COUNTED = (
    "privatekube_requests_answered",
    "privatekube_commits",
    "privatekube_grant_delay",
    "privatekube_pass",
)
KINDS = ("streams", "blocks", "claims")


def quarters(number):
    states = ("locked", "unlocked", "allocated", "consumed")
    shares = dict.fromkeys(states, float(number))
    return [StreamSnapshot(name, shares, {}, 0, 0, {}, {}, 0) for name in ("ads", "clicks")]


class Probes:
    """What the server is told: None, a sentence, or something to raise."""

    def __init__(self):
        self.healthy = self.ready = None

    def ask(self, name):
        said = getattr(self, name)
        if isinstance(said, Exception):
            raise said
        return said


@pytest.fixture
def probes():
    return Probes()


@pytest.fixture
def server(metrics, probes):
    made = StatusServer(
        "127.0.0.1:0", metrics, lambda: probes.ask("healthy"), lambda: probes.ask("ready")
    )
    made.start()
    yield made
    made.close()


def asked(server, path, method="GET", host="127.0.0.1"):
    connection = http.client.HTTPConnection(host, server.port, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


class TestStatusServer:
    def test_all_is_well(self, server):
        for path in ("/healthz", "/readyz"):
            status, headers, text = asked(server, path)
            assert (status, text) == (200, "ok\n")
            assert headers["Content-Type"] == "text/plain; charset=utf-8"

    def test_what_is_wrong_is_said(self, server, probes):
        probes.ready = "has not read the blocks yet"
        assert asked(server, "/readyz")[::2] == (503, "has not read the blocks yet\n")
        assert asked(server, "/healthz")[0] == 200
        probes.ready, probes.healthy = None, "no pass for 90 s on stream größe"
        assert asked(server, "/healthz")[::2] == (503, "no pass for 90 s on stream größe\n")
        assert asked(server, "/readyz")[0] == 200

    def test_metrics(self, server, metrics):
        metrics.show([ADS])
        status, headers, text = asked(server, "/metrics")
        assert (status, headers["Content-Type"]) == (
            200,
            "text/plain; version=0.0.4; charset=utf-8",
        )
        assert 'privatekube_blocks{phase="Active",stream="ads"} 7.0\n' in text

    def test_what_is_here(self, server):
        assert asked(server, "/")[::2] == (200, "/healthz\n/readyz\n/metrics\n")

    def test_a_query_does_not_matter(self, server):
        assert asked(server, "/healthz?verbose")[0] == 200

    @pytest.mark.parametrize("path", ["/health", "/metrics/", "/../healthz", "*"])
    def test_nothing_is_elsewhere(self, server, path):
        status, _, text = asked(server, path)
        assert (status, text) == (
            404,
            "nothing is here; try one of /healthz, /readyz, /metrics, /\n",
        )

    @pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/", "/nowhere"])
    def test_head_says_the_same_without_a_body(self, server, path):
        status, headers, text = asked(server, path, "HEAD")
        assert text == ""
        like = asked(server, path)
        assert (status, headers["Content-Type"]) == (like[0], like[1]["Content-Type"])
        if path != "/metrics":  # The process has used more time meanwhile.
            assert headers["Content-Length"] == like[1]["Content-Length"]

    def test_nothing_can_be_changed(self, server):
        assert asked(server, "/healthz", "POST")[0] == 501

    def test_a_broken_probe_is_no_dead_server(self, server, probes, caplog):
        probes.healthy = RuntimeError("no such stream")
        status, _, text = asked(server, "/healthz")
        assert status == 500
        assert text == "/healthz cannot be answered: RuntimeError: no such stream\n"
        assert "/healthz cannot be answered" in caplog.text
        assert asked(server, "/readyz")[0] == 200

    def test_broken_metrics_are_no_dead_server(self, server, metrics):
        metrics.show([StreamSnapshot("ads", {}, {}, "many", 0, {}, {}, 0)])
        assert asked(server, "/metrics")[0] == 500
        assert asked(server, "/healthz")[0] == 200
        metrics.show([ADS])
        assert asked(server, "/metrics")[0] == 200

    def test_nonsense_and_askers_who_leave_are_no_dead_server(self, server, capfd):
        for sent in (
            b"",
            b"\x00\xff\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\n",
            b"GET http://[ HTTP/1.0\r\n\r\n",
            b"GET " + b"a" * 70000,
        ):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(sent)
        assert asked(server, "/healthz")[0] == 200
        assert capfd.readouterr() == ("", "")

    def test_one_who_asks_slowly_holds_up_nobody(self, server):
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(b"GET /heal")
            assert asked(server, "/healthz")[0] == 200

    def test_requests_are_no_news(self, server, caplog, capfd):
        with caplog.at_level(logging.INFO):
            asked(server, "/nowhere")
        assert caplog.text == ""
        assert capfd.readouterr() == ("", "")
        with caplog.at_level(logging.DEBUG):
            asked(server, "/nowhere")
        assert "GET /nowhere" in caplog.text

    def test_who_asks_before_the_start_waits(self, metrics):
        server = StatusServer("127.0.0.1:0", metrics, lambda: None, lambda: None)
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as early:
                early.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                server.start()
                server.start()
                assert early.recv(12) == b"HTTP/1.0 200"
        finally:
            server.close()

    def test_closing_gives_the_port_back(self, metrics):
        first = StatusServer("127.0.0.1:0", metrics, lambda: None, lambda: None)
        first.start()
        listen = f"127.0.0.1:{first.port}"
        with pytest.raises(OSError, match=f"cannot listen on {listen}: Address already in use"):
            StatusServer(listen, metrics, lambda: None, lambda: None)
        first.close()
        first.close()
        second = StatusServer(listen, metrics, lambda: None, lambda: None)
        second.close()

    @pytest.mark.parametrize("listen", [":0", "0.0.0.0:0", "localhost:0"])
    def test_addresses(self, metrics, listen):
        server = StatusServer(listen, metrics, lambda: None, lambda: None)
        server.start()
        try:
            host = "localhost" if listen == "localhost:0" else "127.0.0.1"
            assert asked(server, "/healthz", host=host)[0] == 200
        finally:
            server.close()

    @pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
    def test_ipv6(self, metrics):
        server = StatusServer("[::1]:0", metrics, lambda: None, lambda: None)
        server.start()
        try:
            assert asked(server, "/healthz", host="::1")[0] == 200
        finally:
            server.close()

    @pytest.mark.parametrize(
        ("listen", "why"),
        [
            ("", "write host:port"),
            ("8080", "write host:port"),
            ("localhost", "write host:port"),
            ("::1:8080", "write host:port"),
            ("localhost:", "its port must be 0 to 65535"),
            ("localhost:http", "its port must be 0 to 65535"),
            ("localhost:65536", "its port must be 0 to 65535"),
            ("localhost:-1", "its port must be 0 to 65535"),
            ("localhost:" + "9" * 5000, "its port must be 0 to 65535"),
            ("localhost:\uff18\uff10", "its port must be 0 to 65535"),
            ("[nonsense]:80", "cannot be resolved"),
            ("a..b:80", "cannot be resolved"),
        ],
    )
    def test_bad_addresses(self, metrics, listen, why):
        with pytest.raises(ValueError, match=why) as refused:
            StatusServer(listen, metrics, lambda: None, lambda: None)
        assert repr(listen) in str(refused.value)
