"""Objectives and bounds of conditions, made once in a process and shared by all that need them."""

from __future__ import annotations

from dataclasses import dataclass, field

from phaze_opt.search.evaluators import PointObjective
from phaze_opt.search.probe import PointBounder
from phaze_opt.study.plan import Condition
from phaze_opt.study.running.engine import StudyEngine

MAX_KEPT = 8
"""Conditions whose compiled graphs are kept; searches come in the order of conditions."""


@dataclass(slots=True)
class CompiledConditions:
    """Compiled graphs by `Condition.evaluations_digest`: conditions that differ in goal or space alone share them.

    Sharing changes speed, never a result.

    Attributes:
        engine: makes objectives and bounds.
    """

    engine: StudyEngine
    _objectives: dict[str, PointObjective] = field(default_factory=dict)
    _bounders: dict[str, PointBounder] = field(default_factory=dict)

    def objective(self, digest: str, condition: Condition) -> PointObjective:
        """The objective of a condition, by its digest."""
        if digest not in self._objectives:
            while len(self._objectives) >= MAX_KEPT:
                oldest = next(iter(self._objectives))
                del self._objectives[oldest]
                self._bounders.pop(oldest, None)
            self._objectives[digest] = self.engine.build_objective(condition)
        return self._objectives[digest]

    def bounder(self, digest: str, condition: Condition) -> PointBounder:
        """Its bounds, on the same compiled graphs; the engine must have some."""
        assert self.engine.build_bounder is not None
        if digest not in self._bounders:
            self._bounders[digest] = self.engine.build_bounder(condition, self.objective(digest, condition))
        return self._bounders[digest]
