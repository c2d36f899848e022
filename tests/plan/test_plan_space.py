"""Plans that a model, a cluster and a batch admit."""

from dataclasses import replace
from itertools import product

import pytest
from kits.plain_plans import plain_plans

from phaze_opt.errors import InputError
from phaze_opt.plan.plan_space import explain_no_plan, list_plans, plan_obstacle
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.training import TrainingSpec

BERT = load_model("bert-large")
TRAINING = TrainingSpec(micro_batch=1, sequence_length=512, global_batch=64)


def test_equals_brute_force_over_all_degrees() -> None:
    """Every plan over 16 devices that passes `plan_obstacle`, found by trying all numbers."""
    choices = PlanChoices(tensor=(1, 2, 4), interleave=(1, 2), zero=(0, 1), micro_batch=(1, 3))
    found = list(list_plans(BERT, TRAINING, num_devices=16, choices=choices))
    wanted = set()
    fields = product((1, 2, 4), range(1, 17), range(1, 17), (1, 2), (0, 1), (1, 3), Recompute)
    for tensor, pipeline, data, interleave, zero, micro_batch, recompute in fields:
        if tensor * pipeline * data != 16 or (interleave > 1 and pipeline == 1) or (zero and data == 1):
            continue
        plan = ParallelPlan(
            tensor=tensor,
            pipeline=pipeline,
            data=data,
            interleave=interleave,
            zero=zero,
            micro_batch=micro_batch,
            recompute=recompute,
            is_sequence_parallel=tensor > 1,
        )
        if plan_obstacle(BERT, TRAINING, plan) is None:
            wanted.add(plan)
    assert len(found) == len(set(found))
    assert set(found) == wanted


@pytest.mark.parametrize(
    ("name", "num_devices", "choices"),
    [
        ("mixtral-8x7b", 48, PlanChoices(expert=(1, 2, 3, 8), zero=(0, 1, 3), interleave=(1, 2, 4), context=(1, 2))),
        ("mixtral-8x7b", 16, PlanChoices(expert=(1, 2, 3, 8), zero=(0, 1), expert_tensor=(0, 1, 2, 3, 4, 8, -1))),
        ("mixtral-8x7b", 24, PlanChoices(expert=(4, 2), zero=(3, 1), expert_tensor=(2, 1), context=(1, 3))),
        ("gpt2-xl", 60, PlanChoices(tensor=(1, 5), zero=(2, 0), state_shards=(0, 2, 3, 4), interleave=(1, 2, 3))),
        ("bert-large", 64, PlanChoices(data=(1, 3, 8), micro_batch=(1, 3, 5, 1 << 40), pipeline=(1, 5, 64, 0, -1))),
        (
            "bert-large",
            8,
            PlanChoices(zero=(1, 4, -1), state_shards=(2, -2), context=(3, 4), is_sequence_parallel=False),
        ),
    ],
)
def test_lists_what_trying_plans_one_by_one_lists(name: str, num_devices: int, choices: PlanChoices) -> None:
    """In the same order, with values that no plan may have among them."""
    model, training = load_model(name), replace(TRAINING, global_batch=240)
    found = list_plans(model, training, num_devices=num_devices, choices=choices)
    assert list(found) == list(plain_plans(model, training, num_devices=num_devices, choices=choices))
    assert len(found) > 20 or num_devices == 8


def test_no_choice_leaves_no_plan() -> None:
    for choices in (PlanChoices(zero=()), PlanChoices(tensor=()), PlanChoices(pipeline=(17,))):
        assert len(list_plans(BERT, TRAINING, num_devices=16, choices=choices)) == 0


def test_stages_of_zero_that_shard_nothing_are_tried_once() -> None:
    """One replica has nothing to share, and without ZeRO there are no shards; whatever differs is kept."""
    one = PlanChoices(tensor=(1,), pipeline=(4,), micro_batch=(1,), recompute=(Recompute.NONE,), zero=(2, 0, 3))
    assert [plan.zero for plan in list_plans(BERT, TRAINING, num_devices=4, choices=one)] == [2]
    assert [plan.zero for plan in list_plans(BERT, TRAINING, num_devices=8, choices=one)] == [2, 0, 3]
    hybrid = replace(one, zero=(0, 1), state_shards=(0, 2))
    found = [(plan.zero, plan.state_shards) for plan in list_plans(BERT, TRAINING, num_devices=16, choices=hybrid)]
    assert found == [(0, 0), (1, 0), (1, 2)]


def test_free_experts_are_split_by_the_group_or_spread_over_it_whole() -> None:
    """Not copied within a tensor group, and not said twice; what is listed is tried."""
    mixtral = load_model("mixtral-8x7b")
    fixed = PlanChoices(
        tensor=(1, 4), pipeline=(4,), micro_batch=(1,), recompute=(Recompute.NONE,), expert=(1, 2, 4, 8)
    )

    def found(**more) -> set[tuple[int, int, int]]:
        plans = list_plans(mixtral, TRAINING, num_devices=64, choices=replace(fixed, **more))
        return {(plan.tensor, plan.expert, plan.expert_tensor) for plan in plans}

    plain = {(t, e, 0) for t in (1, 4) for e in (1, 2, 4, 8) if (t, e) != (4, 8)}
    assert found() == plain
    assert found(expert_tensor=()) == plain | {(4, 8, 1)}
    assert found(expert_tensor=(0, 1)) == plain | {(4, e, 1) for e in (1, 2, 8)}
    assert found(expert_tensor=(), expert=(4, 8)) == {(1, 4, 0), (1, 8, 0), (4, 4, 0), (4, 4, 1), (4, 8, 1)}
    assert found(expert_tensor=(2,)) == {(4, e, 2) for e in (1, 2, 4, 8)}
    bert = list_plans(BERT, TRAINING, num_devices=64, choices=replace(fixed, expert=(1,), expert_tensor=()))
    assert {plan.expert_tensor for plan in bert} == {0}


