"""MLflow without its noise and with bounded waits, in a process of its own or around a block of code."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator, Mapping

DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "8",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""What MLflow is told where the user has not said otherwise; a dead server costs seconds, not minutes;
`track.deliver` asks again."""
LOGGERS = ("mlflow", "alembic", "alembic.runtime.migration")


def quiet_environment(base: Mapping[str, str]) -> dict[str, str]:
    """An environment for a process that runs MLflow: ``base``, completed by `DEFAULTS`."""
    return {**DEFAULTS, **base}


@contextlib.contextmanager
def quiet_mlflow() -> Iterator[None]:
    """Environment, warnings and log levels as `DEFAULTS` say inside the block; all put back afterwards."""
    missing = [name for name in DEFAULTS if name not in os.environ]
    os.environ.update({name: DEFAULTS[name] for name in missing})
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        for name in missing:
            os.environ.pop(name, None)
