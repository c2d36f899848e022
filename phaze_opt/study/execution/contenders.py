"""Contenders whose searches are run again, and whose code has changed: what old and new code found is not mixed."""

from collections.abc import Sequence
from itertools import chain

from phaze_opt.errors import InputError
from phaze_opt.plugins import PluginGroup, PluginOrigin, changed_plugins
from phaze_opt.record.suggestions import suggest
from phaze_opt.study.config import Cell, StudyConfig
from phaze_opt.study.disk.directory import StudyDirectory
from phaze_opt.study.disk.plan_file import code_origins, load_plan


def check_restart(config: StudyConfig, restart: Sequence[str]) -> None:
    """Refuse to restart what is no contender.

    Raises:
        InputError: a name is unknown.
    """
    names = [contender.name for contender in config.contenders]
    for name in restart:
        if name not in names:
            message = f"the study has no strategy '{name}'; {suggest(name, names)}"
            raise InputError(message, source="--restart")


def drop_searches(directory: StudyDirectory, cells: Sequence[Cell], restart: Sequence[str]) -> None:
    """Remove the searches of contenders that are run again; evaluations stay, as they do not depend on who asked."""
    for cell in cells:
        if cell.contender.name in restart:
            directory.cell(cell).unlink(missing_ok=True)
            directory.failure(cell).unlink(missing_ok=True)


def refuse_changed_code(config: StudyConfig, directory: StudyDirectory, cells: Sequence[Cell]) -> None:
    """Refuse to go on with a contender whose code is not that of its finished searches, or with another estimator's.

    Raises:
        InputError: the code of a contender with a finished search has changed, or that of an estimator, or the study's
            plan is broken.
    """
    if not directory.plan.exists():
        return
    before = load_plan(directory).plugins
    now = code_origins(config)
    # Evaluations are shared by all contenders and outlive --restart, so what priced them is held to, whoever asked.
    all_before, all_now = (chain.from_iterable(origins.values()) for origins in (before, now))
    priced = [one for one in changed_plugins(all_before, all_now) if one.group == PluginGroup.ESTIMATORS]
    if priced and any(directory.evaluations.glob("*")):
        message = (
            f"the code of the estimator {_named(priced[:1])} has changed since this study's evaluations were made; run "
            "without --resume and --restart: the study starts afresh"
        )
        raise InputError(message, source=str(directory.path))
    for contender in config.contenders:
        num_finished = sum(cell.contender == contender and directory.cell(cell).exists() for cell in cells)
        changed = changed_plugins(before.get(contender.name, ()), now[contender.name])
        if num_finished and changed:
            message = (
                f"the code of '{contender.name}' ({_named(changed)}) has changed since {num_finished} of its searches "
                f"finished; --restart {contender.name} runs them again, and without --resume the study starts afresh"
            )
            raise InputError(message, source=str(directory.path), key=contender.name)


def _named(origins: Sequence[PluginOrigin]) -> str:
    return ", ".join(f"{one.name} of {one.distribution or 'no distribution'} {one.version}".strip() for one in origins)
