"""Tables of parallel plans, and of training software with the machines and data sets of its constants."""

from dataclasses import fields
from types import SimpleNamespace

from phaze_opt.cost.stacks import list_stacks, load_stack, measured_rows
from phaze_opt.cost.step_time import StepTime
from phaze_opt.hardware.fitted import load_fitted, read_own_file
from phaze_opt.objective.priced_as import PriceSetting
from phaze_opt.objective.software_notes import error_note, gradient_note
from phaze_opt.report.plans import PART_NAMES, describe_plan, step_table
from phaze_opt.report.software import choices_table, features_table, measured_table
from phaze_opt.workload.plan import ParallelPlan, Recompute


def test_what_rounding_leaves_of_a_part_has_no_row():
    """Launches that kernels hide leave 1e-10 s of a smooth maximum; a microsecond is a part like any other."""
    seconds = {field.name: 0.0 for field in fields(StepTime)}
    time = StepTime(**{**seconds, "matmul_s": 2.0, "launch_s": 1.25e-10, "update_s": 1e-6})
    setting = PriceSetting("h100", "ideal", "dgx-h100", "tiny", 1, 1, 1.0, 1.0)
    table = step_table(SimpleNamespace(time=time, plan=ParallelPlan()), setting)
    names = [row[0] for row in table.rows]
    assert len(names) == 2
    assert names[1] == PART_NAMES["update_s"]


def test_every_software_has_its_machines_data_sets_and_errors() -> None:
    sets = read_own_file().sets
    rows = measured_table(list_stacks(), sets).rows
    assert {name for name, *_ in rows} == set(list_stacks())
    core = [row[1:] for row in rows if row[0] == "megatron-core"]
    wanted = [f"{sets[name]['cross_validated_mape']:.1f}" for name in ("train_megatron_h100", "train_nemo_h100_fp8")]
    assert core == [("h100 bf16", "megatron_h100", wanted[0]), ("h100 fp8", "nemo_h100_fp8", wanted[1])]
    assert [row for row in rows if row[0] == "ideal"] == [("ideal", "none", "", "")]
    # A file of constants that somebody else fitted may know nothing of the errors.
    assert all(row[3] == "" for row in measured_table(list_stacks(), {}).rows)


def test_widths_of_gradients_and_features_are_shown(snapshot) -> None:
    stacks = [load_stack(name, load_fitted()) for name in list_stacks()]
    bits = {row[0]: row[3] for row in choices_table(stacks).rows}
    assert (bits["megatron-core"], bits["llm-foundry"], bits["llm-foundry-pure"]) == ("16", "32", "16")
    features = {row[0]: row for row in features_table(list_stacks()).rows}
    assert features["deepspeed-zero3-2021"] == snapshot
    assert "ideal" not in features


def test_every_software_says_where_its_gradients_are_known_from(snapshot) -> None:
    for name in list_stacks():
        stack = load_stack(name, load_fitted())
        assert stack.gradient_source
        assert stack.gradient_source in gradient_note(stack.gradient_bytes, stack.gradient_bytes, stack.gradient_source)
    assert gradient_note(4, 2, "x") == snapshot


def test_errors_are_named_by_data_set(snapshot) -> None:
    rows = measured_rows("megatron-core")
    figures = {"train_megatron_h100": {"cross_validated_mape": 2.16}, "train_nemo_h100_fp8": {"mape": 1.0}}
    assert error_note(rows, figures) == snapshot
    assert error_note(rows, {}) == ""


def test_stages_that_are_not_alike_are_told_in_words() -> None:
    """Runs of equal stages as products; plans whose stages are alike as before."""
    plan = ParallelPlan(pipeline=5)
    assert describe_plan(plan).endswith("recomputation none")
    full, none = Recompute.FULL, Recompute.NONE
    mixed = plan.with_stages((3, 4, 4, 4, 2), (full, full, none, none, none))
    assert describe_plan(mixed).endswith("recomputation 2 x full, 3 x none, blocks a stage 3, 3 x 4, 2")
