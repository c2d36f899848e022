"""`ParallelPlan`: devices, shards and micro-batches by hand; what no framework runs is refused."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from phaze_opt.errors import InputError
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.workload.plan import (
    ParallelPlan,
    PlanChoices,
    Recompute,
    chunk_sizes,
    chunked_cuts,
    nearest_cut,
    split_blocks,
)


def test_devices_shards_and_micro_batches() -> None:
    plan = ParallelPlan(tensor=4, pipeline=2, data=8, context=2, expert=4, micro_batch=3)
    assert plan.num_devices == 4 * 2 * 8 * 2
    assert (plan.shards, plan.expert_replicas, plan.expert_shards) == (16, 4, 4)
    assert plan.num_micro_batches(100) == 5
    assert ParallelPlan(data=8, state_shards=2, expert=2).shards == 2
    assert ParallelPlan(data=8, state_shards=2, expert=2).expert_shards == 2
    assert ParallelPlan(data=8, expert=8).expert_shards == 1


def test_experts_take_the_devices_of_a_stage() -> None:
    """Expert tensor x expert x replicas of the experts are tensor x context x data."""
    plan = ParallelPlan(tensor=4, data=6, context=2, expert=8, expert_tensor=2)
    assert (plan.expert_group, plan.expert_replicas, plan.expert_shards) == ((8, 2), 3, 3)
    assert ParallelPlan(tensor=4, data=2, expert=8, expert_tensor=1).expert_replicas == 1
    assert ParallelPlan(tensor=4, data=2, expert=2).expert_group == (2, 4)
    whole = ParallelPlan(tensor=4, data=2)
    assert (whole.expert_group, whole.expert_replicas, whole.has_expert_groups) == ((4, 1), 2, False)
    spread = ParallelPlan(tensor=4, data=2, expert_tensor=1, state_shards=2)
    assert (spread.expert_group, spread.expert_replicas, spread.expert_shards) == ((1, 1), 8, 2)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tensor": 0}, "tensor = 0 must be at least 1"),
        ({"zero": 4}, "zero = 4 must be 0, 1, 2 or 3"),
        ({"data": 4, "state_shards": 3}, "3 shards of the state must be 0"),
        ({"interleave": 2}, "interleave = 2 needs more than one pipeline stage"),
        ({"data": 2, "context": 2, "expert": 3}, r"expert degree 3 must divide 4 \(data x context\)"),
        (
            {"tensor": 4, "data": 2, "expert": 3, "expert_tensor": 2},
            r"must divide 4 \(tensor x data x context / expert tensor degree\)",
        ),
        ({"tensor": 4, "expert_tensor": 3}, "expert tensor degree 3 must be 1 or more and divide tensor degree 4"),
        ({"tensor": 4, "expert_tensor": -1}, "expert tensor degree -1 must be 1 or more and divide tensor degree 4"),
        (
            {"data": 12, "expert": 2, "zero": 1, "state_shards": 4},
            "4 shards of the state must divide the 6 replicas of experts",
        ),
        ({"pipeline": 2, "blocks": (3,)}, "blocks names 1 stages, not the 2"),
        ({"pipeline": 2, "blocks": (-1, 4)}, "must be at least 1 in every stage, 0 in the first and the last"),
        ({"pipeline": 3, "blocks": (2, 0, 2)}, "must be at least 1 in every stage, 0 in the first and the last"),
        ({"pipeline": 3, "stage_recompute": (Recompute.FULL,)}, "stage_recompute names 1 stages, not the 3"),
        (
            {"pipeline": 1, "recompute": Recompute.FULL, "stage_recompute": (Recompute.NONE,)},
            "recompute = full and stage_recompute are both given",
        ),
    ],
)
def test_what_no_framework_runs_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ParallelPlan(**fields)


def test_equal_stages_are_stated_the_short_way() -> None:
    """One statement for each plan, so that equal plans compare equal."""
    none, full = Recompute.NONE, Recompute.FULL
    plan = ParallelPlan(pipeline=3)
    assert plan.with_stages((3, 2, 2), (full,) * 3) == ParallelPlan(pipeline=3, recompute=full)
    assert plan.with_stages((2, 3, 2), (none,) * 3) == ParallelPlan(pipeline=3, blocks=(2, 3, 2))
    mixed = plan.with_stages((0, 3, 0), (full, none, none))
    assert mixed == ParallelPlan(pipeline=3, blocks=(0, 3, 0), stage_recompute=(full, none, none))
    assert plan.with_stages((1, 1, 0), (none,) * 3).blocks == (1, 1, 0), "more stages than blocks are never even"
    assert mixed.with_stages((1, 1, 1), (full,) * 3) == ParallelPlan(pipeline=3, recompute=full)
    assert (mixed.recomputes, plan.recomputes) == ((full, none, none), (none,) * 3)
    chunks = ParallelPlan(pipeline=2, interleave=3)
    assert chunks.with_stages((6, 6), (none,) * 2) == chunks
    assert chunks.with_stages((5, 5), (none,) * 2).blocks == (5, 5), "ends counted, not 10 blocks in even chunks"


def test_json_of_plans_leaves_out_cuts_that_are_not_stated() -> None:
    plan = ParallelPlan(pipeline=2)
    assert not {"blocks", "stage_recompute"} & set(to_plain(ParallelPlan, plan))
    cut = ParallelPlan(pipeline=2, blocks=(3, 1), stage_recompute=(Recompute.FULL, Recompute.NONE))
    assert from_plain(ParallelPlan, to_plain(ParallelPlan, cut)) == cut


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_equal_chunks_by_enumeration(stages: int, chunks: int) -> None:
    """Chunks of one chain in which embedding and head may count as a block, cut by hand."""
    for layers in range(1, 30):
        found = set()
        for embedding, head in ((0, 0), (1, 0), (0, 1), (1, 1)):
            chain = ["e"] * embedding + ["b"] * layers + ["h"] * head
            if len(chain) % (stages * chunks):
                continue
            size = len(chain) // (stages * chunks)
            pieces = [chain[at : at + size] for at in range(0, len(chain), size)]
            found.add(tuple(sum(each.count("b") for each in pieces[stage::stages]) for stage in range(stages)))
        assert set(chunked_cuts(layers, stages, chunks)) == found
    assert chunked_cuts(126, 16, 8) == ((7, *[8] * 14, 7),), "Llama 3 405B"
    assert chunked_cuts(12, stages, 1)[0] == split_blocks(12, stages)


def test_expert_tensor_degrees_are_kept() -> None:
    assert "expert_tensor" not in to_plain(ParallelPlan, ParallelPlan())
    for kind, field in ((ParallelPlan, 2), (PlanChoices, (0, 1))):
        assert from_plain(kind, to_plain(kind, kind())) == kind()
        named = replace(kind(tensor=2 if kind is ParallelPlan else (2,)), expert_tensor=field)
        assert from_plain(kind, to_plain(kind, named)) == named


@pytest.mark.parametrize("front", [1, 4])
def test_nearest_cuts_hold_every_block_as_evenly_as_they_can(front: int) -> None:
    """Of all ways to give chunks of a chain a number of blocks each, none has a smaller largest stage."""
    for layers, stages, chunks in product(range(4, 40, 3), (2, 3, 4), (1, 2, 3)):
        cut = nearest_cut(layers, stages, chunks, front=front)
        counted = layers + front + 1
        if counted < stages * chunks or front > counted // stages:
            continue
        assert sum(cut) == layers
        loads = [count + front * (at == 0) + (at == stages - 1) for at, count in enumerate(cut)]
        if cut not in chunked_cuts(layers, stages, chunks):
            assert max(loads) == -(-counted // stages)
            assert max(loads) - min(loads) <= 1
        sizes = chunk_sizes(cut, chunks)
        assert tuple(sum(sizes[stage::stages]) for stage in range(stages)) == cut
        assert max(max(sizes[stage::stages]) - min(sizes[stage::stages]) for stage in range(stages)) <= 1


def test_cuts_of_published_runs() -> None:
    """Llama 3.1 405B and Qwen3-235B count embedding and loss as blocks; DeepSeek-V3 has three dense layers in front."""
    assert nearest_cut(126, 8, 8) == (15, *[16] * 6, 15)
    assert nearest_cut(94, 8, 3) == (11, *[12] * 6, 11)
    assert nearest_cut(94, 4, 12) == (23, 24, 24, 23)
    assert nearest_cut(58, 16, 1, front=3) == (1, *[4] * 13, 3, 2)
    assert chunk_sizes((11, *[12] * 6, 11), 3) == (3, *[4] * 22, 3)
    assert nearest_cut(3, 4, 2) == (), "more chunks than blocks"
