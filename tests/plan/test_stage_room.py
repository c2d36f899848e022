"""How many blocks the stages of many sets of degrees hold: equal to trying every candidate of each set alone."""

from dataclasses import replace

import numpy as np
import pytest
from kits.steps import SMALL_MODEL, serial_times

from phaze_opt.cost.compiled_step import CompiledStep
from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.plan.optimum import free_degrees
from phaze_opt.plan.plan_degrees import PlanDegrees
from phaze_opt.plan.plan_search import Machine
from phaze_opt.plan.stage_room import fitting_stages, least_memory_bytes
from phaze_opt.workload.plan import PlanChoices, Recompute
from phaze_opt.workload.plan_columns import RECOMPUTES, number_rows
from phaze_opt.workload.software import StackMemory, TrainingStack
from phaze_opt.workload.training import TrainingSpec

NETWORK = Network(
    "nodes", (NetworkDimension(Topology.SWITCH, 4, 100e9, 1e-6), NetworkDimension(Topology.SWITCH, 4, 10e9, 5e-6))
)
TRAINING = TrainingSpec(micro_batch=1, sequence_length=256, global_batch=16)
MODEL = replace(SMALL_MODEL, num_layers=6, num_experts=4, num_active_experts=2)
FREE = PlanChoices((1, 2), (1, 2, 3, 4, 8), interleave=(1, 2), micro_batch=(1, 4), zero=(0, 1, 3), expert=(1, 2))
GIVEN = PlanChoices(
    (1, 2), micro_batch=(1, 2), zero=(1, 2), blocks=(3, 1, 2), stage_recompute=(Recompute.FULL, *[Recompute.NONE] * 2)
)
SOFTWARE = {
    "ideal": {},
    "on the host": {"keeps_on_host": True, "logit_bytes": 4},
    "heavy": {
        "logit_bytes": 14,
        "memory": StackMemory(
            staged_gradient_bytes=4,
            kept_operators=("attention", "mlp_up"),
            kept_twice=("mlp_norm",),
            bucket_bytes=1000,
            keeps_outputs=True,
            context_bytes=5000.0,
            group_bytes=300.0,
        ),
    },
}


class NoClock:
    """Memory needs no times."""

    def times(self, step: CompiledStep) -> LayerTimes:
        return serial_times(step, np.zeros(len(step.operators)))


def degrees_of(choices: PlanChoices, num_devices: int, **software) -> PlanDegrees:
    machine = Machine(NoClock(), 1e15, NETWORK, TrainingStack(**software))
    return free_degrees(MODEL, TRAINING, num_devices=num_devices, choices=choices, machine=machine)


def held_alone(degrees: PlanDegrees, number: int, memory_bytes: float) -> list[int]:
    """The most blocks of one set by all its candidates."""
    sizes, has_free_cuts = np.array(degrees.sizes(number)), degrees.has_free_cuts
    step = degrees.step(number)
    allowed = fitting_stages(step, sizes, memory_bytes, degrees.recomputes, has_free_cuts=has_free_cuts)
    held = [
        sum(
            max((size for size, may in zip(sizes, stage, strict=True) if may[: last + 1].any()), default=0)
            for stage in allowed
        )
        for last in range(len(RECOMPUTES))
    ]
    is_whole = all(stage.any() for stage in allowed) and held[-1] >= MODEL.num_layers
    return held if is_whole else [0] * len(RECOMPUTES)


def least_alone(degrees: PlanDegrees) -> list[float]:
    return [
        least_memory_bytes(
            degrees.step(each), degrees.sizes(each), degrees.recomputes, has_free_cuts=degrees.has_free_cuts
        )
        for each in range(len(degrees))
    ]


@pytest.mark.parametrize("software", SOFTWARE)
@pytest.mark.parametrize(
    ("choices", "num_devices"),
    [(FREE, 16), (replace(FREE, recompute=(Recompute.FULL, Recompute.NONE)), 24), (GIVEN, 12)],
    ids=["free", "two ways", "given"],
)
def test_sets_together_hold_what_each_does_alone(choices, num_devices, software):
    degrees = degrees_of(choices, num_devices, **SOFTWARE[software])
    least = least_alone(degrees)
    assert degrees.least_bytes == min(least)
    found = []
    for memory_bytes in (*np.quantile(least, [0.0, 0.3, 0.6, 0.9]), 1.5 * max(least), 1e15):
        alone = [held_alone(degrees, number, memory_bytes) for number in range(len(degrees))]
        assert degrees.most_blocks(memory_bytes).tolist() == alone
        assert degrees.may_fit(memory_bytes).tolist() == [each <= memory_bytes for each in least]
        found += alone
    assert len({tuple(each) for each in found}) > 1, "memory bites"
    assert not degrees.may_fit(np.nextafter(min(least), 0.0)).any()


def test_rows_are_numbered_as_numpy_numbers_them():
    table = np.random.default_rng(0).integers(-2, 2, (200, 4))
    _, expected = np.unique(table, axis=0, return_inverse=True)
    assert number_rows(list(table.T)).tolist() == expected.reshape(-1).tolist()
    assert number_rows([np.zeros(0, np.int64)]).tolist() == []
