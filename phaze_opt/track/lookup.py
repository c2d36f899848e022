"""What a store holds: the newest run, which MLflow's interface is opened at, and the runs of a study's searches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from phaze_opt.record.input_files import is_there
from phaze_opt.track.destination import Destination
from phaze_opt.track.runs import Role, Tag, find_runs
from phaze_opt.track.store import describe_trouble, open_client, quiet_mlflow
from phaze_opt.track.study_views import VIEW_TAG, search_views, study_views

if TYPE_CHECKING:
    from mlflow import MlflowClient


T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)
EVERYTHING = "#/experiments?workflowType=machine_learning"
"""The list of experiments, where nothing is known of them."""
STRATEGIES = "strategies"
"""Key of the view that a study opens at."""


def newest_link(destination: Destination) -> str:
    """The address, within the interface, of what was started last: the view of a search or study, or runs.

    A store that cannot be asked is no reason to fail: its list of experiments is named, with a word in the log.
    """
    return _ask(destination, _link, what="the newest run") or EVERYTHING


def _ask(destination: Destination, question: Callable[[MlflowClient], T], *, what: str) -> T | None:
    """The answer of a store; None, with a word in the log, where there is none."""
    with quiet_mlflow():
        try:
            return question(open_client(destination))
        except Exception as error:  # stores fail in ways of their own libraries
            trouble = describe_trouble(error, destination)
            _LOGGER.warning("%s cannot be looked up in %s: %s", what, destination.shown, trouble)
    return None


def _link(client: MlflowClient) -> str:
    numbers = [experiment.experiment_id for experiment in client.search_experiments()]
    queries = [f"tags.`{Tag.ROLE}` = '{role}'" for role in (Role.SEARCH, Role.PROOF, Role.STUDY)]
    latest = ["attributes.start_time DESC"]
    found = [run for query in queries for run in client.search_runs(numbers, query, order_by=latest, max_results=1)]
    if not found:
        return EVERYTHING
    run = max(found, key=lambda run: (run.info.start_time, run.info.run_id))
    number = str(run.info.experiment_id)
    is_search = run.data.tags[Tag.ROLE] == Role.SEARCH
    view = search_views()[0] if is_search else next(view for view in study_views() if view.key == STRATEGIES)
    if run.data.tags[Tag.ROLE] != Role.PROOF and f"{VIEW_TAG}{view.key}" in client.get_experiment(number).tags:
        return view.table_link(number)
    return f"#/experiments/{number}/runs?workflowType=machine_learning"


def find_search_runs(destination: Destination, study_id: str) -> Mapping[str, str]:
    """Runs of a study's searches by key of the cell; of several attempts the latest run.

    Nothing is made or changed, and what cannot be asked is no reason to fail: a store that is not there or does not
    answer gives no runs, with a word in the log.

    Args:
        destination: the store.
        study_id: of the study.
    """
    path = destination.sqlite_path
    if path is not None and not is_there(path):
        return {}
    quoted = study_id.replace("'", "")
    query = f"tags.study_id = '{quoted}' AND tags.`{Tag.ROLE}` = '{Role.CELL}'"

    def latest(client: MlflowClient) -> dict[str, str]:
        runs: dict[str, tuple[int, str]] = {}
        for experiment in client.search_experiments():
            for run in find_runs(client, experiment.experiment_id, query):
                key, found = run.data.tags[Tag.CELL], (run.info.start_time, run.info.run_id)
                runs[key] = max(found, runs.get(key, found))
        return {key: run_id for key, (_, run_id) in runs.items()}

    return _ask(destination, latest, what=f"the runs of {study_id}") or {}
