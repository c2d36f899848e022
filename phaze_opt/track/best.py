"""Best so far, trial by trial: the parent run's curves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from phaze_opt.track.journal import Record

RATES = ("throughput_samples_per_s", "throughput_per_tdp")


@final
@dataclass(slots=True)
class BestSoFar:
    """Running maxima over the trials seen, in the order they are given; a trial given twice counts once."""

    _best: dict[str, float] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)
    _feasible: set[int] = field(default_factory=set)

    def update(self, record: Record) -> None:
        """Count one trial record."""
        number = record["number"]
        self._seen.add(number)
        metrics = record["metrics"]
        self._last = {name: metrics[name] for name in RATES if name in metrics}
        if self._last:
            self._feasible.add(number)
        for name, value in self._last.items():
            self._best[name] = max(value, self._best.get(name, value))

    def metrics(self) -> dict[str, float]:
        """``best_*`` so far, the ``trial_*`` just counted if it is feasible, and the number of feasible trials."""
        return {
            **{f"best_{name}": value for name, value in self._best.items()},
            **{f"trial_{name}": value for name, value in self._last.items()},
            "num_trials_finished": float(len(self._seen)),
            "num_trials_feasible": float(len(self._feasible)),
        }
