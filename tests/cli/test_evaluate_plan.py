"""`phaze-opt evaluate` with options of a parallel plan."""

import json
import re
from importlib import resources

import pytest
from command_runs import printed, refused, run, run_json
from kits.family_pairs import configs, extracted

BASE = ["evaluate", "--model", "gpt2-xl", "--global-batch", "64", "--sequence-length", "1024"]
BERT = ["evaluate", "--model", "bert-large", "--global-batch", "64", "--sequence-length", "512"]
A100 = [*BASE, "--arch", "a100-80g", "--devices", "32", "--software", "megatron-2021"]
FITTED = resources.files("phaze_opt.hardware").joinpath("fitted_constants.json")


def test_a_fixed_plan_is_priced_alone(capsys):
    fixed = ["--tensor-parallel", "5", "--pipeline", "2", "--data", "3", "--micro-batch", "2", "--recompute", "full"]
    more = ["--zero", "0", "--interleave", "1", "--global-batch", "66", "--sequence-length", "1020"]
    answer = run_json([*A100, *fixed, *more], capsys)
    (plan,) = answer["plans"]
    degrees = ("tensor", "pipeline", "data", "micro_batch", "recompute")
    assert tuple(plan[name] for name in degrees) == (5, 2, 3, 2, "full")
    assert plan["iteration_time_s"] == pytest.approx(sum(plan["breakdown"].values()))
    assert plan["throughput_tokens_per_s"] == pytest.approx(66 * 1020 / plan["iteration_time_s"])
    assert plan["peak_memory_bytes"] < 80 * 2**30
    assert 0 < plan["mfu"] < 1


def test_free_degrees_are_searched_and_sorted(capsys):
    answer = run_json([*A100, "--top", "7"], capsys)
    seconds = [plan["iteration_time_s"] for plan in answer["plans"]]
    assert len(seconds) == 7 < answer["num_fitting"]
    assert seconds == sorted(seconds)
    narrowed = run_json([*A100, "--pipeline", "2", "--top", "1"], capsys)
    assert narrowed["num_fitting"] < answer["num_fitting"]
    assert narrowed["plans"][0]["pipeline"] == 2


@pytest.mark.parametrize("machine", [["--arch", "h100"], ["--arch", "phaze-tpu-v4"]])
def test_stages_by_hand_are_the_only_ones(machine, capsys):
    """Of a real machine and of a design; Megatron-LM's layout says the same cut."""
    job = [*BERT, *machine, "--devices", "16", "--tensor-parallel", "1", "--micro-batch", "2", "--zero", "1"]
    answer = run_json([*job, "--stage-blocks", "5, 2x7,5", "--top", "9"], capsys)
    assert {tuple(plan["blocks"]) for plan in answer["plans"]} == {(5, 7, 7, 5)}
    assert [stage["last"] - stage["first"] + 1 for stage in answer["placement"]["stages"]] == [6, 7, 7, 6]
    plain = next(plan for plan in answer["plans"] if plan["recompute"] == "none")
    is_gpu = "h100" in machine
    assert ("--pipeline-model-parallel-layout 'Et*5|t*7|t*7|t*5L'" in plain["launch"]["megatron"]) == is_gpu
    assert any("1F1B" in each for each in plain["launch"]["unsaid"]) != is_gpu, "MaxText has no such pipelines"
    ways = ["none", "full", "none", "selective"]
    mixed = run_json([*job, "--stage-blocks", "5,2x7,5", "--stage-recompute", ",".join(ways)], capsys)
    assert {tuple(plan["stage_recompute"]) for plan in mixed["plans"]} == {tuple(ways)}
    assert mixed["iteration_time_s"] > answer["iteration_time_s"]
    refused([*job, "--stage-blocks", "4x7"], capsys, "have 28, not the 24 of bert-large")
    refused([*job, "--stage-blocks", "12,0,12"], capsys, "at least 1 in every stage")
    refused([*job, "--stage-blocks", "5,2x7,5", "--interleave", "2"], capsys, "not 2 equal chunks")
    refused([*job, "--stage-recompute", "full"], capsys, "--stage-recompute", "give --stage-blocks too")


