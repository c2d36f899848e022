"""`ParallelPlan`: devices, shards and micro-batches by hand; what no framework runs is refused."""

import pytest

from phaze_opt.errors import InputError
from phaze_opt.workload.plan import ParallelPlan


def test_devices_shards_and_micro_batches() -> None:
    plan = ParallelPlan(tensor=4, pipeline=2, data=8, context=2, expert=4, micro_batch=3)
    assert plan.num_devices == 4 * 2 * 8 * 2
    assert (plan.shards, plan.expert_replicas, plan.expert_shards) == (16, 4, 4)
    assert plan.num_micro_batches(100) == 5
    assert ParallelPlan(data=8, state_shards=2, expert=2).shards == 2
    assert ParallelPlan(data=8, state_shards=2, expert=2).expert_shards == 2
    assert ParallelPlan(data=8, expert=8).expert_shards == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tensor": 0}, "tensor = 0 must be at least 1"),
        ({"zero": 4}, "zero = 4 must be 0, 1, 2 or 3"),
        ({"data": 4, "state_shards": 3}, "state_shards = 3 must be 0"),
        ({"interleave": 2}, "interleave = 2 needs more than one pipeline stage"),
        ({"data": 2, "context": 2, "expert": 3}, "expert = 3 must divide data x context = 4"),
    ],
)
def test_what_no_framework_runs_is_refused(fields: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ParallelPlan(**fields)
