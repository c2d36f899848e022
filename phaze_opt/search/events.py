"""What a search tells its observers; observers record, they never change a result."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.result import Trial

_LOGGER = logging.getLogger(__name__)
Event_contra = TypeVar("Event_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class SearchStarted:
    """A search begins (or resumes).

    Attributes:
        search_id, name, strategy, goal, seed, num_trials: what it is.
        config: the resolved configuration, ready for JSON.
        directory: of its journal; None where nothing is on disk.
        is_resumed: the journal of an earlier run goes on.
    """

    search_id: str
    name: str
    strategy: str
    goal: str
    seed: int
    num_trials: int
    config: Mapping[str, object]
    directory: Path | None = None
    is_resumed: bool = False


@dataclass(frozen=True, slots=True)
class TrialFinished:
    """One trial has its evaluation."""

    search_id: str
    trial: Trial[Evaluation]


@dataclass(frozen=True, slots=True)
class SearchFinished:
    """A search ended: by budget, exhaustion or interruption."""

    search_id: str
    best: Evaluation | None
    best_number: int
    is_interrupted: bool
    wall_s: float
    metrics: Mapping[str, float] = field(default_factory=dict)


SearchEvent = SearchStarted | TrialFinished | SearchFinished


@runtime_checkable
class Observer(Protocol[Event_contra]):
    """Receives the events of one search or study, in order, in the process that runs or coordinates it."""

    def observe(self, event: Event_contra, /) -> None:
        """Record one event."""
        ...


@dataclass(slots=True)
class Observers:
    """Passes events on in order; what an observer raises is logged once per observer and changes nothing.

    Attributes:
        observers: told in order.
        what: that goes on although an observer fails.
    """

    observers: Sequence[Observer[Any]]
    what: str = "search"
    _has_failed: set[int] = field(default_factory=set)

    def notify(self, event: object) -> None:
        """Tell every observer, also those that failed before."""
        for position, observer in enumerate(self.observers):
            try:
                observer.observe(event)
            except Exception as error:
                if position not in self._has_failed:
                    self._has_failed.add(position)
                    said = f"{type(error).__name__}: {error}"
                    _LOGGER.warning("observer %s failed (%s); the %s goes on", type(observer).__name__, said, self.what)