def test_zero_shards_state(capsys):
    fixed = [*A100, "--tensor-parallel", "1", "--pipeline", "1", "--micro-batch", "1", "--recompute", "none"]
    whole, sharded = (run_json([*fixed, "--zero", stage], capsys)["plans"][0] for stage in ("0", "3"))
    states = ("weight_bytes", "gradient_bytes", "optimizer_bytes")
    for name in states:
        assert sharded["stages"][0][name] == pytest.approx(whole["stages"][0][name] / 32)
    assert sharded["breakdown"]["parameter_s"] > whole["breakdown"]["parameter_s"] == 0


def test_own_constants_reach_the_network_too(tmp_path, capsys):
    """Links fitted at a hundredth of their rate show in the gradients' collectives inside a node."""
    document = json.loads(FITTED.read_text(encoding="utf-8"))
    for name, group in document["groups"].items():
        if name.startswith("collectives/nvlink3-nvswitch") and "bandwidth_bytes_per_s" in group["constants"]:
            bandwidth = group["constants"]["bandwidth_bytes_per_s"]
            bandwidth["value"] /= 100
            bandwidth["low"] /= 100
    path = tmp_path / "constants.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    node = [*BASE, "--arch", "a100-80g", "--devices", "8", "--tensor-parallel", "1", "--pipeline", "1"]
    fixed = [*node, "--micro-batch", "2", "--recompute", "full"]
    ours, slower = (run_json([*fixed, *more], capsys)["plans"][0] for more in ([], ["--constants", str(path)]))
    assert slower["breakdown"]["gradient_s"] > 20 * ours["breakdown"]["gradient_s"]


def test_a_designed_chip_takes_plans_too(capsys):
    """Its layers take the makespans of their schedules; without parallelism that is the whole step."""
    chip = ["evaluate", "--model", "bert-large", "--arch", "phaze-tpu-v4", "--devices", "1", "--global-batch", "8"]
    plain = ["--software", "ideal", "--pipeline", "1", "--micro-batch", "8", "--recompute", "never"]
    plan = run_json([*chip, *plain], capsys)["plans"][0]
    placed = ["--plans", "phaze", "--micro-batch", "8", "--recompute", "never", "--tensor-parallel", "1"]
    same = run_json([*chip, *placed], capsys)
    assert plan["iteration_time_s"] == pytest.approx(same["iteration_time_s"], rel=1e-9)


def test_tables_for_people(capsys):
    out = printed([*A100, "--top", "3", "--details"], capsys)
    for words in ("Plans of gpt2-xl on 32 a100-80g", "t x p x d", "Where a step of", "Memory"):
        assert words in out


def test_tables_with_every_common_column_fit_80_characters(capsys, monkeypatch):
    """No cell is broken over lines or cut short, and what the figures refer to is said."""
    monkeypatch.setenv("COLUMNS", "80")
    free = ["--context-parallel", "1,2", "--interleave", "1,2", "--zero", "0,1", "--recompute", "selective"]
    out = printed([*A100, *free, "--details"], capsys)
    lines = out.splitlines()
    assert max(len(line) for line in lines if not line.startswith("Megatron-LM: ")) <= 80
    start = next(number for number, line in enumerate(lines) if "t x p x d" in line)
    for heading in (" c ", " v ", " mb ", " zero ", " rec. ", " step ", " tokens/s ", " MFU ", " GiB"):
        assert heading in lines[start]
    rows = lines[start + 2 : start + 12]
    assert [row.split()[0].rstrip("*~!") for row in rows] == [str(rank) for rank in range(1, 11)]
    assert all(" sel. " in row for row in rows)
    assert "…" not in out
    note = " ".join(" ".join(lines[start + 12 :]).split())
    assert "MFU of the bf16 peak" in note
    assert "GiB of the fullest stage, which may take 14% less to 12% more" in note
    # The fullest stage of the first plan is the same figure in both tables.
    assert f"{rows[0].split()[-1]} GiB" in next(line for line in lines if re.match(r"all +\d", line))


