"""From a study's settings and workloads to its conditions; everything that can be wrong with a plan is found here."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import product, starmap

from phaze_opt.errors import InputError
from phaze_opt.estimate.protocol import load_estimator
from phaze_opt.graph.any_model import load_any_model
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.network import MAX_DEVICES
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.silicon.silicon import DIE_PREFIX
from phaze_opt.objective.fusion_bounds import check_has_bounds
from phaze_opt.objective.goals import goal_directions, posed_for
from phaze_opt.objective.scenario import (
    OF_DEGREES,
    Scenario,
    build_scenario,
    build_space,
    form_of,
    planned_micro_batches,
)
from phaze_opt.objective.scenario_options import ScenarioOptions, SpaceOptions, declarations
from phaze_opt.objective.scheduled_plan import plans_of
from phaze_opt.objective.silicon_options import silicon_form
from phaze_opt.search.probe import PointBounder
from phaze_opt.search.run import check_pruner, prepare_loop
from phaze_opt.search.samplers.exhaustive import MOST_POINTS
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.study.config import Cell, Condition, Setting, StudyConfig, StudyWorkload, TruthForm, search_config

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,59}")
"""Names of studies, settings and contenders: file names hold them, separated by dots."""
WORKLOAD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+.-]{0,59}")
"""Names of workloads may hold dots, as those of models do."""
_FRACTION = "space.min_area_fraction"


Origin = Callable[[str, str, str], AbstractContextManager[None]]
"""Where parts of a plan were written, so that a fault names the place: a block whose `InputError` and `PluginError` are
about one key (empty for the part as a whole) of the ``study``, or of a ``setting``, ``workload`` or ``contender`` of a
name."""


def no_origin(*_: str) -> AbstractContextManager[None]:
    """A plan that was written in Python: faults stay as they are."""
    return nullcontext()


def resolve_study(config: StudyConfig, origin: Origin = no_origin) -> tuple[Condition, ...]:
    """The conditions of a study, settings before workloads, once every part of its plan is known to work.

    Strategies and pruners are loaded and started with their options; nothing is probed, evaluated or written.

    Raises:
        InputError: a name, value, file, model or option is wrong.
        PluginError: a strategy, pruner or estimator is unknown or fails to load.
    """
    _check_names(config, origin)
    _check_counts(config, origin)
    _check_questions(config, origin)
    _check_claims(config, origin)
    conditions = tuple(
        resolve_condition(setting, workload, origin) for setting in config.settings for workload in config.workloads
    )
    _check_contenders(config, conditions, origin)
    _check_enumeration(config, conditions, origin)
    return conditions


def _check_enumeration(config: StudyConfig, conditions: Sequence[Condition], origin: Origin) -> None:
    """Refuse to enumerate what is too large for it, or has no bounds."""
    for condition in conditions if config.judgement.truth is TruthForm.ENUMERATE else ():
        if condition.space.size > MOST_POINTS:
            with origin("statistics", "", "truth"):
                message = (
                    f"'enumerate' takes at most {MOST_POINTS:,} points and the space {condition.space.name} has "
                    f"{condition.space.size:,}; give certify"
                )
                raise InputError(message, key="truth")
        with origin("statistics", "", "truth"):
            check_has_bounds(condition.scenario)


def resolve_condition(setting: Setting, workload: StudyWorkload, origin: Origin) -> Condition:
    """One setting on one workload.

    Raises:
        InputError: a value of either is wrong.
    """
    _check_form(setting, origin)
    known = _resolve_constants(setting, origin)
    scenario = _resolve_scenario(setting, workload, known, origin)
    constants = _with_silicon(setting, scenario, known, origin)
    return Condition(setting, workload, scenario, _resolve_space(setting, scenario, constants, origin), constants)


def _check_form(setting: Setting, origin: Origin) -> None:
    """Refuse options that rule each other out, at the key of the one that is named."""
    with origin("setting", setting.name, ""):
        form_of(setting)
        silicon_form(setting, setting.space)


def plan_cells(config: StudyConfig, conditions: Iterable[Condition]) -> tuple[Cell, ...]:
    """The searches of a study: by condition, then contender, then seed."""
    return tuple(starmap(Cell, product(conditions, config.contenders, config.seeds)))


def _check_names(config: StudyConfig, origin: Origin) -> None:
    """Refuse empty axes, names that no file can have, and names given twice."""
    with origin("study", "", "name"):
        _check_name(config.name, NAME, what="study")
    for kind, parts in (("setting", config.settings), ("workload", config.workloads), ("contender", config.contenders)):
        if not parts:
            with origin("study", "", {"workload": "workloads", "contender": "strategies"}.get(kind, "")):
                message = f"the study has no {'strategy' if kind == 'contender' else kind}; give at least one"
                raise InputError(message)
        seen: dict[str, str] = {}
        for part in parts:
            with origin(kind, part.name, "name"):
                what = "strategy" if kind == "contender" else kind
                _check_name(part.name, WORKLOAD_NAME if kind == "workload" else NAME, what=what)
                _check_free(part.name, seen, what=what)
            seen[part.name.lower()] = part.name


def _check_name(name: str, form: re.Pattern[str], *, what: str) -> None:
    if not form.fullmatch(name):
        message = f"the name {name!r} of a {what} must be 1 to 60 letters, digits and dashes"
        raise InputError(message)


def _check_free(name: str, seen: Mapping[str, str], *, what: str) -> None:
    """Refuse a name that is taken, also where it differs in case alone: files of both may be one file."""
    other = seen.get(name.lower())
    if other is None:
        return
    message = f"the {what} '{name}' is there twice; give each its own name"
    if other != name:
        message = f"the {what} '{name}' differs from '{other}' in case only; give it another name, as files bear both"
    raise InputError(message)


def _check_questions(config: StudyConfig, origin: Origin) -> None:
    """Refuse questions that no setting or no workload of the study can answer."""
    has_single = any(len(goal_directions(setting.goal)) == 1 for setting in config.settings)
    if config.judgement.truth is TruthForm.ENUMERATE and not has_single:
        with origin("statistics", "", "truth"):
            truth = config.judgement.truth
            message = (
                f"'{truth}' finds the best value of one objective, and every setting has several; use certify, which "
                "proves fronts, or best-known"
            )
            raise InputError(message, key="truth")
    if config.generality is None:
        return
    with origin("generality", "", ""):
        if not has_single:
            message = "asks for the price in one objective, and every setting has several; leave it out"
            raise InputError(message, key="generality")
        num_models = sum(len(workload.models) == 1 for workload in config.workloads)
        if num_models < 2:
            message = (
                f"holds designs of single models against common ones, and the study has {num_models} workload"
                f"{'' if num_models == 1 else 's'} of one model; give at least two"
            )
            raise InputError(message, key="generality")


def _check_claims(config: StudyConfig, origin: Origin) -> None:
    """Refuse claims of settings that the study does not have, or that have several objectives."""
    single = {setting.name: len(goal_directions(setting.goal)) == 1 for setting in config.settings}
    for place, claim in enumerate(config.claims):
        for key in ("setting", "over"):
            name = getattr(claim, key)
            at = origin("claim", str(place), key)
            _require(name in single, at, f"no setting is named '{name}'; give one of {', '.join(single)}")
            fault = f"the setting '{name}' has several objectives; a claim is of one"
            _require(single.get(name, False), origin("claim", str(place), key), fault)


def _check_counts(config: StudyConfig, origin: Origin) -> None:
    """Refuse what no search and no statistic can be made of."""
    seeds, judgement = config.seeds, config.judgement
    at_seeds = partial(origin, "study", "", "seeds")
    _require(bool(seeds), at_seeds(), "a study needs at least one seed; give a positive number or a list of seeds")
    _require(len(set(seeds)) == len(seeds), at_seeds(), f"{list(seeds)} names a seed twice")
    for key, is_right, fault in (
        ("confidence", 0 < judgement.confidence < 1, f"{judgement.confidence} must lie between 0 and 1"),
        ("bootstrap", judgement.num_bootstrap >= 1, f"{judgement.num_bootstrap} must be a positive integer"),
        (
            "targets",
            all(0 < target < 1 for target in judgement.targets),
            f"{list(judgement.targets)} must be relative regrets between 0 and 1",
        ),
    ):
        _require(is_right, origin("statistics", "", key), fault, key=key)
    for workload in config.workloads:
        place = origin("workload", workload.name, "weight")
        _require(workload.weight > 0, place, f"{workload.weight} must be positive", key="weight")


def _require(is_right: bool, place: AbstractContextManager[None], fault: str, *, key: str | None = None) -> None:
    """Refuse a part of a plan that is not right, naming its place."""
    if not is_right:
        with place:
            raise InputError(fault, key=key)


def _resolve_constants(setting: Setting, origin: Origin) -> Constants:
    """The package's constants with the setting's values and choices in their place."""
    values = {k: v for k, v in setting.constants.items() if not isinstance(v, str) and not k.startswith(DIE_PREFIX)}
    choices = {key: value for key, value in setting.constants.items() if isinstance(value, str)}
    with origin("setting", setting.name, "constants"):
        return load_constants().with_overrides(values).with_options(choices)


def _with_silicon(setting: Setting, scenario: Scenario, known: Constants, origin: Origin) -> Constants:
    """Constants with the scenario's silicon; those of the die model are the package's own."""
    choices = {key: value for key, value in setting.constants.items() if isinstance(value, str)}
    with origin("setting", setting.name, "constants"):
        for key in setting.constants:
            if key.startswith(DIE_PREFIX):
                message = "decides which dies a space has, and is the package's own; leave it out"
                raise InputError(message, key=key)
        return scenario.constants_of(known).with_options(choices)


def _resolve_space(setting: Setting, scenario: Scenario, constants: Constants, origin: Origin) -> SearchSpace:
    """The points within the area budget."""
    for key, values in (("hbm_gb", setting.hbm_gb), ("micro_batches", setting.micro_batches)):
        is_right = all(value >= 1 for value in values)
        _require(is_right, origin("setting", setting.name, key), f"{list(values)} must be positive integers")
    with origin("setting", setting.name, "space"):
        options = SpaceOptions(micro_batch=setting.micro_batches, hbm_gb=setting.hbm_gb, space=setting.space)
        space = build_space(options, form_of(setting).plans, silicon=scenario.silicon)
        if _FRACTION in setting.constants and not setting.space:
            space = replace(space, min_area_fraction=constants.value(_FRACTION))
    if setting.max_area_mm2 is None:
        return space
    with origin("setting", setting.name, "max_area_mm2"):
        return space.restrict(max_area_mm2=setting.max_area_mm2)


def _resolve_scenario(setting: Setting, workload: StudyWorkload, constants: Constants, origin: Origin) -> Scenario:
    """Workload, cluster and choices."""
    with origin("workload", workload.name, "models"):
        if len(set(workload.models)) < len(workload.models):
            message = f"{', '.join(workload.models)} names a model twice"
            raise InputError(message)
        models = tuple(load_any_model(name) for name in workload.models)
    at_setting = partial(origin, "setting", setting.name)
    fault = f"{setting.devices} must be an integer from 1 to {MAX_DEVICES}"
    _require(1 <= setting.devices <= MAX_DEVICES, at_setting("devices"), fault)
    with at_setting("network"):
        network = load_network(setting.network, num_devices=setting.devices, constants=constants)
    is_positive = setting.max_tdp_w is None or setting.max_tdp_w > 0
    _require(is_positive, at_setting("max_tdp_w"), f"{setting.max_tdp_w} must be positive")
    with at_setting("estimator"):
        load_estimator(form_of(setting).estimator)
    with at_setting("space"):
        batches = planned_micro_batches(SpaceOptions(micro_batch=setting.micro_batches, space=setting.space))
    with at_setting(""):
        scenario = build_scenario(
            setting, models, network=network, common=workload.common, micro_batches=batches, space=setting.space
        )
        _check_plans(setting, scenario)
        return posed_for(scenario, setting.goal)


def _check_plans(setting: Setting, scenario: Scenario) -> None:
    """Refuse degrees and stages that leave a model no plan, where any are given."""
    known = declarations(ScenarioOptions)
    if scenario.plans is None or all(getattr(setting, name) == known[name].default for name in OF_DEGREES):
        return
    for model in scenario.models:
        plans_of(scenario, model)


def _check_contenders(config: StudyConfig, conditions: tuple[Condition, ...], origin: Origin) -> None:
    """Load and start every strategy and pruner with its options, once for each goal and space."""
    kinds = {(condition.goal, condition.space.digest): condition for condition in reversed(conditions)}
    for contender in config.contenders:
        has_pruner = bool(contender.pruner or not contender.pruner_options)
        place = origin("contender", contender.name, "pruner_options")
        _require(has_pruner, place, "are there without a pruner; name one, or leave them out")
        with origin("contender", contender.name, "pruner"):
            for condition in conditions:
                check_pruner(contender.pruner, condition.scenario)
        for condition in kinds.values():
            for seed in config.seeds:
                with origin("contender", contender.name, ""):
                    start_config = search_config(config, Cell(condition, contender, seed))
            with origin("contender", contender.name, "options"):
                prepare_loop(start_config, "", space=condition.space, build_bounder=_no_bounder)


def _no_bounder() -> PointBounder:
    message = "a strategy or pruner probes when it starts; it may only when it is asked"
    raise InputError(message)
