"""Telling observers without depending on them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze_opt.search.events import SearchEvent, SearchObserver

_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class Observers:
    """Passes events on in order; what an observer raises is logged once per observer and changes nothing."""

    observers: Sequence[SearchObserver]
    _has_failed: set[int] = field(default_factory=set)

    def notify(self, event: SearchEvent) -> None:
        """Tell every observer, also those that failed before."""
        for position, observer in enumerate(self.observers):
            try:
                observer.observe(event)
            except Exception as error:
                if position not in self._has_failed:
                    self._has_failed.add(position)
                    name = type(observer).__name__
                    _LOGGER.warning(
                        "observer %s failed (%s: %s); the search goes on", name, type(error).__name__, error
                    )