def test_the_widest_table_of_plans_keeps_every_figure_whole(capsys, monkeypatch):
    """With a column for every degree there is less room between them, and none is cut."""
    monkeypatch.setenv("COLUMNS", "80")
    cluster = ["evaluate", "--model", "mixtral-8x7b", "--arch", "h100", "--devices", "1024", "--global-batch", "1024"]
    degrees = ["--tensor-parallel", "1,2", "--pipeline", "1,4", "--micro-batch", "1", "--interleave", "1,2"]
    spread = ["--context-parallel", "1,2", "--expert-parallel", "4,8", "--zero", "1", "--state-shards", "8"]
    spread += ["--expert-tensor-parallel", "1,2"]
    out = printed([*cluster, *degrees, *spread, "--top", "20"], capsys)
    lines = out.splitlines()
    assert max(len(line) for line in lines if not line.startswith("Megatron-LM: ")) <= 80
    start = next(number for number, line in enumerate(lines) if "t x p x d" in line)
    headings = ["c", "e", "et", "v", "mb", "zero", "shards", "rec.", "step", "tokens/s", "MFU", "GiB"]
    assert lines[start].split()[6:] == headings
    first = lines[start + 2].split()
    assert "…" not in out
    assert (first[0].rstrip("*~!"), first[2], first[4], first[-2]) == ("1", "x", "x", "%")


MIXTRAL = ["evaluate", "--model", "mixtral-8x7b", "--arch", "h100", "--devices", "64", "--global-batch", "256"]
MIXTRAL += ["--micro-batch", "1", "--zero", "1", "--interleave", "1", "--recompute", "none", "--no-range"]


def test_experts_fold_over_tensor_groups_where_nobody_says_otherwise(capsys):
    """Free: split over the group or whole; a degree that is given stays, and is launched so."""
    job = [*MIXTRAL, "--tensor-parallel", "4", "--pipeline", "2", "--expert-parallel", "8"]
    free = run_json([*job, "--top", "9"], capsys)
    assert [plan.get("expert_tensor", 0) for plan in free["plans"]] in ([0, 1], [1, 0])
    (folded,) = run_json([*job, "--expert-tensor-parallel", "1"], capsys)["plans"]
    assert folded == next(plan for plan in free["plans"] if "expert_tensor" in plan) | {"is_within_error": True}
    assert {"--expert-model-parallel-size 8", "--expert-tensor-parallel-size 1"} <= set(folded["launch"]["megatron"])
    assert "experts folded over tensor groups" in folded["unmeasured"]
    listed = run_json([*job, "--expert-tensor-parallel", "1,2,4", "--top", "9"], capsys)["plans"]
    assert {plan["expert_tensor"] for plan in listed} == {1, 2, 4}
    (whole,) = (plan for plan in free["plans"] if "expert_tensor" not in plan)
    (named,) = (plan for plan in listed if plan["expert_tensor"] == 4)
    assert named["iteration_time_s"] == whole["iteration_time_s"]
    assert "experts folded over tensor groups" not in whole["unmeasured"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ["--tensor-parallel", "4", "--expert-tensor-parallel", "3"],
            "--expert-tensor-parallel: expert tensor degree 3 must be 1 or more and divide",
        ),
        (
            ["--tensor-parallel", "2", "--pipeline", "32", "--expert-parallel", "8", "--expert-tensor-parallel", "1"],
            "--expert-parallel: expert degree 8 must divide 2 (tensor x data x context / expert tensor degree)",
        ),
        (
            ["--model", "bert-large", "--tensor-parallel", "2", "--expert-tensor-parallel", "2"],
            "bert-large has no experts to split 2 ways; give expert tensor parallel degree 1",
        ),
        (["--expert-tensor-parallel", "1", "--plans", "phaze"], "is of full plans, which --plans phaze rules out"),
    ],
)
def test_expert_tensor_degrees_that_cannot_be_are_refused(more, words, capsys):
    assert words in " ".join(refused([*MIXTRAL, *more], capsys).split())


