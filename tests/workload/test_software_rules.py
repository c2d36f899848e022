"""Rules of launchers: data that speak of known sizes, and sentences whose values keep the rule."""

import re
from dataclasses import replace

import pytest

from phaze_opt.cost.stacks import list_stacks, load_stack
from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.objective.plan_options import PLAN_FLAGS
from phaze_opt.plan.plan_space import explain_no_plan, list_plans
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices
from phaze_opt.workload.software import _POSSIBLE, IDEAL_STACK, LaunchRule, launch_sizes
from phaze_opt.workload.software import SIZES as KNOWN_SIZES
from phaze_opt.workload.training import TrainingSpec

SIZES = launch_sizes(load_model("llama-3-8b"), TrainingSpec(1, 4096, 8), ParallelPlan())
STACKS = {name: load_stack(name, load_fitted()) for name in list_stacks()}
LLAMA = load_model("llama-3-8b")


def training(tokens: int, batch: int = 8) -> TrainingSpec:
    return TrainingSpec(micro_batch=1, sequence_length=tokens, global_batch=batch)


def admits(software: str, tokens: int, *, model=LLAMA, batch: int = 8, devices: int = 8, **degrees: int) -> bool:
    choices = PlanChoices(**{"tensor": (1,), "micro_batch": (1,), **{name: (n,) for name, n in degrees.items()}})
    plans = list_plans(
        model, training(tokens, batch), num_devices=devices, choices=choices, stack=STACKS[software]
    )  # fmt: skip
    return len(plans) > 0


@pytest.mark.parametrize("software", STACKS)
def test_rules_speak_of_known_sizes_and_name_their_source(software):
    for rule in STACKS[software].rules:
        assert {rule.size, *rule.of, *rule.when} <= set(SIZES)
        assert ".py: " in rule.source or "models: " in rule.source
        assert rule.times >= 1


def test_ideal_software_and_those_without_a_launcher_of_their_own_ask_nothing():
    assert IDEAL_STACK.rules == ()
    assert all(admits(name, 4097, tensor=8) for name in ("ideal", "maxtext", "llm-foundry", "pax"))
    assert STACKS["megatron-bridge"].rules == STACKS["megatron-core"].rules != ()


@pytest.mark.parametrize(
    ("software", "tokens", "degrees", "is_admitted"),
    [
        ("megatron-core", 4097, {"tensor": 4}, False),
        ("megatron-core", 4100, {"tensor": 4}, True),
        ("megatron-core", 4104, {"context": 8}, False),
        ("megatron-core", 4112, {"context": 8}, True),
        ("megatron-core", 4100, {"tensor": 4, "context": 2}, False),
        ("megatron-2022", 2049, {"tensor": 8}, False),
        ("torchtitan", 4097, {"tensor": 1}, False),
        ("torchtitan", 4100, {"tensor": 4}, False),
        ("torchtitan", 4104, {"tensor": 4}, True),
    ],
)
def test_sequences_divide_by_what_shards_them(software, tokens, degrees, is_admitted):
    assert admits(software, tokens, **degrees) == is_admitted


def test_key_value_heads_are_copied_by_some_software_alone():
    few = replace(LLAMA, num_kv_heads=4)
    for software, is_admitted in (("megatron-core", True), ("torchtitan", False), ("nanotron", False)):
        assert admits(software, 4096, model=few, tensor=8) == is_admitted
        assert admits(software, 4096, model=few, tensor=4)


@pytest.mark.parametrize(
    ("software", "degrees", "is_admitted"),
    [
        ("megatron-2021", {"pipeline": 2, "interleave": 2}, False),
        ("megatron-2022", {"pipeline": 4, "interleave": 2}, True),
        ("megatron-core", {"pipeline": 2, "interleave": 2}, True),
        ("megatron-deepspeed", {"pipeline": 4, "interleave": 2}, False),
        ("megatron-deepspeed-bf16", {"pipeline": 4, "zero": 1}, True),
        ("megatron-deepspeed-bf16", {"pipeline": 4, "zero": 2}, False),
        ("megatron-deepspeed", {"pipeline": 1, "zero": 3}, True),
        ("deepspeed-zero3-2021", {"pipeline": 4, "zero": 3}, False),
        ("nanotron", {"pipeline": 4, "interleave": 2}, False),
        ("nanotron", {"zero": 3}, False),
        ("nanotron", {"zero": 1}, True),
        ("torchtitan", {"pipeline": 4, "interleave": 2, "zero": 2}, True),
        ("fms-fsdp", {"tensor": 2}, False),
        ("fms-fsdp", {"pipeline": 2}, False),
        ("fms-fsdp", {"context": 2}, False),
        ("fms-fsdp", {"zero": 3, "data": 8}, True),
        ("llm-foundry-h100", {"pipeline": 4, "zero": 3}, True),
    ],
)
def test_launchers_limit_pipelines_and_shards_of_state(software, degrees, is_admitted):
    assert admits(software, 4096, **({"batch": 16} | degrees)) == is_admitted


