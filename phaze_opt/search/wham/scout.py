"""`Scout`: looks at architectures through the probe, each once, all micro-batches together, within a limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.search.probe import PhaseView, Probe
from phaze_opt.search.wham.metric import Metric


@dataclass(slots=True)
class Scout:
    """What is known of architectures without evaluating them.

    Attributes:
        probe: bounds and estimates.
        micro_batches: values of that axis; one architecture is bounded at all of them, which counts once.
        limit: architectures that may be looked at; no more than the probe grants.
    """

    probe: Probe
    micro_batches: tuple[int, ...]
    limit: int
    bounds: dict[DesignPoint, tuple[float, ...]] = field(default_factory=dict)
    _architectures: set[DesignPoint] = field(default_factory=set)

    @property
    def num_left(self) -> int:
        """Further architectures that may be looked at."""
        return max(0, self.limit - len(self._architectures))

    def look(self, points: Iterable[DesignPoint]) -> None:
        """Bound the architectures of some points at every micro-batch, as many of the new ones as are left."""
        wanted = dict.fromkeys(replace(point, micro_batch=self.micro_batches[0]) for point in points)
        new = []
        for base in wanted:
            if base in self.bounds or not (base in self._architectures or self.num_left > 0):
                continue
            self._architectures.add(base)
            new += [replace(base, micro_batch=value) for value in self.micro_batches]
        if new:
            self.bounds.update(zip(new, self.probe.bounds(new), strict=True))

    def phases(self, point: DesignPoint) -> tuple[PhaseView, ...] | None:
        """Operator graphs and latencies on the architecture of a point; None if nothing is left."""
        base = replace(point, micro_batch=self.micro_batches[0])
        if base not in self._architectures and self.num_left == 0:
            return None
        self._architectures.add(base)
        return self.probe.phases(point)

    def best_score(self, point: DesignPoint, metric: Metric) -> float:
        """The best score of an architecture over the micro-batches; minus infinity if never looked at."""
        variants = (replace(point, micro_batch=value) for value in self.micro_batches)
        return max(metric.score(self.bounds.get(variant, ())) for variant in variants)
