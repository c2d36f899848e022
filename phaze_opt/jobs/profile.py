"""The job of ``graph``: what the layers of a model are made of on a chip."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from phaze_opt.jobs.evaluate_request import training_length
from phaze_opt.jobs.options import ModelOptions
from phaze_opt.objective.scenario_options import (
    CHOICES,
    MACHINES,
    MAX_DEGREE,
    MAX_MICRO_BATCH,
    WORKLOAD,
    Kind,
    ScenarioOptions,
    declared,
    same,
)
from phaze_opt.record.suggestions import parse_word

if TYPE_CHECKING:
    from phaze_opt.cost.model_profile import ModelProfile
    from phaze_opt.graph.any_model import AnyModel

_choosing = partial(declared, panel=CHOICES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """How a model is run, and on what chip."""

    arch: str = declared(
        "phaze-tpu-v4", "A preset, a file or sizes inline: the chip.", Kind.TEXT, panel=WORKLOAD, values=MACHINES
    )
    network: str = same(ScenarioOptions, "network")
    allow_unknown: bool = same(ModelOptions, "allow_unknown")
    tensor_parallel: int = _choosing(1, "Tensor-parallel degree.", Kind.COUNT, high=MAX_DEGREE)
    micro_batch: int = _choosing(1, "Samples a micro-batch.", Kind.COUNT, high=MAX_MICRO_BATCH)
    sequence_length: int | None = same(ScenarioOptions, "sequence_length")
    optimizer: str = same(ScenarioOptions, "optimizer")
    attention: str = same(ScenarioOptions, "attention")
    estimator: str = same(ScenarioOptions, "estimator", default="calibrated")


def profile_on_chip(model: AnyModel, options: ProfileOptions, *, num_devices: int) -> ModelProfile:
    """A model on the chip that options name, in a network of so many.

    Raises:
        InputError: an option breaks a rule, or the model cannot be run so.
    """
    from phaze_opt.cost.model_profile import profile_model
    from phaze_opt.estimate.protocol import load_estimator
    from phaze_opt.graph.build import build_model_graph
    from phaze_opt.graph.operator import ShardingOptions
    from phaze_opt.hardware.networks import load_network
    from phaze_opt.hardware.presets import load_architecture
    from phaze_opt.hardware.silicon.silicon import constants_with
    from phaze_opt.objective.silicon_options import chosen_silicon
    from phaze_opt.workload.training import AttentionForm, Optimizer, TrainingSpec

    network = load_network(options.network, num_devices=num_devices)
    constants = constants_with(chosen_silicon(ScenarioOptions(network=options.network), network))
    training = TrainingSpec(
        micro_batch=options.micro_batch,
        sequence_length=training_length(model, options.sequence_length),
        global_batch=options.micro_batch,
        optimizer=parse_word(Optimizer, options.optimizer, source="--optimizer"),
        attention=parse_word(AttentionForm, options.attention, source="--attention"),
    )
    accelerator = load_architecture(options.arch, constants=constants)
    sharding = ShardingOptions(has_kv_replicas=True)
    return profile_model(
        model,
        training,
        build_model_graph(model, training, tensor_parallel=options.tensor_parallel, options=sharding),
        accelerator=accelerator if accelerator.name else replace(accelerator, name=options.arch),
        estimator=load_estimator(options.estimator).with_constants(constants),
        network=network,
    )
