"""Prometheus metrics: counted at the edges, gauges read from the market's health when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cloud_gpu.protocol.effects import MarketEffect, ReportBid
from market.health import Health

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_GAUGES = {
    "block": "Newest block that the market has followed.",
    "chain_lag_s": "Age of the newest block, seconds.",
    "peers": "Peers connected on the overlay.",
    "inbox_behind": "Acknowledged orders not yet handled.",
    "events_waiting": "Events not yet handled.",
    "bids_waiting": "Bids without a match.",
    "asks": "Asks on offer.",
    "openings": "Openings on their way to the chain.",
    "rounds": "Rounds of lane A cleared.",
}


class Metrics:
    """One registry of one market process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "cloud_gpu_market_requests",
            "HTTP requests.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "cloud_gpu_market_request_seconds",
            "Time to answer.",
            ["route"],
            registry=self._registry,
        )
        self._effects = Counter(
            "cloud_gpu_market_effects",
            "What the matchmaker had carried out.",
            ["kind"],
            registry=self._registry,
        )
        self._bids = Counter(
            "cloud_gpu_market_bid_reports",
            "Reports about bids, by state and reason.",
            ["state", "reason"],
            registry=self._registry,
        )
        self._adverts = Counter(
            "cloud_gpu_market_adverts",
            'Adverts heard, by what became of them; "taken" entered the book.',
            ["outcome"],
            registry=self._registry,
        )
        self._gauges: _HealthGauges | None = None

    def watch(self, health: Callable[[], Health]) -> None:
        """Read the gauges from here."""
        self._gauges = _HealthGauges(health)
        self._registry.register(self._gauges)

    def performed(self, effect: MarketEffect) -> None:
        """An effect was carried out."""
        self._effects.labels(type(effect).__name__).inc()
        if isinstance(effect, ReportBid):
            rejection = effect.report.rejection
            reason = rejection.reason.value if rejection is not None else ""
            self._bids.labels(effect.report.state.value, reason).inc()

    def heard(self, outcome: str) -> None:
        """An advert was heard."""
        self._adverts.labels(outcome).inc()

    def exposition(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self._registry)


class _HealthGauges(Collector):
    def __init__(self, health: Callable[[], Health]) -> None:
        self._health = health

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing is read at registration."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One look at the market."""
        health = self._health()
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(
                f"cloud_gpu_market_{name}", text, value=float(getattr(health, name))
            )
