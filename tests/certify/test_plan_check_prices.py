"""The checker's plans, memory and prices against those that plans are found by: two codes, one number."""

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from kits.fewer_cases import every
from kits.planned import WIDE, checker, compiled, draw_times, planned_scenario, prover_loads

from phaze_opt.certify.check.plans.admitted import admitted_plans
from phaze_opt.certify.check.plans.layer_sets import key_of
from phaze_opt.certify.check.plans.left_out import other_spreads
from phaze_opt.certify.check.plans.plan_check import StagedPlan
from phaze_opt.cost.compiled_step import compile_step
from phaze_opt.cost.plan_memory import plan_memory
from phaze_opt.cost.stacks import list_stacks, load_stack
from phaze_opt.cost.step_time import lower_s, step_times
from phaze_opt.graph.attention import is_attention_core
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Chunking, Network, NetworkDimension, Topology
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.compile import compile_steps
from phaze_opt.plan.left_out import leave_out
from phaze_opt.plan.plan_search import step_memory
from phaze_opt.plan.plan_space import list_plans, plan_obstacle
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.software import LaunchRule, RankOrder, launch_sizes
from phaze_opt.workload.sparsity import Pattern, SparseWeights
from phaze_opt.workload.training import TrainingSpec

EXACT = 1e-12
FLAT = Network("flat", (NetworkDimension(Topology.FULLY_CONNECTED, 32, 50e9, 2e-6),))
CHUNKED = load_network("two-level", num_devices=32).with_chunking(Chunking.THEMIS)
NETWORKS = ["two-level", "dgx-a100", "mi300x-platform", "tpu-v5p-torus", FLAT, CHUNKED]
MODELS = ["gpt2-xl", "llama-3-8b", "mixtral-8x7b", "bert-large", "opt-350m"]


def some(rng, found, count):
    return [found[at] for at in sorted(rng.choice(len(found), size=min(count, len(found)), replace=False))]


def part_of(rng, choices, **kept):
    """The first tensor degree, another, and one each of what else layers are built for: all of them over many cases."""
    parts = {name: tuple(some(rng, getattr(choices, name), 1)) for name in ("context", "micro_batch")}
    tensor = (choices.tensor[0], *some(rng, choices.tensor[1:], 1))
    return replace(choices, **{"tensor": tensor, **parts, **kept})


def random_cuts(rng, plan, num_layers):
    """Blocks of each stage, ends maybe without any, and a recomputation of each."""
    if plan.interleave > 1 or plan.pipeline == 1:
        return None
    inner = np.ones(plan.pipeline, dtype=int)
    inner[[0, -1]] = 0
    spare = num_layers - inner.sum()
    blocks = inner + rng.multinomial(spare, np.full(plan.pipeline, 1 / plan.pipeline))
    return StagedPlan(
        plan, tuple(blocks.tolist()), tuple(list(Recompute)[at] for at in rng.integers(0, 3, plan.pipeline))
    )


def admitted_of(scenario, *, has_cuts=False, spreads=None):
    """The checker's plans, without the layers that they are priced by."""
    model = scenario.models[0]
    return admitted_plans(
        model,
        scenario.plans,
        num_devices=scenario.cluster.num_devices,
        global_batch=scenario.global_batch,
        sequence_length=scenario.training_of(model, 1).sequence_length,
        rules=scenario.stack.rules,
        has_cuts=has_cuts,
        spreads=spreads,
    )


SPACES = [
    (32, 128, WIDE),
    (24, 96, replace(WIDE, tensor=(1, 2, 3, 4), micro_batch=(1, 3), zero=(1, 3), state_shards=(2, 0))),
    (8, 64, PlanChoices(pipeline=(2, 4, 64), data=(1, 3, 2), expert=(1, 4), context=(1, 3))),
    (16, 64, replace(WIDE, tensor=(1, 2, 3, 4, 8), expert=(2, 1, 8), expert_tensor=(2, 4, 1, 3), zero=(0, 2))),
    (8, 64, replace(WIDE, tensor=(4, 8), expert=(2, 4), expert_tensor=(0, 1, 2, 4, 8), state_shards=(0,))),
]
KINDS_OF_RULES: tuple[dict[str, bool], ...] = ({}, {"is_least": True}, {"is_most": True})
SPACE_CASES = list(product(SPACES, MODELS, [False, True], [None, 3]))
"""Each model in each space with cuts and without: in `make test` of one depth, the other among the slow tests."""