def test_the_table_names_the_network_and_devices_left_idle(capsys):
    degrees = ["--tensor-parallel", "5", "--pipeline", "2", "--micro-batch", "1,2", "--recompute", "none"]
    idle = ["--data", "3", "--global-batch", "66", "--sequence-length", "1020"]
    (_, whole, _), (_, part, _) = run([*A100, "--zero", "1"], capsys), run([*A100, *degrees, *idle], capsys)
    words, rest = (" ".join(out.split()) for out in (whole, part))
    assert "65,536 tokens a step, network dgx-a100" in words
    assert "idle" not in words
    assert "up to 2 devices idle" in rest


def test_one_plan_says_its_peak_and_ideal_software_what_it_leaves_out(capsys):
    fixed = ["--tensor-parallel", "1", "--pipeline", "2", "--data", "16", "--micro-batch", "1", "--recompute", "none"]
    h100 = [*BASE, "--arch", "h100", "--devices", "32", *fixed, "--zero", "1", "--interleave", "1", "--dtype", "fp8"]
    (code, ideal, _), (_, real, _) = run([*h100, "--software", "ideal"], capsys), run(h100, capsys)
    assert code == 0
    assert "of the fp8 peak" in ideal
    assert "ideal software: rates of the data sheet" in " ".join(ideal.split())
    assert "ideal software" not in real


def test_what_does_not_fit_ends_with_code_3(capsys):
    arguments = ["evaluate", "--model", "gpt3-175b", "--arch", "a100-80g", "--devices", "8", "--global-batch", "64"]
    refused([*arguments, "--software", "megatron-2021"], capsys, "infeasible", "GiB", code=3)


def test_designed_chips_take_plans_with_calibrated_operators(capsys):
    chip = ["evaluate", "--model", "bert-large", "--arch", "phaze-tpu-v4", "--devices", "4", "--global-batch", "32"]
    plan = [*chip, "--pipeline", "1", "--tensor-parallel", "1", "--micro-batch", "8", "--recompute", "never"]
    ideal, calibrated = (
        run_json([*plan, "--estimator", name], capsys)["plans"][0]["iteration_time_s"]
        for name in ("analytic", "calibrated")
    )
    assert ideal < calibrated < 2 * ideal


FIXED = ["--tensor-parallel", "2", "--pipeline", "1", "--micro-batch", "1", "--recompute", "none", "--top", "1"]
NOTED = (
    "--arch h100",
    "--arch h100 --zero 1 --software megatron-core --gradient-bits 32",
    "--arch h100 --software ideal",
    "--arch b200 --software megatron-core",
    "--arch l4 --software megatron-core",
    "--arch l4 --software megatron-core --network dgx-a100",
    "--arch a100-80g",
    "--arch a100-80g --software llm-foundry",
    "--arch mi300x",
    "--arch phaze-tpu-v4 --pipeline 1",
)
"""Software chosen or named, its ZeRO stage and gradients as measured or as asked, a network known, assumed or given."""


def test_what_is_said_of_plans(capsys, snapshot):
    plan = [*BERT, "--devices", "32", *FIXED]
    notes = {more: run_json([*plan, *more.split()], capsys)["setting"]["notes"] for more in NOTED}
    # Errors are figures of the fit; the sentence is pinned, not they.
    assert {more: [re.sub(r"\d+\.\d %", "x %", note) for note in said] for more, said in notes.items()} == snapshot


def test_a_real_machine_is_priced_with_the_software_measured_on_it(capsys):
    fixed = ["--tensor-parallel", "2", "--pipeline", "1", "--micro-batch", "1", "--recompute", "none", "--zero", "1"]
    h100 = [*BERT, "--arch", "h100", "--devices", "32", *fixed]
    default, named, ideal = (
        run_json([*h100, *more], capsys) for more in ([], ["--software", "megatron-core"], ["--software", "ideal"])
    )
    assert default["plans"] == named["plans"]
    assert ideal["plans"][0]["iteration_time_s"] < default["plans"][0]["iteration_time_s"]
    assert default["setting"]["software"] == "megatron-core"
    assert ideal["setting"]["software"] == "ideal"


