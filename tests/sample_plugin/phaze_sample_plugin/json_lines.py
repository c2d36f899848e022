"""A tracker that writes one JSON line per event of a search, and one per search of a study."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from phaze_opt.search.events import SearchEvent, SearchFinished, SearchStarted, TrialFinished
from phaze_opt.study.events import CellFinished, StudyEvent, StudyStarted
from phaze_opt.track.protocol import Delivery, DeliveryProgress, TrackerConfig


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
class JsonLinesSession:
    """Events of one search, in a file of its own.

    A search that is resumed tells all its trials again, so the file is begun anew with each start.
    """

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
        return f"cat {self.directory / f'{self._run_id}.jsonl'}"

    def observe(self, event: SearchEvent) -> None:
        """Append one line."""
        self._run_id = event.search_id
        self.directory.mkdir(parents=True, exist_ok=True)
        mode = "w" if isinstance(event, SearchStarted) else "a"
        with (self.directory / f"{self._run_id}.jsonl").open(mode, encoding="utf-8") as file:
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


@dataclass(slots=True)
class JsonLinesStudySession:
    """Searches of one study, a line each; a study that is resumed tells them again, so lines are kept by search."""

    directory: Path
    _study_id: str = ""
    _lines: dict[str, str] = field(default_factory=dict)

    @property
    def tracking_uri(self) -> str:
        """The directory."""
        return self.directory.absolute().as_uri()

    @property
    def run_id(self) -> str:
        """The study's identity."""
        return self._study_id

    @property
    def url_hint(self) -> str:
        """How to read it."""
        return f"cat {self._path}"

    def observe_study(self, event: StudyEvent) -> None:
        """Write what is known so far."""
        self._study_id = event.study_id
        if isinstance(event, CellFinished):
            rates = [evaluation.throughput_samples_per_s for evaluation in event.evaluations]
            self._lines[event.result.cell.key] = json.dumps({"search": event.result.cell.key, "throughputs": rates})
        elif isinstance(event, StudyStarted):
            self._lines[""] = json.dumps({"study": event.name, "searches": event.num_cells})
        self.directory.mkdir(parents=True, exist_ok=True)
        self._path.write_text("".join(f"{line}\n" for line in self._lines.values()), encoding="utf-8")

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Copy the files."""
        for name, source in files.items():
            target = self.directory / self._study_id / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def close(self, on_progress: DeliveryProgress | None = None) -> Delivery:
        """Everything is on disk already."""
        return Delivery(num_delivered=len(self._lines))

    @property
    def _path(self) -> Path:
        return self.directory / f"{self._study_id}.jsonl"


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
