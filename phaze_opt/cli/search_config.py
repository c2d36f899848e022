"""From the options of ``phaze-opt search`` to its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import check_directory
from phaze_opt.record.spelling import parse_word

if TYPE_CHECKING:
    from phaze_opt.search.config import SearchConfig


def build_config(
    *,
    strategy: str,
    strategy_options: list[str],
    pruner: str,
    pruner_options: list[str],
    starts: int,
    dask: str,
    objective: str,
    num_trials: int,
    batch: int,
    jobs: int,
    seed: int,
    work_dir: Path,
    is_resumed: bool,
    name: str,
) -> SearchConfig:
    """How to search, checked."""
    from phaze_opt.objective.goals import Goal
    from phaze_opt.search.config import SearchConfig

    return SearchConfig(
        strategy=strategy,
        options=parse_assignments(strategy_options, option="--strategy-option"),
        pruner=pruner,
        pruner_options=parse_assignments(pruner_options, option="--pruner-option"),
        num_starts=starts,
        dask=dask,
        goal=parse_word(Goal, objective, source="--objective"),
        num_trials=num_trials,
        seed=seed,
        batch=batch,
        jobs=jobs,
        work_dir=runs_directory(work_dir),
        resume=is_resumed,
        name=name,
    )


def one_of(model: str, models: str, *, is_heterogeneous: bool) -> tuple[str, str]:
    """The names given by exactly one of --model and --models, and which option that was."""
    if bool(model) == bool(models):
        message = "give either --model (one) or --models (several, one design for all), and not both"
        raise InputError(message)
    if is_heterogeneous and models:
        message = "needs one --model: stages of a pipeline belong to one model"
        raise InputError(message, source="--heterogeneous")
    return (model, "--model") if model else (models, "--models")


def parse_assignments(words: list[str], *, option: str) -> dict[str, str | int | float | bool]:
    """NAME=VALUE pairs, the value read as boolean, integer, number or text."""
    options: dict[str, str | int | float | bool] = {}
    for word in words:
        name, separator, text = word.partition("=")
        if not separator or not name or name in options:
            message = f"'{word}' must be NAME=VALUE, each name once"
            raise InputError(message, source=option)
        options[name] = _read_value(text)
    return options


def _read_value(text: str) -> str | int | float | bool:
    """A boolean, integer or number where the text is one."""
    if text in {"true", "false"}:
        return text == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def runs_directory(work_dir: Path) -> Path:
    """The directory of journals, once the working directory is known to be one."""
    check_directory(work_dir, source="--work-dir")
    return work_dir / "phaze-opt-runs"