def test_constants_of_ones_own_are_not_said_to_err_as_published_ones(tmp_path, capsys):
    """What the file says of the fit stands in place of errors and machines of published rows, if rows were kept out."""
    document = json.loads(FITTED.read_text(encoding="utf-8"))
    group = document["groups"]["stack/megatron-core"]
    group |= {"source": "phaze-opt calibrate", "datasets": {"mine": ["mine:2", "mine:3"]}}
    group["residuals"] = {"mape": 4.26, "cross_validated_mape": 5.0}
    path = tmp_path / "constants.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    plan = ["--software", "megatron-core", "--pipeline", "1", "--zero", "1", "--constants", str(path)]
    notes = run_json([*BERT, "--arch", "b200", "--devices", "32", *plan], capsys)["setting"]["notes"]
    assert notes[0] == (
        "constants of megatron-core were fitted to 2 rows of your own, and speak of their machines (mean error 4.3 %, "
        "of rows kept out up to 5.0 %)"
    )
    assert not any("kept out of every fit" in note or "not on b200" in note for note in notes)
    del group["residuals"]["cross_validated_mape"]
    path.write_text(json.dumps(document), encoding="utf-8")
    unchecked = run_json([*BERT, "--arch", "b200", "--devices", "32", *plan], capsys)["setting"]
    assert unchecked["error_share"] == unchecked["spread"]["apart"] - 1
    assert any("kept out of every fit" in note for note in unchecked["notes"])
    other = run_json([*A100, "--constants", str(path), "--top", "1"], capsys)["setting"]["notes"]
    assert any("kept out of every fit" in note for note in other)


def test_parts_of_plans_that_were_never_measured_are_marked(capsys):
    h100 = [*BERT, "--arch", "h100", "--devices", "8", "--pipeline", "1", "--micro-batch", "1", "--recompute", "none"]
    free = ["--tensor-parallel", "1,2", "--zero", "3"]
    by_tensor = {plan["tensor"]: plan["unmeasured"] for plan in run_json([*h100, *free], capsys)["plans"]}
    assert by_tensor == {1: [], 2: ["ZeRO 3 with tensor parallel"]}
    _, out, _ = run([*h100, *free], capsys)
    lines = out.splitlines()
    start = next(number for number, line in enumerate(lines) if "t x p x d" in line)
    ranks = {row.split()[1]: row.split()[0] for row in lines[start + 2 : start + 4]}
    assert "*" in ranks["2"]
    assert "*" not in ranks["1"]
    said = r"\* has parts that no measurement of megatron-core covers: ZeRO 3 with tensor parallel \(\d\)"
    assert re.search(said, " ".join(out.split()))
    ideal, *_ = run_json([*h100, "--tensor-parallel", "2", "--zero", "3", "--software", "ideal"], capsys)["plans"]
    assert ideal["unmeasured"] is None
    _, alone, _ = run([*h100, "--tensor-parallel", "2", "--zero", "3", "--data", "4"], capsys)
    assert "it has what no measurement of megatron-core covers: ZeRO 3 with tensor parallel" in " ".join(alone.split())


def test_wider_gradients_take_memory_and_traffic(capsys):
    """32 bits for 16: twice the memory, more time to send, nothing else."""
    fixed = ["--tensor-parallel", "4", "--pipeline", "1", "--zero", "0", "--micro-batch", "1", "--recompute", "none"]
    h100 = [*BERT, "--arch", "h100", "--devices", "64", *fixed]
    default, narrow, wide = (
        run_json([*h100, *more], capsys) for more in ([], ["--gradient-bits", "16"], ["--gradient-bits", "32"])
    )
    assert default["plans"] == narrow["plans"]
    before, after = narrow["plans"][0], wide["plans"][0]
    assert after["stages"][0]["gradient_bytes"] == 2 * before["stages"][0]["gradient_bytes"]
    assert after["stages"][0]["weight_bytes"] == before["stages"][0]["weight_bytes"]
    assert after["breakdown"]["gradient_s"] > 1.5 * before["breakdown"]["gradient_s"]
    ideal = [*h100, "--software", "ideal", "--gradient-bits"]
    bare = [run_json([*ideal, bits], capsys)["plans"][0]["breakdown"]["gradient_s"] for bits in ("16", "32")]
    assert 1.8 < bare[1] / bare[0] < 2.001
    others = {name for name in before["breakdown"] if name not in ("gradient_s", "waiting_s")}
    assert all(after["breakdown"][name] == pytest.approx(before["breakdown"][name]) for name in others)


