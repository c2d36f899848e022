"""Which runs of an MLflow store hold the searches of a study: for reports that name their sources."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from phaze_opt.record.input_files import is_there
from phaze_opt.track.destination import Destination

_LOGGER = logging.getLogger(__name__)


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
    from phaze_opt.track.batches import find_runs
    from phaze_opt.track.quiet import quiet_mlflow
    from phaze_opt.track.run_writer import ROLE_TAG
    from phaze_opt.track.store import describe_trouble, open_client
    from phaze_opt.track.study_views import ROLE_CELL
    from phaze_opt.track.study_writer import CELL_TAG

    quoted = study_id.replace("'", "")
    query = f"tags.study_id = '{quoted}' AND tags.`{ROLE_TAG}` = '{ROLE_CELL}'"
    runs: dict[str, tuple[int, str]] = {}
    with quiet_mlflow():
        try:
            client = open_client(destination)
            for experiment in client.search_experiments():
                for run in find_runs(client, experiment.experiment_id, query):
                    key, found = run.data.tags[CELL_TAG], (run.info.start_time, run.info.run_id)
                    runs[key] = max(found, runs.get(key, found))
        except Exception as error:  # stores fail in ways of their own libraries
            _LOGGER.warning(
                "the runs of %s cannot be looked up in %s: %s",
                study_id,
                destination.shown,
                describe_trouble(error, destination),
            )
    return {key: run_id for key, (_, run_id) in runs.items()}
