"""Metrics for Prometheus: what was asked and how long it took, how old the model is, how the last refits went.

Several worker processes count together where the environment names a folder for it, PROMETHEUS_MULTIPROC_DIR.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

FAST = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
OUTCOMES = ("accepted", "worse", "failed", "unchanged", "rolled back")


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("pclf_requests", "Requests answered", ["route", "status"], registry=self.registry)
        self.seconds = Histogram("pclf_request_seconds", "Time to answer", ["route"], buckets=FAST,
                                 registry=self.registry)
        self.fold_in = Histogram("pclf_fold_in_seconds", "Time to place somebody by their ratings", buckets=FAST,
                                 registry=self.registry)
        self.lists = Counter("pclf_lists", "Lists answered", ["domain", "basis"], registry=self.registry)
        self.items = Counter("pclf_listed_items", "Items on answered lists", ["domain"], registry=self.registry)
        self.popular = Counter("pclf_listed_popular_items", "Those of them that are among the most rated 5 %",
                               ["domain"], registry=self.registry)
        self.kept = Counter("pclf_ratings_kept", "Ratings accepted", registry=self.registry)
        self.rejected = Counter("pclf_rows_rejected", "Rows of batches that could not be used", registry=self.registry)
        self.refused = Counter("pclf_refused", "Requests refused at the door", ["why"], registry=self.registry)

    def text(self, facts: Mapping[str, Any] | None) -> bytes:
        """All metrics; facts: what the store says now, see `Desk.facts`, None where it is gone."""
        registry = CollectorRegistry() if "PROMETHEUS_MULTIPROC_DIR" in os.environ else self.registry
        if registry is not self.registry:
            MultiProcessCollector(registry)      # type: ignore[no-untyped-call]
        now = CollectorRegistry()
        now.register(_Facts(facts))
        return generate_latest(registry) + generate_latest(now)

    def traffic(self) -> dict[str, float]:
        """Sums for the operator's page."""
        out: dict[str, float] = {"requests": 0.0, "seconds": 0.0, "items": 0.0, "popular": 0.0}
        registry = self.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)      # type: ignore[no-untyped-call]
        names = {"pclf_requests_total": "requests", "pclf_request_seconds_sum": "seconds",
                 "pclf_listed_items_total": "items", "pclf_listed_popular_items_total": "popular"}
        for family in registry.collect():
            for sample in family.samples:
                if sample.name in names:
                    out[names[sample.name]] += sample.value
                if sample.name == "pclf_lists_total":
                    key = f"lists {sample.labels['domain']} {sample.labels['basis']}"
                    out[key] = out.get(key, 0.0) + sample.value
        return out


class _Facts(Collector):
    """Gauges that are read from the store when they are asked for, so that all processes say the same."""

    def __init__(self, facts: Mapping[str, Any] | None) -> None:
        self.facts = facts

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield _gauge("pclf_database_up", "Whether the database answers", 0.0 if self.facts is None else 1.0)
        if self.facts is None:
            return
        version, refits = self.facts["version"], self.facts["refits"]
        yield _gauge("pclf_model_version", "The version that is served", float(version.version))
        yield _gauge("pclf_model_age_seconds", "Since the model was fitted", time.time() - version.at)
        yield _gauge("pclf_ratings_since_fit", "Ratings that the model does not know", float(self.facts["fresh"]))
        if "error" in version.figures:
            yield _gauge("pclf_held_out_error", "Mean absolute error of the model on held-out ratings",
                         version.figures["error"])
            yield _gauge("pclf_held_out_hits", "Share of held-out liked items that lists of ten hold",
                         version.figures["hits"])
        yield _outcomes(refits)
        last = next((r for r in refits if r["outcome"] in ("accepted", "worse", "failed")), None)
        if last is not None:
            yield _gauge("pclf_last_refit_ok", "Whether the last refit was accepted",
                         float(last["outcome"] == "accepted"))


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, what, value=value)


def _outcomes(refits: Sequence[Mapping[str, Any]]) -> GaugeMetricFamily:
    out = GaugeMetricFamily("pclf_refits", "The last hundred refits by how they ended", labels=["outcome"])
    for outcome in OUTCOMES:
        out.add_metric([outcome], float(sum(r["outcome"] == outcome for r in refits)))
    return out
