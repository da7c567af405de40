"""Metrics and health of a worker over HTTP: `/metrics`, `/healthz` and `/readyz` only.

Values are read on request, in a separate thread.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from rangecast.errors import UsageError
from rangecast.server.metrics import KIND, counted, exposed, measured

if TYPE_CHECKING:
    from rangecast.server.workers.worker import Worker

_encode = msgspec.json.Encoder().encode


class WorkerMetrics(Collector):
    """The metrics of a worker."""

    def __init__(self, worker: Worker):
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        worker, done = self._worker, self._worker.totals
        yield from counted(
            "rangecast_worker",
            {
                "events": ("Events read, matched or rejected.", done.events),
                "matches": ("Match records written: one per event and consumer.", done.matches),
                "rejected": ("Rejected events.", done.rejected),
                "batches": ("Committed transactions, one per batch.", done.batches),
                "transactions_aborted": (
                    "Transactions aborted because partitions were reassigned.",
                    done.transactions_aborted,
                ),
                "rebalances": ("Assignments of partitions by the group.", done.rebalances),
            },
        )
        lags = done.lags
        yield from measured(
            "rangecast_worker",
            {
                "partitions": ("Assigned partitions.", len(lags)),
                "edits_seq": ("Last seq of the log that was applied.", worker.seq),
                "ready": (
                    "1 if the worker is ready, as in /readyz.",
                    int(not worker.why_not_ready()),
                ),
            },
        )
        yield SummaryMetricFamily(
            "rangecast_worker_batch_seconds",
            "Seconds from the first matched event of a batch to the commit of its transaction.",
            done.batches,
            done.seconds,
        )
        lag = GaugeMetricFamily(
            "rangecast_worker_lag",
            "Offsets of a partition that are not yet matched.",
            labels=["partition"],
        )
        for number, offsets in lags.items():
            lag.add_metric([str(number)], offsets)
        yield lag


@contextmanager
def answering(worker: Worker, host: str, port: int) -> Iterator[str]:
    """Serve metrics and health of a worker while the context is open; yield the URL."""

    class Answer(BaseHTTPRequestHandler):
        timeout = 10
        server_version, sys_version = "rangecast", ""

        def do_GET(self) -> None:
            status, kind, body = _answer(worker, self.path.partition("?")[0])
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_said: object) -> None:
            """Log nothing: probes come every few seconds."""

    class Answering(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    try:
        server = Answering((host, port), Answer)
    except OSError as error:
        raise UsageError(
            f"--metrics-host {host} and --metrics-port {port} can't be used: {error.strerror}\n"
            "  hint: choose another port; 0 picks a free one"
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="rangecast-metrics", daemon=True)
    thread.start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(worker: Worker, path: str) -> tuple[int, str, bytes]:
    """Return the status, content type and body for a path."""
    if path == "/metrics":
        return 200, KIND, exposed(WorkerMetrics(worker))
    status, text = 200, "ok"
    if path == "/readyz":
        why = worker.why_not_ready()
        status, text = (503, why) if why else (status, text)
    elif path != "/healthz":
        status, text = 404, "known paths: /metrics, /healthz and /readyz"
    return status, "application/json", _encode({"status": text})
