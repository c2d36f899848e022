"""From the options that commands share to models, a scenario and a space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.cli.numbers import MAX_COUNT, MAX_HBM_GB, MAX_MICRO_BATCH, parse_integers
from phaze_opt.cli.options import DEFAULT_ESTIMATOR, DEFAULT_HBM_GB, DEFAULT_MICRO_BATCHES, DEFAULT_SCHEDULE_GAP
from phaze_opt.errors import InputError
from phaze_opt.record.spelling import parse_word

if TYPE_CHECKING:
    from phaze_opt.hardware.constants import Constants
    from phaze_opt.objective.scenario import Scenario
    from phaze_opt.space.search_space import SearchSpace
    from phaze_opt.workload.model import ModelSpec

LIMITED_NODES = 200
NO_NODE_LIMIT = 0


def load_models(names: str, *, option: str) -> tuple[ModelSpec, ...]:
    """Models by comma-separated zoo names or config files; each at most once."""
    from phaze_opt.workload.config import load_model

    words = [word.strip() for word in names.split(",")]
    if not all(words):
        message = f"'{names}' must be model names or config files separated by commas, none of them empty"
        raise InputError(message, source=option)
    repeated = sorted({word for word in words if words.count(word) > 1})
    if repeated:
        message = f"{', '.join(repeated)} is given twice; name each model once"
        raise InputError(message, source=option)
    return tuple(load_model(word) for word in words)


def build_scenario(
    models: tuple[ModelSpec, ...],
    *,
    devices: int,
    global_batch: int,
    sequence_length: int | None,
    network: str,
    optimizer: str,
    attention: str,
    exclusivity: str,
    recompute: str,
    tensor_parallel: str,
    is_sequence_parallel: bool,
    max_area_mm2: float | None,
    max_tdp_w: float | None,
    common: str = "arithmetic",
    schedule_gap: float = DEFAULT_SCHEDULE_GAP,
    estimator: str = DEFAULT_ESTIMATOR,
    constants: Constants,
) -> Scenario:
    """The scenario that a command's options describe.

    Raises:
        InputError: an option breaks a rule; the message names it.
    """
    from phaze_opt.hardware.network import Cluster
    from phaze_opt.hardware.networks import load_network
    from phaze_opt.objective.scenario import CommonMean, Scenario
    from phaze_opt.placement.problem import RecomputePolicy
    from phaze_opt.schedule.problem import Exclusivity
    from phaze_opt.workload.training import AttentionForm, Optimizer

    return Scenario(
        models=models,
        cluster=Cluster(num_devices=devices, network=load_network(network, num_devices=devices, constants=constants)),
        global_batch=global_batch,
        sequence_length=sequence_length,
        optimizer=parse_word(Optimizer, optimizer, source="--optimizer"),
        attention=parse_word(AttentionForm, attention, source="--attention"),
        exclusivity=parse_word(Exclusivity, exclusivity, source="--exclusivity"),
        recompute=parse_word(RecomputePolicy, recompute, source="--recompute"),
        tensor_parallel=parse_integers(tensor_parallel, option="--tensor-parallel", high=MAX_COUNT),
        is_sequence_parallel=is_sequence_parallel,
        common=parse_word(CommonMean, common, source="--common"),
        max_area_mm2=max_area_mm2,
        max_tdp_w=max_tdp_w,
        estimator=_check_estimator(estimator),
        schedule_gap=schedule_gap,
        schedule_nodes=LIMITED_NODES if schedule_gap > 0 else NO_NODE_LIMIT,
    )


def _check_estimator(name: str) -> str:
    """The name of an estimator that is installed."""
    from phaze_opt.plugins import PluginGroup, list_plugins
    from phaze_opt.record.spelling import suggest

    known = [entry.name for entry in list_plugins(PluginGroup.ESTIMATORS)]
    if name not in known:
        message = f"no estimator is named '{name}'; {suggest(name, known)}"
        raise InputError(message, source="--estimator")
    return name


def build_space(space: str | None, *, micro_batches: str | None, hbm_gb: str | None) -> SearchSpace:
    """Phaze's space joined with micro-batches and HBM sizes, or the space of a TOML file.

    Raises:
        InputError: a value breaks a rule, or the file is faulty.
    """
    from phaze_opt.space.search_space import load_space, phaze_space
    from phaze_opt.units import gib_to_bytes

    hbm_bytes = None
    if hbm_gb is not None or space is None:
        sizes = parse_integers(DEFAULT_HBM_GB if hbm_gb is None else hbm_gb, option="--hbm", high=MAX_HBM_GB)
        hbm_bytes = tuple(gib_to_bytes(size) for size in sizes)
    batches = None
    if micro_batches is not None or space is None:
        text = DEFAULT_MICRO_BATCHES if micro_batches is None else micro_batches
        batches = parse_integers(text, option="--micro-batch", high=MAX_MICRO_BATCH)
    if space is not None:
        return load_space(Path(space), hbm_bytes=hbm_bytes, micro_batches=batches)
    return phaze_space(hbm_bytes=hbm_bytes or (), micro_batches=batches or ())
