"""Something to scrape: real metrics behind the real status server, driven by a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from scheduler.metrics import Metrics
from scheduler.server import StatusServer


@dataclass(frozen=True)
class Exporter:
    metrics: Metrics
    server: StatusServer

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server.port}"


@contextmanager
def exporter() -> Iterator[Exporter]:
    metrics = Metrics("1.2.3")
    server = StatusServer("127.0.0.1:0", metrics, lambda: None, lambda: None)
    try:
        server.start()
        yield Exporter(metrics, server)
    finally:
        server.close()