@pytest.mark.parametrize(("expert_tensor", "is_admitted"), [(1, True), (2, False), (4, True)])
def test_experts_are_split_by_a_whole_tensor_group_or_not_at_all(expert_tensor, is_admitted):
    degrees = {"tensor": 4, "expert": 4 if expert_tensor == 1 else 2, "expert_tensor": expert_tensor}
    assert admits("torchtitan", 4096, model=load_model("mixtral-8x7b"), devices=16, batch=16, **degrees) == is_admitted


def test_two_directions_need_even_pipelines_with_enough_in_them():
    assert admits("dualpipe", 4096, pipeline=4, batch=16)
    assert not admits("dualpipe", 4096, pipeline=4, batch=4)
    assert not admits("dualpipe", 4096, pipeline=3, devices=3, batch=9)


def test_every_remedy_of_a_sentence_names_an_option_and_its_values_keep_the_rule():
    options = {*re.findall(r"--[a-z-]+", str(PLAN_FLAGS.values())), "--zero", "--sequence-length", "--global-batch"}
    for software, stack in STACKS.items():
        for rule in stack.rules:
            own = {rule.size: 2 if rule.is_least else 13}
            sizes = dict.fromkeys(SIZES, 2) | {name: 6 for name in rule.of} | own
            assert rule.is_broken(sizes)
            remedy = rule.says(software, sizes).rpartition("; give ")[2].removesuffix(f" ({rule.source})")
            assert set(re.findall(r"--[a-z-]+", remedy)) & {*options, "--sequence-parallel"}, remedy
            varied = re.search(r"{([a-z_]+)}", rule.give)
            if varied is None:
                continue
            before, after = rule.give[: varied.start()], rule.give[varied.end() :]
            values = remedy.removeprefix(before).removesuffix(after).split(" or ")
            assert values
            for value in map(int, values):
                assert not rule.is_broken(sizes | {varied[1]: value}), remedy


def test_what_hinders_the_smallest_plan_is_told():
    choices = PlanChoices(tensor=(4,), micro_batch=(1,))
    why = explain_no_plan(LLAMA, training(4097), num_devices=8, choices=choices, stack=STACKS["megatron-core"])
    assert "give --sequence-length 4096 or 4100 (" in why.sentence


def test_a_rule_holds_where_all_that_it_names_is_split():
    rule = LaunchRule("sequence_length", ("context",), "mine.py: x", times=3, when=("context", "tensor"))
    sizes = dict.fromkeys(SIZES, 1) | {"sequence_length": 7}
    assert not rule.is_broken(sizes | {"context": 2})
    assert rule.is_broken(sizes | {"context": 2, "tensor": 2})
    assert not rule.is_broken(sizes | {"context": 2, "tensor": 2, "sequence_length": 12})


@pytest.mark.parametrize("name", _POSSIBLE)
def test_impossible_numbers_are_refused(name):
    low, high = _POSSIBLE[name]
    for value in (low - 0.5, high * 1.5, float("nan")):
        with pytest.raises(InputError, match="is impossible for software") as caught:
            replace(IDEAL_STACK, **{name: value})
        assert caught.value.key == name


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"size": "sequence_lenght"}, "'sequence_lenght'; "),
        ({"of": ("tensr",)}, "'tensr'"),
        ({"when": ("",)}, "''"),
        ({"give": "--pipeline {stages}"}, "'stages'"),
        ({"times": 0}, "1 or more, not 0"),
    ],
)
def test_a_rule_is_of_what_plans_have(values, why):
    with pytest.raises(InputError, match=re.escape(why)):
        LaunchRule(**{"size": "sequence_length", "of": ("tensor",), "source": "mine.py: x"} | values)


def test_rules_speak_of_what_is_counted():
    assert set(SIZES) == set(KNOWN_SIZES)
