"""Certificates of designs with full plans: whole ones hold, and every kind of change is found and named."""

import json
from dataclasses import replace

import numpy as np
import pytest
from forger import ATTAINED, MEMORY, REPLAYED, UPPER, Forger, times
from planned_certificate import PLANS, write_planned_certificate
from small_problems import small_model

from phaze_opt.certify.certificate import CERTIFICATE_FILE, MULTIPLIERS_FILE, POINTS_FILE, SOLUTIONS_FILE
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.workload.config import load_model


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """One certificate of each software."""
    directory = tmp_path_factory.mktemp("planned")
    return {name: write_planned_certificate(name, directory / name) for name in ("maxtext", "megatron-core")}


@pytest.mark.parametrize("software", ["maxtext", "megatron-core"])
def test_a_certificate_of_full_plans_holds(originals, software):
    report = check_certificate(originals[software])
    assert (report.num_relaxed, report.num_out_of_memory) == (24, 12)
    assert report.num_schedules == report.claim.num_solved * (12 if software == "maxtext" else 9)
    assert np.isfinite(report.claim.value)


EXPERTS = replace(
    load_model("mixtral-8x7b"), num_layers=3, hidden_size=512, num_heads=8, num_kv_heads=2, head_size=64, ffn_size=1024,
    vocab_size=4096, embedding_size=512, max_sequence_length=512,
)  # fmt: skip
VARIANTS = {
    "two models": ("maxtext", (small_model(), small_model("deep", num_layers=6)), {"common": CommonMean.WORST}),
    "experts": (
        "llm-foundry",
        (EXPERTS,),
        {"plans": replace(PLANS, expert=(), expert_tensor=(), zero=(0, 2, 3), micro_batch=(1,))},
    ),
    "chunks, stages of ends": ("megatron-2022", (small_model(num_layers=2),), {"network": "phaze", "global_batch": 32}),
    "type, budget": ("ideal", (small_model(),), {"exclusivity": Exclusivity.TYPE, "max_tdp_w": 160.0}),
}


@pytest.mark.parametrize("case", VARIANTS)
def test_proofs_of_many_kinds_hold(case, tmp_path):
    software, models, changes = VARIANTS[case]
    report = check_certificate(write_planned_certificate(software, tmp_path / "proof", *models, **changes))
    assert report.claim.is_feasible
    assert report.num_out_of_memory + report.num_over_budget >= 12
    assert report.claim.gap < (1e-3 if software in ("maxtext", "ideal") else 0.1)


@pytest.fixture
def planned_forger(originals, tmp_path):
    return Forger(originals["maxtext"], tmp_path / "forged")


def solved(forger, change):
    """Change the only solution's model; its row."""
    forger.json(SOLUTIONS_FILE, lambda data: change(data["solutions"][0]["models"][0]))
    return forger.read(SOLUTIONS_FILE)["solutions"][0]["index"]


def plan(**changes):
    """Changes of the degrees."""
    return lambda model: model["plan"]["plan"].update(changes)


def other_blocks(model):
    blocks = model["plan"]["blocks"]
    blocks[-1] += 1


def recompute_all(model):
    solved = model["plan"]
    solved["recompute"] = ["full"] * len(solved["recompute"])
    solved["plan"] = {name: value for name, value in solved["plan"].items() if name != "stage_recompute"}
    solved["plan"]["recompute"] = "full"


def recompute_beside(model):
    model["plan"]["recompute"] = ["full"] * len(model["plan"]["recompute"])


SOLUTIONS = {
    "other stages": (recompute_beside, "its plan has other stages than are stated beside it"),
    "another price": (recompute_all, REPLAYED),
    "no plan": (lambda model: model.pop("plan"), "has no full plan"),
    "degrees of another": (lambda model: model.update(tensor_parallel=7), "has a placement beside its full plan"),
    "no such ZeRO stage": (plan(zero=3), "its plan is none that the scenario admits"),
    "no such micro-batch": (plan(micro_batch=4), "its plan is none that the scenario admits"),
    "a block too many": (other_blocks, r"its \d+ stages do not hold 4 blocks"),
    "no forward again": (lambda model: model["schedules"].pop(), "does not schedule every layer's passes once"),
    "forward twice": (
        lambda model: model["schedules"][3].pop("is_again"),
        "does not schedule every layer's passes once",
    ),
}


@pytest.mark.parametrize("case", SOLUTIONS)
def test_a_changed_solution_is_refused(planned_forger, case):
    change, rule = SOLUTIONS[case]
    row = solved(planned_forger, change)
    planned_forger.assert_refused(POINTS_FILE if rule is REPLAYED else SOLUTIONS_FILE, rule, row=row)


def test_a_longer_schedule_attains_less(planned_forger):
    def delay(model):
        for schedule in model["schedules"]:
            schedule["start_s"] = [start + 1e-4 for start in schedule["start_s"]]

    planned_forger.assert_refused(POINTS_FILE, REPLAYED, row=solved(planned_forger, delay))


def test_a_bound_below_what_some_plan_may_attain_is_refused(planned_forger):
    row = planned_forger.row(status="pruned-by-bound", reason="")
    planned_forger.cells(row, **{UPPER: times(1 - 1e-7)})
    planned_forger.assert_refused(POINTS_FILE, f"{UPPER} is .* but its multipliers let", row=row)


def test_a_bound_above_it_is_a_weaker_statement(planned_forger):
    row = planned_forger.row(status="pruned-by-bound", reason="")
    planned_forger.cells(row, **{UPPER: times(1 - 1e-10)})
    planned_forger.seal()
    check_certificate(planned_forger.directory)


def test_a_design_is_out_of_memory_only_where_no_plan_fits(planned_forger):
    row = planned_forger.row(status="pruned-by-bound", reason="")
    planned_forger.cells(row, **{UPPER: 0.0, "reason": MEMORY})
    planned_forger.assert_refused(POINTS_FILE, "reason is .* but a plan fits", row=row)


def test_a_design_without_room_is_no_feasible_one(planned_forger):
    row = planned_forger.row(reason=MEMORY)
    planned_forger.cells(row, **{UPPER: 1.0, "reason": ""})
    planned_forger.assert_refused(POINTS_FILE, "no plan fits the memory but the row is not infeasible", row=row)


@pytest.mark.parametrize("change", [{"set_number": 1}, {"is_again": True}, {"tensor_parallel": 4}])
def test_slots_are_those_of_the_sets(planned_forger, change):
    planned_forger.certificate(lambda data: data["slots"][0].update(change))
    planned_forger.assert_refused(CERTIFICATE_FILE, "slot 0 is")


def test_entries_are_those_of_the_pool(planned_forger):
    planned_forger.multipliers(lambda tables: tables["mb1"].__setitem__((slice(None), 0), 9999))
    planned_forger.assert_refused(POINTS_FILE, f"slot 0 names entry 9999 of .*{MULTIPLIERS_FILE}", row=0)


def test_a_placement_states_no_plan(forger, originals):
    other = json.loads((originals["maxtext"] / SOLUTIONS_FILE).read_text())
    of_model = other["solutions"][0]["models"][0]["plan"]
    row = solved(forger, lambda model: model.update(plan=of_model))
    forger.assert_refused(SOLUTIONS_FILE, "has a full plan, which its scenario has none of", row=row)
    assert ATTAINED not in of_model