def test_free_degrees_leave_no_room_for_another_stage_or_replica() -> None:
    fixed = PlanChoices(tensor=(2,), pipeline=(3,), data=(2,), micro_batch=(1,), recompute=(Recompute.NONE,))
    assert [plan.num_devices for plan in list_plans(BERT, TRAINING, num_devices=16, choices=fixed)] == [12]
    free = PlanChoices(tensor=(2,), micro_batch=(1,), recompute=(Recompute.NONE,))
    training = replace(TRAINING, global_batch=192)
    plans = list(list_plans(BERT, training, num_devices=24, choices=free))
    assert {(plan.pipeline, plan.data) for plan in plans} == {(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)}
    # 13 devices, a batch of 192: twelve replicas and an idle device, or two replicas of six stages, and so on.
    plans = list(list_plans(BERT, training, num_devices=26, choices=free))
    assert {(plan.pipeline, plan.data) for plan in plans} == {(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (13, 1)}


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (ParallelPlan(tensor=3), "attention heads"),
        (ParallelPlan(context=3), "do not divide into 3 context shards"),
        (ParallelPlan(pipeline=25), "25 model chunks exceed the 24 blocks"),
        (ParallelPlan(pipeline=5, interleave=2), "do not divide into 5 stages of 2 chunks"),
        (ParallelPlan(pipeline=2, blocks=(12, 11)), "have 23, not the 24"),
        (ParallelPlan(pipeline=2, interleave=2, blocks=(13, 11)), "are not 2 equal chunks each, nor the nearest"),
        (ParallelPlan(data=65), "65 replicas of 1 sequence need a global batch of 65"),
        (ParallelPlan(pipeline=2, interleave=2, data=64), "multiples of 2 stages"),
        (ParallelPlan(data=15), "64 does not divide into 15 replicas of 1 sequence; give 60 or 75"),
        (ParallelPlan(data=2, micro_batch=5), "64 does not divide into 2 replicas of 5 sequences; give 60 or 70"),
    ],
)
def test_obstacles_are_sentences(plan: ParallelPlan, words: str) -> None:
    assert words in str(plan_obstacle(BERT, TRAINING, plan))


def test_explains_why_nothing_is_left() -> None:
    def explain(choices: PlanChoices) -> str:
        assert not list(list_plans(BERT, TRAINING, num_devices=16, choices=choices))
        return explain_no_plan(BERT, TRAINING, num_devices=16, choices=choices).sentence

    assert "takes 32 devices of 16" in explain(PlanChoices(tensor=(4,), pipeline=(8,)))
    assert "attention heads" in explain(PlanChoices(tensor=(3,), data=(1,), pipeline=(1,)))
    assert "3 shards of the state" in explain(PlanChoices(tensor=(1,), pipeline=(2,), zero=(3,), state_shards=(3,)))
    assert "global batch" in explain(PlanChoices(tensor=(1,), micro_batch=(128,)))
    uneven = PlanChoices(tensor=(1, 2, 4), pipeline=(2,), micro_batch=(7,))
    assert explain(uneven) == "a global batch of 64 does not divide into 1 replica of 7 sequences; give 63 or 70"


def test_batches_that_leave_replicas_unequal_are_skipped() -> None:
    """Every plan gives all replicas whole micro-batches, as many each; with a batch of 60 over 16 devices few do."""
    training = replace(TRAINING, global_batch=60)
    found = list(list_plans(BERT, training, num_devices=16, choices=PlanChoices()))
    assert all(60 % (plan.data * plan.micro_batch) == 0 for plan in found)
    assert {plan.data for plan in found if plan.tensor == plan.pipeline == plan.micro_batch == 1} == {15}


def test_no_degree_below_one() -> None:
    with pytest.raises(InputError, match="pipeline = 0 must be at least 1"):
        ParallelPlan(pipeline=0)


def test_cuts_that_cannot_be_even() -> None:
    """Without them as before; with them each set of degrees once, or once for each way to cut equal chunks."""
    model, training = replace(BERT, num_layers=14), TRAINING
    fixed = {"tensor": (1,), "micro_batch": (1,), "recompute": (Recompute.NONE,), "interleave": (1, 2, 4)}

    def plans(**given: object) -> list[ParallelPlan]:
        choices = PlanChoices(**{**fixed, **given})
        return list(list_plans(model, training, num_devices=16, choices=choices))

    even, cut = plans(), plans(has_cuts=True)
    assert not [plan for plan in even if plan.blocks]
    assert [plan for plan in cut if not plan.blocks] == even
    found = {(plan.pipeline, plan.interleave): plan.blocks for plan in cut if plan.blocks}
    assert found == {
        (4, 4): (3, 4, 4, 3),
        (8, 2): (1, *[2] * 6, 1),
        (2, 2): (7, 7),
        (2, 4): (7, 7),
        (4, 2): (3, 4, 4, 3),
        (16, 1): (0, *[1] * 14, 0),
    }
    assert len(found) == len(cut) - len(even)
    assert len(set(cut)) == len(cut)
