"""The experiment that a study is recorded in: its note, and the views that its note links to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from phaze_opt.track.batches import EXPERIMENT_TAGS, NOTE_TAG, find_experiment
from phaze_opt.track.destination import Destination
from phaze_opt.track.order import Record
from phaze_opt.track.study_views import VIEW_TAG, compare_link, study_views

if TYPE_CHECKING:
    from mlflow import MlflowClient

STUDY_TAG = "phaze_opt.study_id"
PRIMARY_METRIC = {
    "mlflow.experiment.primaryMetric.name": "median_regret_pct",
    "mlflow.experiment.primaryMetric.greaterIsBetter": "False",
}
MAX_EXPERIMENT_TAG_LENGTH = 5000


@final
@dataclass(frozen=True, slots=True)
class StudyExperiment:
    """Finds, makes and describes experiments."""

    client: MlflowClient
    destination: Destination

    def open(self, started: Record) -> str:
        """Identifier of a study's experiment, made and described if it is not there."""
        tags = {**EXPERIMENT_TAGS, **PRIMARY_METRIC, STUDY_TAG: started["study_id"], NOTE_TAG: started["description"]}
        cut = {key: value[:MAX_EXPERIMENT_TAG_LENGTH] for key, value in tags.items()}
        name = str(started["experiment"])
        experiment_id = find_experiment(self.client, name, destination=self.destination, tags=cut)
        self._describe(experiment_id, started)
        return experiment_id

    def conclude(
        self, experiment_id: str, started: Record, *, strategies: Mapping[str, str], metrics: Sequence[str]
    ) -> None:
        """Views with the columns that a finished study has, and a link that compares its strategies' runs."""
        self._describe(experiment_id, started, run_ids=tuple(strategies.values()), metrics=metrics)

    def _describe(
        self, experiment_id: str, started: Record, *, run_ids: Sequence[str] = (), metrics: Sequence[str] = ()
    ) -> None:
        """Write views and note; a note that is not a study's stays."""
        known = self.client.get_experiment(experiment_id).tags
        study_id = started["study_id"]
        views = study_views(metrics)
        tags = {f"{VIEW_TAG}{view.key}": view.state(study_id) for view in views}
        if STUDY_TAG in known or NOTE_TAG not in known:
            links = [
                f"[{view.title}]({view.table_link(experiment_id)}) ([charts]({view.chart_link(experiment_id)}))"
                for view in views
            ]
            if run_ids:
                links.insert(0, f"[compare]({compare_link(experiment_id, run_ids)})")
            tags[NOTE_TAG] = _note("Views: " + " · ".join(links), started["description"].strip())
            tags[STUDY_TAG] = study_id
        for key, value in tags.items():
            if known.get(key) != value:
                self.client.set_experiment_tag(experiment_id, key, value)


def _note(links: str, description: str) -> str:
    """Links and description; on one line where the description begins with words, as the interface folds the rest."""
    header = links + (" — " if description[:1].isalnum() else "\n\n")
    return header + description[: MAX_EXPERIMENT_TAG_LENGTH - len(header)]