@pytest.mark.parametrize("more", [["--top", "1"], ["--tensor-parallel", "2", "--pipeline", "1", "--micro-batch", "1"]])
def test_the_plan_whose_step_is_shown_is_named(more, capsys):
    """Asking for the best plan is asking for plans, and one plan alone is named as well."""
    h100 = [*BERT, "--arch", "h100", "--devices", "8", "--recompute", "none", *more]
    best = run_json(h100, capsys)["plans"][0]
    _, out, _ = run(h100, capsys)
    degrees = f"under tensor {best['tensor']} x pipeline {best['pipeline']} x data {best['data']}"
    chunks = f", model chunks a stage {best['interleave']}" if best["interleave"] > 1 else ""
    rest = f"{chunks}, micro-batch {best['micro_batch']}, ZeRO stage {best['zero']}, recomputation none"
    assert degrees + rest in " ".join(out.split())


def test_every_degree_that_nobody_names_is_searched(capsys):
    """ZeRO stages, chunks and micro-batches are free; one that is named stays."""
    job = [*BERT, "--arch", "h100", "--devices", "8", "--top", "1000"]
    plans = run_json(job, capsys)["plans"]
    for name in ("tensor", "pipeline", "data", "interleave", "micro_batch", "zero", "recompute"):
        assert len({plan[name] for plan in plans}) > 1, name
    assert {plan["context"] for plan in plans} == {1}
    named = run_json([*job, "--zero", "0", "--interleave", "2", "--pipeline", "4"], capsys)["plans"]
    assert {(plan["zero"], plan["interleave"], plan["pipeline"]) for plan in named} == {(0, 2, 4)}


def test_placements_say_that_nobody_named_the_micro_batch_and_which_is_the_fastest(capsys):
    """Two micro-batches of 8 cannot fill 8 devices that hold a stage each; 64 replicas have no better one than 8."""
    chip = ["evaluate", "--model", "bert-large", "--arch", "phaze-tpu-v4", "--tensor-parallel", "1", "--as", "phaze"]
    few = [*chip, "--devices", "8", "--global-batch", "16", "--no-range"]
    unsaid = run_json(few, capsys)
    rates = {each: run_json([*few, "--micro-batch", each], capsys) for each in ("1", "2", "4", "8")}
    gains = {
        each: rate["throughput_samples_per_s"] / unsaid["throughput_samples_per_s"] for each, rate in rates.items()
    }
    best = max(gains, key=gains.get)
    assert unsaid["micro_batch"] == 8
    assert gains["8"] == 1
    note = "micro-batches are of 8 as --micro-batch is not given; of 1, 2, 4 and 8 samples"
    sentence = f"{note} {best} would be the fastest: {gains[best]:.3g} times as fast"
    assert {"key": "micro_batch", "sentence": sentence} in unsaid["notes"]
    assert not any(each["key"] == "micro_batch" for each in rates["8"]["notes"])
    _, many, _ = run([*chip, "--devices", "64", "--global-batch", "512", "--no-range"], capsys)
    assert f"Note: {note} none is faster." in " ".join(many.split())


EXPERTS = [
    *(
        "evaluate",
        "--model",
        "mixtral-8x7b",
        "--arch",
        "h100",
        "--software",
        "megatron-core",
        "--devices",
        "64",
        "--global-batch",
        "256",
    ),
    *("--sequence-length", "1024", "--tensor-parallel", "1", "--pipeline", "4", "--micro-batch", "1", "--zero", "1"),
]


def test_blocks_that_do_not_divide_into_chunks_are_cut_as_near_as_they_can(capsys):
    """32 blocks, embedding and head in 4 stages of 3 chunks: ten of 3 blocks, two of 2; by hand no other is even."""
    (plan,) = run_json([*EXPERTS, "--interleave", "3", "--top", "1"], capsys)["plans"]
    assert plan["blocks"] == [8, 9, 8, 7]
    layout = next(each for each in plan["launch"]["megatron"] if "layout" in each)
    assert [each.count("t*") for each in layout.split("|")] == [1] * 12
    assert sum(int(each.partition("*")[2].rstrip("L'")) for each in layout.split("|")) == 32
    assert "36 model chunks exceed the 32 blocks" in refused([*EXPERTS, "--interleave", "9"], capsys)