@pytest.mark.parametrize(
    ("space", "name", "has_cuts", "num_layers"),
    [
        pytest.param(*case, marks=pytest.mark.slow if (number // 4 + number // 2 + number) % 2 else ())
        for number, case in enumerate(SPACE_CASES)
    ],
)
def test_the_plans_are_those_that_are_searched(space, name, has_cuts, num_layers):
    devices, batch, choices = space
    model = load_model(name)
    model = replace(model, num_layers=num_layers or model.num_layers)
    scenario = planned_scenario(model, devices=devices, batch=batch, choices=choices)
    free = replace(choices, has_cuts=has_cuts)
    searched = list(list_plans(model, scenario.training_of(model, 1), num_devices=devices, choices=free))
    found = admitted_of(scenario, has_cuts=has_cuts)
    assert len(found) == len(set(found))
    assert found or not (model.has_experts or not choices.expert or 1 in choices.expert)
    assert set(found) == {replace(plan, blocks=()) for plan in searched}


@pytest.mark.parametrize("name", ["tiny", "mixtral-8x7b"])
def test_both_codes_leave_out_the_same_stages_and_replicas(name):
    """Both codes list the same plans of clusters and batches that share no divisor, and bound the same others alike."""
    rng, model = random.Random(name), load_model(name)
    experts = {"expert": (), "expert_tensor": ()} if model.has_experts else {}
    for _ in range(25):
        devices, batch = int(2 ** rng.uniform(0, 7)), int(2 ** rng.uniform(0, 8))
        pipeline, data = rng.choice(((), (), (3, 5))), rng.choice(((), (), (2, 3, 8)))
        choices = PlanChoices(pipeline=pipeline, data=data, interleave=(), zero=(0, 2), **experts)
        scenario = planned_scenario(model, devices=devices, batch=batch, choices=choices)
        free, training = replace(choices, has_cuts=True), scenario.training_of(model, 1)
        searched = {replace(each, blocks=()) for each in list_plans(model, training, num_devices=devices, choices=free)}
        assert searched == set(admitted_of(scenario, has_cuts=True))
        assert searched or pipeline or data
        others = leave_out(
            model, training, num_devices=devices, choices=free, network=scenario.cluster.network, stack=scenario.stack
        )
        known = {
            key: own
            for each in other_spreads(scenario, model, choices).times_total.values()
            for key, own in each.items()
        }
        times = dict(zip(zip(*others.spreads.tolist(), strict=True), others.times_total.tolist(), strict=True))
        assert times == pytest.approx(known, rel=1e-12)
        sampled = rng.sample(sorted(times), min(20, len(times)))
        rows = np.array(sampled, np.int64).reshape(-1, 5).T
        more = list_plans(model, training, num_devices=devices, choices=free, spreads=rows)
        admitted = admitted_of(scenario, has_cuts=True, spreads=set(sampled))
        assert {replace(each, blocks=()) for each in more} == set(admitted)


RULES = {load_stack(name, load_fitted()).rules: name for name in list_stacks()}


@pytest.mark.parametrize(("rules", "sequence"), every(2, [rules for rules in RULES if rules], [96, 97, 104]))
def test_launchers_leave_the_same_plans(rules, sequence):
    """Both ways to read a software's rules agree on plans that some of them forbid."""
    num_refused = 0
    for model_name, is_split in (("tiny", True), ("mixtral-8x7b", True), ("mixtral-8x7b", False)):
        heads = {"num_heads": 8, "num_kv_heads": 4} if model_name == "mixtral-8x7b" else {}
        model = replace(load_model(model_name), num_layers=4, **heads)
        choices = PlanChoices((1, 2, 4, 8), context=(1, 2), expert=(1, 2, 4), expert_tensor=(), micro_batch=(1, 2))
        choices = replace(choices, pipeline=(1, 2, 4), is_sequence_parallel=is_split)
        scenario = planned_scenario(model, devices=16, batch=24, choices=choices)
        scenario = replace(scenario, sequence_length=sequence)
        training = scenario.training_of(model, 1)
        free = list_plans(model, training, num_devices=16, choices=choices)
        stack = replace(scenario.stack, rules=rules)
        kept = list_plans(model, training, num_devices=16, choices=choices, stack=stack)
        assert set(admitted_of(replace(scenario, stack=stack))) == set(kept)
        refused = set(free) - set(kept)
        assert all(plan_obstacle(model, training, plan, stack) for plan in refused)
        assert not any(plan_obstacle(model, training, plan, stack) for plan in kept)
        num_refused += len(refused)
    assert num_refused or sequence % 2 == 0


MIXED = replace(load_model("mixtral-8x7b"), num_layers=4, num_kv_heads=4)
NAMES_OF_RULES = tuple(launch_sizes(MIXED, TrainingSpec(1, 96, 24), ParallelPlan()))


@pytest.mark.parametrize("name", NAMES_OF_RULES)
def test_rules_on_any_size_leave_the_same_plans(name):
    """A size bounds itself, is a factor of what another is a multiple of, and is what a rule hangs on."""
    choices = PlanChoices(
        (1, 2, 4), context=(1, 2), expert=(1, 2), expert_tensor=(), micro_batch=(1, 2), zero=(0, 1, 2)
    )
    scenario = planned_scenario(MIXED, devices=8, batch=24, choices=replace(choices, is_sequence_parallel=True))
    training = scenario.training_of(MIXED, 1)
    rules = [LaunchRule(name, (), "a.py: x", times, **kind) for times in (2, 3) for kind in KINDS_OF_RULES]
    rules += [LaunchRule("micro_batches", (name,), "a.py: x", **kind) for kind in KINDS_OF_RULES]
    rules += [LaunchRule("sequence_length", (), "a.py: x", times=5, when=(name,))]
    lengths = set()
    for rule in rules:
        stack = replace(scenario.stack, rules=(rule,))
        kept = set(list_plans(MIXED, training, num_devices=8, choices=scenario.plans, stack=stack))
        assert set(admitted_of(replace(scenario, stack=stack))) == kept, rule
        lengths.add(len(kept))
    assert len(lengths) > 1


def test_experts_that_tensor_groups_and_shards_do_not_divide_are_those_that_are_searched():
    """Six experts: groups of four split each of them; hybrid shards divide the replicas of the experts too."""
    model = replace(load_model("mixtral-8x7b"), num_experts=6, num_layers=4)
    choices = PlanChoices((1, 2, 4), expert=(), expert_tensor=(), state_shards=(0, 2, 4), zero=(0, 1), micro_batch=(1,))
    scenario = planned_scenario(model, devices=48, batch=96, choices=choices)
    searched = list(list_plans(model, scenario.training_of(model, 1), num_devices=48, choices=choices))
    assert set(admitted_of(scenario)) == set(searched)
    assert {plan.expert_tensor for plan in searched if plan.tensor == 4 and plan.expert == 1} == {4}
    assert {plan.expert_tensor for plan in searched if plan.tensor == 2} == {0, 1}
    hybrid = [plan for plan in searched if plan.zero and plan.expert > 1 and plan.state_shards]
    assert hybrid
    assert all(plan.expert_replicas % plan.expert_shards == 0 for plan in hybrid)


def run_partly(forward, stack):
    """Names of what selective recomputation runs of a layer: attention, or all but what is named where any is there."""
    names = [each.name for each in forward if each.matmuls or each.vector_works]
    if not set(names) & set(stack.memory.kept_operators):
        return list(filter(is_attention_core, names))
    return [name for name in names if name not in (*stack.memory.kept_operators, *stack.kept_operators)]


@pytest.mark.parametrize("software", list_stacks())
@pytest.mark.parametrize("name", ["mixtral-8x7b"])
def test_sets_are_the_problems_that_plans_are_scheduled_as(name, software):
    choices = replace(FEW, context=(1, 2), micro_batch=(1,), pipeline=(1,), zero=(0,))
    scenario = planned_scenario(name, software=software, choices=choices)
    check, model = checker(scenario), scenario.models[0]
    assert [layers.key for layers in check.sets] == sorted({key_of(plan) for plan in check.plans})
    plans = {key_of(plan): plan for plan in check.plans}
    training = scenario.training_of(model, 1)
    for layers in check.sets[::3]:
        step = compile_step(model, training, plans[layers.key], stack=scenario.stack)
        option = compile_steps([step]).options[0]
        operators = compile_steps([step]).operators
        for own, theirs, attention in zip(layers.phases, option.phases, option.partly_columns, strict=True):
            assert [each.core_types for each in own] == [each.core_types for each in theirs]
            assert [each.edges for each in own] == [each.edges for each in theirs]
            for mine, other in zip(own, theirs, strict=True):
                assert list(check.operators[mine.columns]) == [operators[column] for column in other.columns]
            again = [check.operators[column] for column in layers.attention[layers.phases.index(own)]]
            assert again == [operators[column] for column in attention]
            assert [each.name for each in again] == run_partly(check.operators[own[0].columns], scenario.stack)


@pytest.mark.parametrize(
    ("software", "name"),
    every(
        2,
        [
            "ideal",
            "megatron-core",
            "maxtext-offload",
            "llm-foundry",
            "torchtitan",
            "megatron-deepspeed-bf16",
            "nanotron",
        ],
        ["gpt2-xl", "mixtral-8x7b"],
    ),
)
def test_memory_is_that_of_every_stage(name, software):
    rng = np.random.default_rng(len(software))
    scenario = planned_scenario(name, software=software, choices=part_of(rng, WIDE))
    assert_same_memory(scenario, rng, number=25)


@pytest.mark.parametrize("software", ["ideal", "torchtitan"])
def test_memory_with_copies_of_sparse_weights_is_that_of_every_stage(software):
    rng = np.random.default_rng(len(software))
    weights = SparseWeights(Pattern(2, 8), is_transposable=software == "ideal")
    choices = replace(WIDE, tensor=(2,), context=(1,), micro_batch=(1,))
    scenario = planned_scenario("mixtral-8x7b", software=software, choices=choices)
    assert_same_memory(replace(scenario, sparsity=weights), rng, number=12)


def assert_same_memory(scenario, rng, *, number):
    check, model = checker(scenario), scenario.models[0]
    for plan in some(rng, check.plans, number):
        for staged in filter(None, (check.staged(plan), random_cuts(rng, plan, model.num_layers))):
            own = check.memory_bytes(staged)
            step = compiled(scenario, staged)
            theirs = plan_memory(
                [part.graph for part in step.parts],
                step.plan,
                blocks=step.blocks,
                num_micro_batches=step.num_micro_batches,
                optimizer=step.training.optimizer,
                stack=step.stack,
            )
            assert own == pytest.approx([stage.total_bytes for stage in theirs.stages], rel=EXACT)


CASES = [(MODELS[at % 5], NETWORKS[at % 6], software) for at, software in enumerate(list_stacks())]
CASES += [("mixtral-8x7b", network, "llm-foundry") for network in NETWORKS]
CASES += [("llama-3-8b", network, "megatron-core") for network in NETWORKS]
FEW = replace(
    WIDE, tensor=(1, 4), context=(1,), micro_batch=(2,), zero=(0, 2, 3), state_shards=(0,), expert=(1, 2),
    expert_tensor=(0, 1, 2),
)  # fmt: skip
"""Some of every kind."""


@pytest.mark.parametrize(("name", "network", "software"), CASES)
def test_prices_and_bounds_are_those_of_the_prover(name, network, software):
    rng = np.random.default_rng(len(name) + len(software))
    scenario = planned_scenario(name, software=software, network=network, choices=part_of(rng, WIDE))
    # Prices are those of any plan, whatever a launcher takes.
    check = checker(replace(scenario, stack=replace(scenario.stack, rules=())))
    times = draw_times(check, rng)
    for plan in some(rng, check.plans, 8):
        uneven = random_cuts(rng, plan, scenario.models[0].num_layers)
        for staged in filter(None, (check.staged(plan), uneven)):
            stages, rules = prover_loads(scenario, check, staged, times, chip=0)
            given = staged, times.makespan_s, times.attention_s
            assert check.price_s(*given)[0] == pytest.approx(step_times(stages, rules).seconds[0], rel=EXACT)
            assert check.lower_s(*given)[0] == pytest.approx(lower_s(stages, rules)[0], rel=EXACT)
            assert check.lower_s(*given)[0] <= check.price_s(*given)[0] * (1 + EXACT)


FOLDED = replace(
    WIDE, tensor=(2, 4, 8), expert_tensor=(1, 2, 4, 8), zero=(0, 1, 2, 3), micro_batch=(1,), interleave=(1, 2),
)  # fmt: skip


FOLDED_CASES = list(product(["megatron-core", "maxtext", "llm-foundry", "ideal"], NETWORKS, RankOrder))
"""Each software on each network, in one order in `make test` and in the other among the slow tests."""


@pytest.mark.parametrize(
    ("software", "network", "order"),
    [
        pytest.param(*case, marks=pytest.mark.slow if (number // 2 + number) % 2 else ())
        for number, case in enumerate(FOLDED_CASES)
    ],
)
def test_folded_experts_are_priced_alike(software, network, order):
    """Experts over tensor groups whole or in part, within one or over several; prices, bounds and memory."""
    rng = np.random.default_rng(len(software) + len(order))
    scenario = planned_scenario("mixtral-8x7b", software=software, network=network, choices=part_of(rng, FOLDED))
    scenario = replace(scenario, stack=replace(scenario.stack, order=order))
    check = checker(scenario)
    times = draw_times(check, rng)
    chosen = some(rng, check.plans, 12)
    assert {plan.expert_tensor < plan.tensor for plan in chosen} == {False, True}
    for plan in chosen:
        staged = random_cuts(rng, plan, 32) or check.staged(plan)
        stages, rules = prover_loads(scenario, check, staged, times, chip=0)
        given = staged, times.makespan_s, times.attention_s
        assert check.price_s(*given)[0] == pytest.approx(step_times(stages, rules).seconds[0], rel=EXACT)
        assert check.lower_s(*given)[0] == pytest.approx(lower_s(stages, rules)[0], rel=EXACT)
        assert check.lower_s(*given)[0] <= check.price_s(*given)[0] * (1 + EXACT)
        memory = step_memory(compiled(scenario, staged)).stages
        assert check.memory_bytes(staged) == pytest.approx([stage.total_bytes for stage in memory], rel=EXACT)


ODD = {
    "host_s_per_operator": 2e-5,
    "host_s_per_collective": 3e-5,
    "collective_latency_s": 1e-5,
    "network_latency_s": 2e-5,
    "accumulation_bytes": 8.0,
    "lone_head_efficiency": 0.7,
    "expert_overlap": 0.4,
    "expert_efficiency": 0.7,
    "sends_once_a_node": True,
    "fill_chunks": 3,
    "kept_share": 0.5,
    "step_overhead_s": 0.01,
    "waiting_share": 0.05,
    "prefetches_forward": True,
    "parameter_overlap": 0.6,
    "data_overlap": 0.8,
    "kept_operators": ("mlp_down", "mlp_residual"),
    "is_parameter_ring_flat": True,
    "collective_efficiency": 0.8,
    "network_efficiency": 0.7,
}
"""All that a software may do at once, though no shipped one does."""


@pytest.mark.parametrize("base", ["megatron-2022", "maxtext"])
def test_prices_hold_where_a_software_does_everything(base):
    rng = np.random.default_rng(8)
    scenario = planned_scenario("mixtral-8x7b", network="dgx-a100", choices=part_of(rng, WIDE, context=(1, 2)))
    scenario = replace(scenario, stack=replace(load_stack(base, load_fitted()), **ODD))
    check = checker(scenario)
    times = draw_times(check, rng)
    for plan in some(rng, check.plans, 30):
        for staged in filter(None, (check.staged(plan), random_cuts(rng, plan, 32))):
            stages, rules = prover_loads(scenario, check, staged, times, chip=0)
            given = staged, times.makespan_s, times.attention_s
            assert check.price_s(*given)[0] == pytest.approx(step_times(stages, rules).seconds[0], rel=EXACT)
            assert check.lower_s(*given)[0] == pytest.approx(lower_s(stages, rules)[0], rel=EXACT)
