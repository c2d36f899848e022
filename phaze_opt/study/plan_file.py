"""``study.json``: the resolved plan of a study, whole enough to rebuild every condition without any other file."""

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from typing import Any

from phaze_opt import __version__
from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constant, Constants, EstimatorOption
from phaze_opt.objective.scenario import OWN_ESTIMATORS, Scenario
from phaze_opt.plugins import PluginGroup, PluginOrigin, changed_plugins, plugin_origins
from phaze_opt.record.journal import write_value
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.study.config import Cell, Condition, StudyConfig
from phaze_opt.study.directory import StudyDirectory, read_plan

FORMAT = 1
DISTRIBUTION = "phaze-opt"
_Origins = dict[str, tuple[PluginOrigin, ...]]
_Named = dict[str, Any]
_LIBRARIES = ("numpy", "optuna", "highspy", "pyomo", "scipy", "scikit-learn")


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """What a plan file holds.

    Attributes:
        config: of the study.
        conditions: settings x workloads.
        evaluations_digests: of each condition, by its key, as they were when the study was run.
        problem_digests: likewise.
        provenance: versions and machine.
        plugins: code of each contender, by its name.
    """

    config: StudyConfig
    conditions: tuple[Condition, ...]
    evaluations_digests: Mapping[str, str]
    problem_digests: Mapping[str, str]
    provenance: Mapping[str, str]
    plugins: Mapping[str, tuple[PluginOrigin, ...]]


def plan_to_json(config: StudyConfig, conditions: Sequence[Condition]) -> dict[str, Any]:
    """The resolved plan as JSON values."""
    origins = code_origins(config)
    return {
        "format": FORMAT,
        "config": to_plain(StudyConfig, config),
        "conditions": [_condition_to_json(condition) for condition in conditions],
        "constants": {condition.constants.digest: _constants_to_json(condition.constants) for condition in conditions},
        "provenance": collect_provenance(origins),
        "plugins": to_plain(_Origins, origins),
    }


def code_origins(config: StudyConfig) -> dict[str, tuple[PluginOrigin, ...]]:
    """Where the code of each contender comes from: of its strategy, of its pruner if it has one, and of all estimators.

    The package's own estimators are left out: its constants and versions stand for them.
    """
    kinds = (PluginGroup.STRATEGIES, PluginGroup.PRUNERS)
    estimators = {setting.estimator for setting in config.settings if setting.estimator is not None} - {*OWN_ESTIMATORS}
    priced = [(PluginGroup.ESTIMATORS, name) for name in sorted(estimators)]
    named = {one.name: [*zip(kinds, (one.strategy, one.pruner), strict=True), *priced] for one in config.contenders}
    found = {(one.group, one.name): one for one in plugin_origins(set(chain(*named.values())))}
    return {
        name: tuple(found[group, plugin] for group, plugin in wanted if (group, plugin) in found)
        for name, wanted in named.items()
    }


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
    whole = (f"{one.name} of {one.distribution} {one.version}" if one.distribution else one.name for one in origins)
    return ", ".join(whole)


def write_plan(directory: StudyDirectory, config: StudyConfig, conditions: Sequence[Condition]) -> Mapping[str, object]:
    """Write the plan of a study in place of an earlier one; what was written.

    Raises:
        InputError: it cannot be written.
    """
    plan = plan_to_json(config, conditions)
    write_value(directory.plan, plan)
    return plan


def load_plan(directory: StudyDirectory) -> StudyPlan:
    """The plan of a study, as it was when it was run.

    Raises:
        InputError: it is missing, broken or of another format.
    """
    plan = read_plan(directory)
    try:
        return _parse_plan(plan)
    except InputError as error:
        raise InputError(str(error), source=str(directory.plan)) from error
    except (ValueError, KeyError, TypeError) as error:
        message = f"holds no plan that this version understands ({type(error).__name__}); run the study again"
        raise InputError(message, source=str(directory.plan)) from error


def _parse_plan(plan: Mapping[str, Any]) -> StudyPlan:
    """A plan from its JSON values."""
    if plan["format"] != FORMAT:
        message = f"format {plan['format']} is not {FORMAT}"
        raise ValueError(message)
    config = from_plain(StudyConfig, plan["config"])
    constants = {digest: _constants_from_json(data) for digest, data in from_plain(_Named, plan["constants"]).items()}
    settings = {setting.name: setting for setting in config.settings}
    workloads = {workload.name: workload for workload in config.workloads}
    if len(plan["conditions"]) > len(settings) * len(workloads):
        message = f"{len(plan['conditions'])} conditions of {len(settings)} settings and {len(workloads)} workloads"
        raise ValueError(message)
    conditions = tuple(
        Condition(
            settings[data["setting"]],
            workloads[data["workload"]],
            from_plain(Scenario, data["scenario"]),
            _space_from_json(data["space"]),
            constants[data["constants_digest"]],
        )
        for data in plan["conditions"]
    )
    by_key = {one.key: data for one, data in zip(conditions, plan["conditions"], strict=True)}
    return StudyPlan(
        config=config,
        conditions=conditions,
        evaluations_digests={key: str(data["evaluations_digest"]) for key, data in by_key.items()},
        problem_digests={key: str(data["problem_digest"]) for key, data in by_key.items()},
        provenance=from_plain(dict[str, str], plan["provenance"]),
        plugins=from_plain(_Origins, plan["plugins"]),
    )


def collect_provenance(origins: Mapping[str, Sequence[PluginOrigin]]) -> dict[str, str]:
    """Versions, machine and the code of plug-ins."""
    return {
        "phaze-opt": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        **{_code_row(origin): f"{origin.version}, {origin.digest[:12]}" for origin in chain(*origins.values())},
    }


def _code_row(origin: PluginOrigin) -> str:
    """A plug-in of this package counts with all others, as they share one digest."""
    is_built_in = origin.distribution == DISTRIBUTION
    return "code of the built-in strategies" if is_built_in else f"code of {origin.name} ({origin.distribution})"


def _condition_to_json(condition: Condition) -> dict[str, Any]:
    space = to_plain(SearchSpace, condition.space)
    # JSON has no infinity.
    space["max_area_um2"] = None if math.isinf(condition.space.max_area_um2) else condition.space.max_area_um2
    return {
        "setting": condition.setting.name,
        "workload": condition.workload.name,
        "evaluations_digest": condition.evaluations_digest,
        "problem_digest": condition.problem_digest,
        "constants_digest": condition.constants.digest,
        "scenario": to_plain(Scenario, condition.scenario),
        "space": space,
    }


def _space_from_json(data: Mapping[str, Any]) -> SearchSpace:
    cap = math.inf if data["max_area_um2"] is None else data["max_area_um2"]
    return from_plain(SearchSpace, {**data, "max_area_um2": cap})


def _constants_to_json(constants: Constants) -> dict[str, Any]:
    return {
        "entries": {key: to_plain(Constant, entry) for key, entry in constants.entries.items()},
        "options": {key: to_plain(EstimatorOption, entry) for key, entry in constants.options.items()},
    }


def _constants_from_json(data: Mapping[str, Any]) -> Constants:
    return Constants(
        from_plain(dict[str, Constant], data["entries"]), from_plain(dict[str, EstimatorOption], data["options"])
    )
