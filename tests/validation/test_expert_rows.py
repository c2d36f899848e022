"""Steps with experts: how rows are read, what is stated of them, errors, and DeepSeek-V3's published run."""

from functools import cache
from itertools import combinations

import pytest

from phaze_opt.cost.clocks import MachineClock
from phaze_opt.cost.stacks import EXPERT, FOLDED, load_stack, measured_rows, plan_features, unmeasured_parts
from phaze_opt.errors import InputError
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.plan_search import Machine, rank_plans
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.validation.dataset import read_dataset, read_datasets
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.predict import predict_rows
from phaze_opt.validation.training.entries import read_entry
from phaze_opt.validation.training.family import EXPERTS
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices
from phaze_opt.workload.training import TrainingSpec

HEAD = (
    "hardware,n_devices,layers,hidden,heads,seq,global_batch,iter_time_s,experts,experts_per_token,mlp_matrices,tp,ep"
)
DEEPSEEK_HOURS, DEEPSEEK_TOKENS = 2.664e6, 14.8e12
"""H800 hours and tokens of pre-training (DeepSeek-AI 2024, arXiv:2412.19437, table 1 and section 4.2)."""


@cache
def rows() -> tuple[Row, ...]:
    return read_datasets(None, ["moe"])[0][0].rows


def test_rows_are_predicted_within_the_goal() -> None:
    """By the constants in force: 15 % on the mean, and no bias of more than 5 %."""
    found = predict_rows([EXPERTS], rows(), load_fitted())
    errors = found.predicted_s / found.measured_s - 1
    assert not found.unscored
    assert abs(errors).mean() <= 0.15
    assert abs(errors.mean()) <= 0.05


def test_the_statement_equals_the_rows() -> None:
    stated, plans = measured_rows("megatron-core"), [read_entry(row).row.plan for row in rows()]
    assert stated is not None
    assert stated.experts is not None
    own = stated.experts
    used = [plan_features(plan) for plan in plans]
    assert (own.dataset, own.num_rows) == ("moe", len(plans))
    assert own.recompute == {plan.recompute for plan in plans}
    assert dict(own.reach) == {name: max(each.get(name, 0) for each in used) for each in used for name in each}
    ran = {frozenset(pair) for each in used for pair in combinations(each, 2)}
    assert {frozenset(pair) for shape in own.shapes for pair in combinations(shape, 2)} == ran


def test_plans_with_experts_are_held_against_their_rows() -> None:
    stated = measured_rows("megatron-core")
    assert stated is not None
    assert unmeasured_parts(ParallelPlan(pipeline=4, data=16, expert=8, zero=1), stated) == ()
    folded = ParallelPlan(tensor=2, data=4, expert=8, expert_tensor=1, zero=1)
    assert unmeasured_parts(folded, stated) == (FOLDED, f"{EXPERT} with tensor parallel")


def read(tmp_path, *values: str) -> Row:
    path = tmp_path / "own.csv"
    path.write_text(f"{HEAD}\n{','.join(values)}\n")
    return read_dataset(path).rows[0]


def test_a_users_row_with_experts_is_one_of_the_set(tmp_path) -> None:
    """Experts that replicas alone do not hold are folded over the tensor group."""
    row = read(tmp_path, "h100", "16", "4", "1024", "16", "4096", "64", "1.0", "8", "2", "3", "2", "16")
    assert row.dataset == "moe"
    entry = read_entry(row)
    plan, model = entry.row.plan, entry.row.model
    assert (plan.tensor, plan.data, plan.expert, plan.expert_tensor) == (2, 8, 16, 1)
    assert (model.num_experts, model.num_active_experts) == (8, 2)
    within = read_entry(read(tmp_path, "h100", "16", "4", "1024", "16", "4096", "64", "1.0", "8", "2", "3", "2", "8"))
    assert within.row.plan.expert_tensor == 0


def test_more_experts_than_devices_hold_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="expert degree 64 must divide 16"):
        read_entry(read(tmp_path, "h100", "16", "4", "1024", "16", "4096", "64", "1.0", "64", "2", "3", "2", "64"))


def test_deepseek_v3_trains_in_its_published_hours() -> None:
    """2,048 H800: 16 stages, experts over 64 devices of 8 nodes, ZeRO 1, fp8, no tensor parallelism; within 10 %.

    Nothing of the run was fitted; its software states what its report and its kernels' benchmarks tell.
    """
    model, device, fitted = load_model("deepseek-v3"), load_device("h800"), load_fitted()
    training = TrainingSpec(1, 4096, 15_360)
    choices = PlanChoices(
        tensor=(1,), pipeline=(16,), expert=(64,), micro_batch=(1,), zero=(1,), expert_tensor=(), has_near_cuts=True
    )
    network = load_network(device.network, num_devices=2048, fitted=fitted)
    clock = MachineClock(device, ComputePath.FP8, fitted)
    machine = Machine(clock, device.hbm_bytes, network, load_stack("dualpipe", fitted))
    ranked = rank_plans(
        model, training, list_plans(model, training, num_devices=2048, choices=choices), machine=machine
    )
    seconds = ranked.ranked[0].time.seconds * DEEPSEEK_TOKENS / (15_360 * 4096)
    assert 2048 * seconds / 3600 == pytest.approx(DEEPSEEK_HOURS, rel=0.1)
