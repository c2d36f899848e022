"""A tracker that writes one JSON line per event."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from phaze_opt.search.events import SearchEvent, SearchFinished, SearchStarted, TrialFinished
from phaze_opt.track.protocol import Delivery, DeliveryProgress, TrackerConfig


@dataclass(frozen=True, slots=True)
class JsonLinesTracker:
    """Opens a file per search in the working directory."""

    name: str = field(default="json-lines", init=False)

    def open(self, config: TrackerConfig) -> JsonLinesSession:
        """Begin recording; nothing is written before the first event."""
        return JsonLinesSession(Path(config.work_dir) / "json-lines" / config.experiment)


@dataclass(slots=True)
class JsonLinesSession:
    """Events of one search, in its own directory."""

    directory: Path
    _num_events: int = 0
    _run_id: str = ""

    @property
    def tracking_uri(self) -> str:
        """The directory."""
        return self.directory.absolute().as_uri()

    @property
    def run_id(self) -> str:
        """The search's identity."""
        return self._run_id

    @property
    def url_hint(self) -> str:
        """How to read it."""
        return f"cat {self.directory / 'events.jsonl'}"

    def observe(self, event: SearchEvent) -> None:
        """Append one line."""
        self._run_id = event.search_id
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": type(event).__name__, **_summary(event)}) + "\n")
        self._num_events += 1

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Copy the files."""
        for name, source in files.items():
            target = self.directory / "artifacts" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def close(self, on_progress: DeliveryProgress | None = None) -> Delivery:
        """Everything is on disk already."""
        return Delivery(num_delivered=self._num_events)


def _summary(event: SearchEvent) -> dict[str, object]:
    """What of an event is written."""
    match event:
        case SearchStarted():
            return {"strategy": event.strategy, "seed": event.seed, "num_trials": event.num_trials}
        case TrialFinished():
            return {"number": event.number, "values": list(event.values), "status": event.evaluation.status.value}
        case SearchFinished():
            return {"best_number": event.best_number, "is_interrupted": event.is_interrupted}
