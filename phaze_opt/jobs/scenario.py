"""From the options that commands share to models, a scenario, a space and a directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.errors import InputError, NothingLeftError
from phaze_opt.record.input_files import check_directory
from phaze_opt.record.suggestions import parse_word

if TYPE_CHECKING:
    from phaze_opt.graph.any_model import AnyModel
    from phaze_opt.hardware.constants import Constants
    from phaze_opt.hardware.fitted import FittedConstants
    from phaze_opt.jobs.options import ModelOptions
    from phaze_opt.objective.scenario import Scenario
    from phaze_opt.objective.scenario_options import ScenarioOptions, SpaceOptions
    from phaze_opt.space.search_space import SearchSpace


def load_models(options: ModelOptions, *, is_heterogeneous: bool = False) -> tuple[AnyModel, ...]:
    """The models that exactly one of --model and --models names.

    Raises:
        InputError: both options are given or none, or a name is wrong.
    """
    if bool(options.model) == bool(options.models):
        message = "give either --model (one) or --models (several, one design for all), and not both"
        raise InputError(message)
    if is_heterogeneous and options.models:
        message = "needs one --model: stages of a pipeline belong to one model"
        raise InputError(message, source="--heterogeneous")
    source = "--model" if options.model else "--models"
    return named_models(options.names, source=source, allow_unknown=options.allow_unknown)


def named_models(names: str, *, source: str, allow_unknown: bool = False) -> tuple[AnyModel, ...]:
    """Models by comma-separated zoo names or config files; each at most once.

    Raises:
        InputError: a name is empty, repeated or unknown.
    """
    from phaze_opt.graph.any_model import load_any_model

    words = [word.strip() for word in names.split(",")]
    if not all(words):
        message = f"'{names}' must be model names or config files separated by commas, none of them empty"
        raise InputError(message, source=source)
    repeated = sorted({word for word in words if words.count(word) > 1})
    if repeated:
        message = f"{', '.join(repeated)} is given twice; name each model once"
        raise InputError(message, source=source)
    return tuple(load_any_model(word, allow_unknown=allow_unknown) for word in words)


def load_scenario(
    options: ScenarioOptions,
    models: tuple[AnyModel, ...],
    *,
    common: str,
    constants: Constants,
    space: SpaceOptions,
    fitted: FittedConstants | None = None,
) -> Scenario:
    """The scenario that a command's options describe; of full plans, with the micro-batches of its space.

    ``fitted`` are constants of networks' curves; the package's own unless given.

    Raises:
        InputError: an option breaks a rule; the message names it.
    """
    from phaze_opt.hardware.networks import load_network
    from phaze_opt.objective.scenario import CommonMean, build_scenario, planned_micro_batches

    network = load_network(options.network, num_devices=options.devices, constants=constants, fitted=fitted)
    mean = parse_word(CommonMean, common, source="--common")
    return build_scenario(
        options, models, network=network, common=mean, micro_batches=planned_micro_batches(space), space=space.space
    )


def load_space(options: SpaceOptions, scenario: Scenario) -> SearchSpace:
    """The space that the options describe, within the scenario's area budget.

    Raises:
        NothingLeftError: no design is within it.
    """
    from phaze_opt.objective.scenario import PlanSpace, build_space

    plans = PlanSpace.PHAZE if scenario.plans is None else PlanSpace.FULL
    space = build_space(options, plans, silicon=scenario.silicon)
    if scenario.max_area_mm2 is None:
        return space
    try:
        return space.restrict(max_area_mm2=scenario.max_area_mm2)
    except InputError as error:  # the option's parser lets positive numbers through only: nothing is left
        raise NothingLeftError(str(error), key="max_area_mm2") from error


def check_machines(names: Sequence[str], scenario: Scenario, constants: Constants) -> None:
    """See that there are machines or designs of the names, as answers have them, before anything runs.

    Raises:
        InputError: one is none, or cannot be built of the silicon in force.
    """
    from phaze_opt.hardware.presets import find_machine, load_architecture

    for name in names:
        try:
            if scenario.plans is None or find_machine(name) is None:
                load_architecture(name, constants=constants)
        except InputError as error:
            raise InputError(str(error), source="--baseline") from error


def runs_directory(work_dir: Path) -> Path:
    """The directory of journals, once the working directory is known to be one."""
    check_directory(work_dir, source="--work-dir")
    return work_dir / "phaze-opt-runs"
