"""A tracker that writes one JSON line per event of a search, and one per search of a study."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from phaze_opt.search.events import SearchEvent, SearchFinished, SearchStarted, TrialFinished
from phaze_opt.study.events import CellFinished, StudyEvent, StudyStarted
from phaze_opt.track.protocol import Delivery, TrackerConfig


@dataclass(frozen=True, slots=True)
class JsonLinesTracker:
    """Opens a file per search or study in the working directory."""

    name: str = field(default="json-lines", init=False)

    def open(self, config: TrackerConfig) -> "JsonLinesSession":
        """Begin recording; nothing is written before the first event."""
        return JsonLinesSession(Path(config.work_dir) / "json-lines" / config.experiment)

    def open_study(self, config: TrackerConfig) -> "JsonLinesStudySession":
        """Begin recording a study; nothing is written before the first event."""
        return JsonLinesStudySession(Path(config.work_dir) / "json-lines" / "studies")


@dataclass(slots=True)
class _Session:
    """A file of lines in a directory, named by what is recorded."""

    directory: Path
    run_id: str = ""

    @property
    def tracking_uri(self) -> str:
        """The directory."""
        return self.directory.absolute().as_uri()

    @property
    def path(self) -> Path:
        """The file."""
        return self.directory / f"{self.run_id}.jsonl"

    @property
    def url_hint(self) -> str:
        """How to read it."""
        return f"cat {self.path}"

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Copy the files."""
        for name, source in files.items():
            target = self.path.with_suffix("") / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


@dataclass(slots=True)
class JsonLinesSession(_Session):
    """Events of one search, in a file of its own.

    A search that is resumed tells all its trials again, so the file is begun anew with each start.
    """

    _num_events: int = 0

    def observe(self, event: SearchEvent) -> None:
        """Append one line."""
        self.run_id = event.search_id
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.path.open("w" if isinstance(event, SearchStarted) else "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": type(event).__name__, **_summary(event)}) + "\n")
        self._num_events += 1

    def close(self) -> Delivery:
        """Everything is on disk already."""
        return Delivery(num_delivered=self._num_events)


@dataclass(slots=True)
class JsonLinesStudySession(_Session):
    """Searches of one study, a line each; a study that is resumed tells them again, so lines are kept by search."""

    _lines: dict[str, str] = field(default_factory=dict)

    def observe(self, event: StudyEvent) -> None:
        """Write what is known so far."""
        self.run_id = event.study_id
        if isinstance(event, CellFinished):
            rates = [evaluation.throughput_samples_per_s for evaluation in event.evaluations]
            self._lines[event.result.cell.key] = json.dumps({"search": event.result.cell.key, "throughputs": rates})
        elif isinstance(event, StudyStarted):
            self._lines[""] = json.dumps({"study": event.name, "searches": event.num_cells})
        self.directory.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(f"{line}\n" for line in self._lines.values()), encoding="utf-8")

    def close(self) -> Delivery:
        """Everything is on disk already."""
        return Delivery(num_delivered=len(self._lines))


def _summary(event: SearchEvent) -> dict[str, object]:
    """What of an event is written."""
    match event:
        case SearchStarted():
            return {"strategy": event.strategy, "seed": event.seed, "num_trials": event.num_trials}
        case TrialFinished():
            trial = event.trial
            throughput = trial.evaluation.throughput_samples_per_s
            return {"number": trial.number, "throughput_samples_per_s": throughput, "values": list(trial.values)}
        case SearchFinished():
            return {"best_number": event.best_number, "is_interrupted": event.is_interrupted}
