"""No stages and replicas that are given beat those that are free, on drawn clusters, batches, models and machines."""

import os
import random
from dataclasses import replace
from functools import cache

import pytest
from kits.steps import SMALL_MODEL

from phaze_opt.cost.clocks import LayerClock, MachineClock, ScheduleClock
from phaze_opt.cost.stacks import load_stack
from phaze_opt.errors import InputError
from phaze_opt.estimate.guarded import load_estimator
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.best_placement import schedule_options
from phaze_opt.plan.left_out import leave_out
from phaze_opt.plan.optimum import optimal_plan
from phaze_opt.plan.plan_search import Machine, rank_plans
from phaze_opt.plan.plan_space import list_plans, resolved
from phaze_opt.plan.plan_spreads import NUM_ENDS, free_spreads
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.workload.plan import PlanChoices, Recompute, divisors, free_micro_batches
from phaze_opt.workload.training import TrainingSpec

DRAWN = int(os.environ.get("DRAWN", "4"))
AT_ONCE = 20
EXPERTS = replace(SMALL_MODEL, num_experts=4, num_active_experts=2, name="experts")
DESIGNS = (
    "num_tc=24,num_vc=24,tc_width=128,tc_depth=128,glb_mb=24,glb_bytes_per_cycle=6144,hbm_stacks=4",
    "num_tc=2,num_vc=8,tc_width=128,tc_depth=128,glb_mb=4,glb_bytes_per_cycle=1024,hbm_stacks=2",
)
DEVICES = ("h100", "v100", "tpu-v5p")
SOFTWARE = ("ideal", "maxtext", "megatron-core", "megatron-2021", "torchtitan", "dualpipe", "nanotron")


@cache
def clock_of(name: str) -> LayerClock:
    """Schedules that a design's layers have had are not solved again."""
    if name in DEVICES:
        return MachineClock(load_device(name), ComputePath.BF16, load_fitted())
    options, constants = schedule_options(0.5, 1), load_constants()
    chip, estimator = load_architecture(name, constants=constants), load_estimator("calibrated")
    return ScheduleClock(
        chip, estimator=estimator.with_constants(constants), exclusivity=Exclusivity.CHIP, options=options
    )


def draw(rng: random.Random):
    """A model, its training, devices, choices and a machine, none of which need go together."""
    experts = rng.random() < 0.1  # noqa: PLR2004
    model = replace(EXPERTS if experts else SMALL_MODEL, num_layers=rng.randint(1, 6))
    devices, clock = int(2001 ** rng.random()), rng.choice((*DEVICES, *DESIGNS))
    batch = rng.choice((rng.randint(1, 64), 2 ** rng.randint(0, 10), 96, 360))
    training = TrainingSpec(micro_batch=1, sequence_length=rng.choice((64, 256)), global_batch=batch)
    choices = PlanChoices(
        tensor=rng.choice(((1, 2, 4, 8), (1, 2), (4,))),
        interleave=rng.choice(((), (), (1,))),
        micro_batch=rng.choice((free_micro_batches(batch, devices), (1, 3, 8))),
        zero=rng.choice(((0, 1), (0,), (1, 3), (2,))),
        recompute=rng.choice(((Recompute.NONE, Recompute.FULL), (Recompute.NONE,))),
        **({"expert": (), "expert_tensor": ()} if experts else {}),
    )
    network = load_network(rng.choice(("two-level", "dgx-h100", "pcie4-server", "tpu-v4-torus")), num_devices=devices)
    stack = load_stack(rng.choice(SOFTWARE), load_fitted())
    return model, training, devices, choices, Machine(clock_of(clock), 10.0 ** rng.uniform(7.5, 11), network, stack)


@pytest.mark.parametrize("part", range(-(-DRAWN // AT_ONCE)))
def test_no_given_stages_and_replicas_beat_free_ones(part):
    """The fastest plan over free cuts, and over even ones, is that of all stages and replicas that could be given."""
    rng, found = random.Random(part), 0
    for _ in range(min(AT_ONCE, DRAWN - part * AT_ONCE)):
        model, training, devices, choices, machine = draw(rng)
        job, number = {"num_devices": devices, "choices": choices}, model.num_layers + NUM_ENDS
        given = replace(choices, pipeline=tuple(range(1, number + 1)), data=divisors(training.global_batch))
        try:
            free = optimal_plan(model, training, **job, machine=machine).best
        except InputError:
            free = None
        try:
            best = optimal_plan(model, training, num_devices=devices, choices=given, machine=machine).best
        except InputError:
            best = None
        assert (free is None) == (best is None)
        if free is not None and best is not None:
            found += 1
            assert free.time.seconds <= best.time.seconds * (1.0 + 1e-9)
        every = free_spreads(model, devices, resolved(choices, model), training.global_batch)
        plans = list_plans(model, training, **job, stack=machine.stack, spreads=every)
        if len(plans):
            others = leave_out(model, training, **job, network=machine.network, stack=machine.stack)
            first = list_plans(model, training, **job, stack=machine.stack)
            ranked = rank_plans(model, training, first, machine=machine, others=others).ranked
            whole = rank_plans(model, training, plans, machine=machine).ranked
            assert bool(ranked) == bool(whole)
            assert not whole or ranked[0].time.seconds <= whole[0].time.seconds * (1.0 + 1e-9)
    assert found