def test_a_stated_load_of_experts_is_priced(capsys):
    """More tokens on the fullest device take longer; experts of a fixed capacity wait for no launch."""
    job = [*EXPERTS, "--expert-parallel", "4", "--interleave", "1", "--top", "1"]
    even, uneven, fixed = (
        run_json([*job, *more], capsys)["iteration_time_s"]
        for more in ([], ["--expert-imbalance", "2"], ["--expert-capacity", "1"])
    )
    assert fixed < even < uneven < 2 * even


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--expert-imbalance", "0.5"], "--expert-imbalance: expert_imbalance = 0.5 must be from 1"),
        (["--expert-capacity", "1", "--model", "gpt2-xl"], "--expert-capacity: is for models with experts"),
        (["--expert-capacity", "1", "--arch", "phaze-tpu-v4"], "--expert-capacity: is for machines that exist"),
        (["--expert-capacity", "1", "--as", "phaze"], "--expert-capacity: is of full plans"),
    ],
)
def test_loads_of_experts_that_cannot_be_are_refused(more, words, capsys):
    job = ["evaluate", "--model", "mixtral-8x7b", "--arch", "h100", "--devices", "64", "--global-batch", "64"]
    assert words in " ".join(refused([*job, *more], capsys).split())


@pytest.mark.parametrize(("width", "says"), [(1280, "heads of 80 are no multiple of 64"), (1024, "")])
def test_heads_that_cost_time_on_a_gpu_are_said(width, says, tmp_path, capsys):
    path = tmp_path / "config.json"
    sizes = {"n_layer": 4, "n_embd": width, "n_head": 16, "vocab_size": 50257, "n_positions": 1024}
    path.write_text(json.dumps({"model_type": "gpt2"} | sizes), encoding="utf-8")
    fixed = ["--tensor-parallel", "1", "--pipeline", "1", "--micro-batch", "1", "--global-batch", "8"]
    plan = ["evaluate", "--model", str(path), "--arch", "a100-80g", "--devices", "8", *fixed]
    notes = [note for note in run_json(plan, capsys)["setting"]["notes"] if note.startswith("heads of")]
    assert len(notes) == bool(says)
    assert all(note.startswith(says) for note in notes)


@pytest.mark.parametrize("degrees", [("1", "4"), ("2", "4")], ids=str)
def test_experts_of_a_traced_model_are_spread_as_those_of_its_config(degrees, tmp_path, capsys):
    """Steps differ by no more than work on vector lanes may."""
    name, sizes = "qwen3_moe-0", ["--devices", "16", "--global-batch", "64", "--pipeline", "1"]
    traced, config = tmp_path / "traced.json", tmp_path / "config.json"
    traced.write_text(extracted(name).text)
    config.write_text(json.dumps(configs()[name]))
    degree = ["--tensor-parallel", degrees[0], "--expert-parallel", degrees[1]]
    command = ["evaluate", "--arch", "h100", "--sequence-length", "512", "--top", "1", "--no-range", *sizes, *degree]
    one, other = (run_json([*command, "--model", str(path)], capsys)["plans"][0] for path in (traced, config))
    assert one["expert"] == other["expert"] == 4
    assert one["iteration_time_s"] == pytest.approx(other["iteration_time_s"], rel=0.01)
    assert one["peak_memory_bytes"] == pytest.approx(other["peak_memory_bytes"], rel=0.01)


@pytest.mark.parametrize("more", [(), ("--no-range",)])
def test_designs_are_not_cut_between_branches(more, capsys):
    """Whether a range is asked for or not: designs are priced as searches and certificates have them."""
    chip = "num_tc=2,tc_width=64,tc_depth=64,num_vc=2,glb_mb=8,hbm_gb=32"
    job = ["evaluate", "--model", "tiny", "--arch", chip, "--devices", "2", "--global-batch", "8", *more]
    refused([*job, "--cuts", "branches"], capsys, "--cuts: 'branches' is for machines that exist")
