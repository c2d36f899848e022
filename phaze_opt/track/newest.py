"""Where MLflow's interface shows the newest search, proof or study: its own first page shows language-model traces."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from phaze_opt.track.destination import Destination

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LOGGER = logging.getLogger(__name__)
EVERYTHING = "#/experiments?workflowType=machine_learning"
"""The list of experiments, where nothing is known of them."""
STRATEGIES = "strategies"
"""Key of the view that a study opens at."""


def newest_link(destination: Destination) -> str:
    """The address, within the interface, of what was started last: a study's view, or the runs of an experiment.

    A store that cannot be asked is no reason to fail: its list of experiments is named, with a word in the log.
    """
    from phaze_opt.track.quiet import quiet_mlflow
    from phaze_opt.track.store import describe_trouble, open_client

    with quiet_mlflow():
        try:
            return _link(open_client(destination))
        except Exception as error:  # stores fail in ways of their own libraries
            _LOGGER.warning(
                "the newest run cannot be looked up in %s: %s",
                destination.shown,
                describe_trouble(error, destination),
            )
    return EVERYTHING


def _link(client: MlflowClient) -> str:
    from phaze_opt.track.run_writer import ROLE_PROOF, ROLE_SEARCH, ROLE_TAG
    from phaze_opt.track.study_views import ROLE_STUDY, VIEW_TAG, study_views

    numbers = [experiment.experiment_id for experiment in client.search_experiments()]
    queries = [f"tags.`{ROLE_TAG}` = '{role}'" for role in (ROLE_SEARCH, ROLE_PROOF, ROLE_STUDY)]
    latest = ["attributes.start_time DESC"]
    found = [run for query in queries for run in client.search_runs(numbers, query, order_by=latest, max_results=1)]
    if not found:
        return EVERYTHING
    run = max(found, key=lambda run: (run.info.start_time, run.info.run_id))
    number = str(run.info.experiment_id)
    for view in study_views():
        if view.key == STRATEGIES and f"{VIEW_TAG}{view.key}" in client.get_experiment(number).tags:
            return view.table_link(number)
    return f"#/experiments/{number}/runs?workflowType=machine_learning"
