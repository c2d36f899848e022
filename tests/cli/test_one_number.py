"""`phaze-opt evaluate`: one job has one number, however it is spelled and whatever is shown beside it."""

from itertools import islice

import pytest
from command_runs import printed, refused, run_json
from sample_files import space_text

from phaze_opt.hardware.device_catalogue import list_devices, load_device
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.jobs import evaluate as price_job
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.headline_range import analyse_sensitivity
from phaze_opt.objective.scenario import CommonMean, build_scenario
from phaze_opt.objective.scenario_options import ScenarioOptions
from phaze_opt.record.plain_data import from_plain
from phaze_opt.report.text import format_share, format_time
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan

RANGED = ["evaluate", "--model", "bert-large", "--devices", "16", "--global-batch", "64", "--sequence-length", "512"]
JOB = [*RANGED, "--no-range"]
FEW = ["--tensor-parallel", "1,2", "--micro-batch", "2,4"]
FRONT = ["--objective", "throughput,tdp,area,cost"]
NUMBERS = ("status", "iteration_time_s", "throughput_samples_per_s", "mfu", "area_mm2", "tdp_w", "placement", "setting")
SHOWN = (
    ["--no-range", "--top", "40", "--baseline", "mi300x"],
    ["--no-range", "--baseline", "a100-80g,phaze-tpu-v4", "--top", "1"],
)
"""Options that show more or less."""
ARCHITECTURES = {
    "real": ["--arch", "h100", *FEW],
    "real, never measured": ["--arch", "mi300x", *FEW],
    "design": ["--arch", "phaze-tpu-v4", "--micro-batch", "4", "--tensor-parallel", "1,2"],
    "design with a plan": ["--arch", "phaze-tpu-v4", "--zero", "1", "--micro-batch", "2", "--tensor-parallel", "2"],
    "design as published": ["--arch", "phaze-tpu-v4", "--as", "phaze"],
}


@pytest.mark.parametrize(
    "arch", [pytest.param(each, marks=pytest.mark.slow if "never" in each else ()) for each in ARCHITECTURES]
)
def test_what_is_shown_changes_no_number(arch, capsys) -> None:
    job = [*RANGED, *ARCHITECTURES[arch]]
    plain = run_json(job, capsys)
    for more in SHOWN:
        answer = run_json([*job, *more], capsys)
        assert {name: answer[name] for name in NUMBERS} == {name: plain[name] for name in NUMBERS}, more
        count = min(len(plain["plans"]), len(answer["plans"]))
        assert answer["plans"][:count] == plain["plans"][:count], more


def test_varying_assumptions_changes_no_number(capsys, monkeypatch) -> None:
    """A few of them: the table of all is another test's."""
    monkeypatch.setattr(price_job, "analyse_sensitivity", lambda case: islice(analyse_sensitivity(case), 5))
    few = ["--tensor-parallel", "1", "--micro-batch", "1", "--zero", "0", "--interleave", "1", "--recompute", "never"]
    alone = [
        "evaluate",
        "--model",
        "tiny",
        "--devices",
        "2",
        "--global-batch",
        "4",
        "--arch",
        "phaze-tpu-v4",
        "--no-range",
    ]
    job = [*alone, *few]
    plain, varied = run_json(job, capsys), run_json([*job, "--sensitivity"], capsys)
    assert len(varied.pop("sensitivity")) == 5
    assert varied.pop("price_sensitivity")
    assert varied == plain


@pytest.mark.parametrize("arch", ["h100", "phaze-tpu-v4"])
def test_tables_say_what_the_line_says(arch, capsys) -> None:
    job = [*JOB, "--arch", arch, "--tensor-parallel", "1", "--micro-batch", "4"]
    answer = run_json(job, capsys)
    text = printed(job, capsys)
    seconds = answer["iteration_time_s"]
    assert format_time(seconds) in text
    assert format_share(answer["mfu"]) in text


def test_a_real_machine_has_one_number_in_every_spelling(capsys) -> None:
    """Its name, what its maker's tools print, its own software, network, format and ZeRO stages said or not."""
    plain = run_json([*JOB, "--arch", "h100"], capsys)
    assert plain["setting"]["software"] == "megatron-core"
    for more in (
        ["--arch", "NVIDIA H100 80GB HBM3", "--software", "megatron-core"],
        ["--arch", "h100", "--network", "dgx-h100", "--dtype", "bf16"],
        ["--arch", "h100", "--zero", "0,1,2,3", "--plans", "full", "--recompute", "auto", "--optimizer", "adam"],
        ["--arch", "h100", "--micro-batch", "1,2,4,8,16", "--tensor-parallel", "1,2,4,8"],
    ):
        answer = run_json([*JOB, *more], capsys)
        assert answer["plans"] == plain["plans"], more
        assert answer["iteration_time_s"] == plain["iteration_time_s"]
    best = plain["plans"][0]
    assert plain["iteration_time_s"] == best["iteration_time_s"]
    assert plain["mfu"] == pytest.approx(best["mfu"], rel=1e-12)
    degrees = ("pipeline", "data", "micro_batch", "interleave", "zero")
    fixed = [item for name in degrees for item in (f"--{name.replace('_', '-')}", best[name])]
    alone = run_json([*JOB, "--arch", "h100", *fixed, "--tensor-parallel", best["tensor"]], capsys)
    assert alone["iteration_time_s"] == pytest.approx(plain["iteration_time_s"], rel=1e-12)


@pytest.mark.parametrize("name", ["h100", "a100-80g", "v100", "mi210", "mi300x", "tpu-v4", "tpu-v5p"])
def test_a_real_machine_shows_its_own_die_and_watts(name, capsys) -> None:
    device = load_device(name)
    job = [*JOB, *FEW, "--arch", name]
    answer = run_json(job, capsys)
    assert (answer["area_mm2"], answer["tdp_w"]) == (device.die_mm2 or None, device.tdp_w or None)
    rate = answer["throughput_per_tdp"]
    if device.tdp_w:
        assert rate == pytest.approx(answer["throughput_samples_per_s"] / (16 * device.tdp_w))
    else:
        assert rate is None
        assert "not published" in printed([*job, "--details"], capsys)


def test_published_figures_are_those_of_data_sheets() -> None:
    published = {
        "h100": (814.0, 700.0), "a100-80g": (826.0, 400.0), "v100": (815.0, 300.0), "mi210": (724.0, 300.0),
        "mi300x": (0.0, 750.0), "tpu-v4": (600.0, 192.0), "tpu-v5e": (0.0, 0.0),
    }  # fmt: skip
    assert {name: (load_device(name).die_mm2, load_device(name).tdp_w) for name in published} == published
    assert set(published) <= set(list_devices())


@pytest.mark.parametrize("arch", ["h100", pytest.param("tpu-v5p", marks=pytest.mark.slow)])
def test_each_of_several_models_has_the_best_plan_of_its_own(arch, capsys) -> None:
    job = f"evaluate --devices 16 --global-batch 64 --arch {arch} --baseline mi300x --no-range".split() + FEW
    both = run_json([*job, "--model", "bert-large,gpt2-xl"], capsys)
    alone = [run_json([*job, "--model", name], capsys) for name in ("bert-large", "gpt2-xl")]
    for member, one in zip(both["members"], alone, strict=True):
        assert member["plans"] == one["plans"]
        assert member["iteration_time_s"] == one["iteration_time_s"]
    mean = sum(one["throughput_samples_per_s"] for one in alone) / 2
    assert both["throughput_samples_per_s"] == pytest.approx(mean)
    assert both["mfu"] == pytest.approx(sum(one["mfu"] for one in alone) / 2)
    assert both["setting"]["tokens"] == sum(one["setting"]["tokens"] for one in alone)
    assert both["tdp_w"] == alone[0]["tdp_w"]
    assert set(both) == set(alone[0])
    baselines = [one["baselines"][0]["throughput_samples_per_s"] for one in alone]
    assert both["baselines"][0]["throughput_samples_per_s"] == pytest.approx(sum(baselines) / 2)
    text = printed([*job, "--model", "bert-large,gpt2-xl", "--details"], capsys)
    assert "Plans of bert-large on 16" in text
    assert "Each model on this design" in text


def test_the_published_form_is_asked_for_by_name(capsys) -> None:
    """A machine that exists as if designed, which the answer says; a design is no other for it."""
    as_designed = run_json([*JOB, "--arch", "h100", "--as", "phaze"], capsys)
    assert as_designed["setting"]["software"] == "ideal"
    assert (as_designed["plans"], as_designed["setting"]["is_real"]) == ([], False)
    text = " ".join(printed([*JOB, "--arch", "h100", "--as", "phaze"], capsys).split())
    assert "here it is priced as if designed" in text
    design = [*JOB, "--arch", "phaze-tpu-v4"]
    spelled = [*design, "--plans", "phaze", "--estimator", "analytic", "--silicon", "phaze"]
    assert run_json([*design, "--as", "phaze"], capsys) == run_json(spelled, capsys)
    assert run_json([*design, "--plans", "phaze"], capsys)["setting"]["estimator"] == "calibrated"
    refused([*design, "--plans", "phaze", "--zero", "1"], capsys, "--zero", "full plans", "--plans")
    refused([*design, "--as", "phaze", "--plans", "full"], capsys, "--plans", "not the published form's")
    refused([*design, "--as", "phaze", "--estimator", "calibrated"], capsys, "--estimator", "not the published form's")


def test_software_is_never_silently_ideal(capsys) -> None:
    for arch, software in (("mi300x", "megatron-core"), ("gaudi3", "maxtext"), ("phaze-tpu-v4", "maxtext")):
        answer = run_json([*JOB, *FEW, "--arch", arch], capsys)
        assert answer["setting"]["software"] == software
        notes = {note["key"]: note["sentence"] for note in answer["notes"]}
        assert f"software {software}, by rule" in notes["software"]
        assert f"{software} was not measured on {answer['setting']['machine']}" in notes["measured_elsewhere"]
        # An error that was measured elsewhere is said to be of there; of a machine that exists, of sources kept out.
        is_design = answer["setting"]["spread"] is None
        assert is_design == (arch == "phaze-tpu-v4")
        assert notes["error"].startswith(f"the mean errors of {software} on " if is_design else "steps of ")
    ideal = run_json([*JOB, *FEW, "--arch", "mi300x", "--software", "ideal"], capsys)
    assert (ideal["setting"]["software"], ideal["setting"]["error_share"]) == ("ideal", None)
    assert {plan["is_within_error"] for plan in ideal["plans"]} == {None}


def test_baselines_are_the_same_job_each_under_its_own_software(capsys) -> None:
    job = [*JOB, *FEW]
    answer = run_json([*job, "--arch", "h100", "--baseline", "mi300x, tpu-v4,phaze-tpu-v4"], capsys)
    assert [each["name"] for each in answer["baselines"]] == ["mi300x", "tpu-v4", "phaze-tpu-v4"]
    for each, software in zip(answer["baselines"], ("megatron-core", "maxtext-unfused", "maxtext"), strict=True):
        name = each["setting"]["machine"]
        alone, same = (
            run_json([*job, "--arch", name, *more], capsys) for more in ([], ["--software", "megatron-core"])
        )
        assert (each["name"], each["setting"]["software"]) == (name, software)
        assert each["iteration_time_s"] == alone["iteration_time_s"]
        assert each["throughput_ratio"] == pytest.approx(answer["iteration_time_s"] / alone["iteration_time_s"])
        assert each["plans"] == alone["plans"][:1]
        assert each["same_software_throughput_samples_per_s"] == same["throughput_samples_per_s"]
    text = printed([*job, "--arch", "h100", "--baseline", "mi300x"], capsys)
    row = next(line for line in text.splitlines() if line.startswith("mi300x"))
    assert ["n/p", "750"] in [row.split()[place : place + 2] for place in range(len(row.split()))]


@pytest.mark.parametrize("name", ["h100", "tpu-v4"])
def test_a_machine_has_one_speed_area_power_and_price_beside_whatever_it_stands(name, tmp_path, capsys) -> None:
    (tmp_path / "space.toml").write_text(space_text(min_area_fraction=0.0, num_tc=[1, 2], tc_width=[64], tc_depth=[64]))
    job = ["--model", "bert-large", "--devices", "16", "--global-batch", "64", "--micro-batch", "1,4", "--no-range"]
    posed = [*job, "--space", tmp_path / "space.toml", "--work-dir", tmp_path, "--no-tracking", "--baseline", name]
    alone = run_json(["evaluate", *job, "--arch", name], capsys)
    own = [alone[key] for key in ("throughput_samples_per_s", "area_mm2", "tdp_w")] + [alone["cost"]["device_usd"]]
    device = load_device(name)
    assert own[1:3] == [device.die_mm2, device.tdp_w]
    same = run_json(["evaluate", *job, "--arch", name, "--software", "maxtext"], capsys)["throughput_samples_per_s"]
    assert same != own[0]
    found = {}
    for command in (["search", *posed, "--trials", "2"], ["certify", *posed], ["certify", *posed, *FRONT]):
        line = run_json(command, capsys)
        entry, usd = line["references"][0], line["cost_references"][name]["device_usd"]
        found[" ".join(map(str, (command[0], *command[-1:])))] = entry | {"usd": usd}
    found["front"] = line["baselines"][0] | {"usd": line["baselines"][0]["cost_usd"]}
    design = "num_tc=4,num_vc=8,tc_width=128,tc_depth=128,glb_mb=32,hbm_gb=32"
    (entry,) = run_json(["evaluate", *job, "--arch", design, "--baseline", name], capsys)["baselines"]
    found["evaluate"] = entry | {"usd": entry["cost"]["device_usd"]}
    keys = ("throughput_samples_per_s", "area_mm2", "tdp_w", "usd")
    assert {where: [each[key] for key in keys] for where, each in found.items()} == dict.fromkeys(found, own)
    rates = {each["same_software_throughput_samples_per_s"] for each in found.values()}
    assert (rates, {each["name"] for each in found.values()}) == ({same}, {name})


def test_a_machine_has_the_micro_batches_of_a_space_file(tmp_path, capsys) -> None:
    text = space_text(min_area_fraction=0.0, num_tc=[1], tc_width=[64], tc_depth=[64], micro_batch=[1])
    (tmp_path / "space.toml").write_text(text)
    job = ["--model", "tiny", "--devices", "2", "--global-batch", "32", "--sequence-length", "128", "--no-range"]
    alone, free = (run_json(["evaluate", *job, "--arch", "h100", *more], capsys) for more in (["--mbs", "1"], []))
    posed = [*job, "--space", tmp_path / "space.toml", "--work-dir", tmp_path, "--no-tracking", "--baseline", "h100"]
    found = run_json(["search", *posed, "--trials", "1"], capsys)["references"][0]
    assert found["throughput_samples_per_s"] == alone["throughput_samples_per_s"] < free["throughput_samples_per_s"]


def test_phazes_tables_and_form_take_its_own_name_of_its_reference(capsys) -> None:
    for more in (["--as", "phaze"], ["--silicon", "phaze"]):
        lines = [run_json([*JOB, *FEW[:2], "--arch", name, *more], capsys) for name in ("tpu-v4", "phaze-tpu-v4")]
        assert lines[0] == lines[1]
        assert lines[0]["architecture"]["name"] == "phaze-tpu-v4"
    built = [run_json([*JOB, *FEW, "--arch", name], capsys) for name in ("tpu-v4", "tpu-v4-published", "TPUv4")]
    assert [each["setting"]["software"] for each in built] == 3 * ["maxtext-unfused"]
    assert built[0] == built[1] == built[2]


def test_designs_inline_are_baselines_beside_machines(capsys) -> None:
    """As searches print them: sizes belong to one design until one is named again."""
    small, large = (f"num_tc=16,num_vc=64,tc_width=128,tc_depth=128,glb_mb={mb},hbm_gb=80" for mb in (4, 32))
    few = [*JOB, "--micro-batch", "4", "--tensor-parallel", "1", "--zero", "1"]
    answer = run_json([*few, "--arch", "h100", "--baseline", f"{small},a100-80g, {large}"], capsys)
    assert [each["setting"]["machine"] for each in answer["baselines"]] == [
        "baseline 1", "a100-80g", "baseline 3"
    ]  # fmt: skip
    assert [each["architecture"]["glb_mb"] for each in answer["baselines"][::2]] == [4, 32]


def test_a_baseline_beside_a_placement_has_its_assumptions(capsys) -> None:
    """The published form too: a machine that exists is priced as if designed, a design as if asked for alone."""
    job = [*JOB, "--as", "phaze", "--micro-batch", "2"]
    answer = run_json([*job, "--arch", "phaze-tpu-v4", "--baseline", "h100,nvdla-like"], capsys)
    for name, baseline in zip(("h100", "nvdla-like"), answer["baselines"], strict=True):
        assert (baseline["setting"]["software"], baseline["setting"]["is_real"]) == ("ideal", False)
        alone = run_json([*job, "--arch", name], capsys)
        assert (baseline["iteration_time_s"], baseline["plans"]) == (alone["iteration_time_s"], [])


def test_a_baseline_that_does_not_fit_is_a_row(capsys) -> None:
    large = ["evaluate", "--model", "gpt3-175b", "--devices", "64", "--global-batch", "64", "--arch", "mi300x"]
    large += ["--tensor-parallel", "8", "--micro-batch", "1"]
    answer = run_json([*large, "--baseline", "t4"], capsys)
    (small,) = answer["baselines"]
    assert (small["status"], small["throughput_ratio"]) == ("out_of_memory", 0.0)
    text = " ".join(printed([*large, "--baseline", "t4"], capsys).split())
    assert "t4 is infeasible: none of" in text


def test_what_does_not_fit_has_the_same_keys(capsys) -> None:
    small = ["evaluate", "--model", "gpt3-175b", "--devices", "8", "--global-batch", "64", "--arch", "a100-80g"]
    line = run_json(small, capsys, code=3)
    assert (line["status"], line["plans"], line["placement"]) == ("out_of_memory", [], None)
    assert "GiB" in line["reason"]
    assert set(line) == set(run_json([*JOB, "--arch", "h100"], capsys))
    over = run_json([*JOB, "--arch", "h100", "--max-tdp-w", "600"], capsys, code=3)
    assert (over["status"], over["tdp_w"]) == ("over_tdp", 700.0)


def test_plans_to_the_brim_and_within_the_error_are_marked(capsys) -> None:
    """Each mark is what its definition says, worked out anew from the figures of the line."""
    job = ["evaluate", "--model", "gpt3-175b", "--devices", "512", "--global-batch", "2048", "--arch", "a100-80g"]
    job += ["--tensor-parallel", "8", "--micro-batch", "1,2"]
    answer = run_json([*job, "--top", "1000"], capsys)
    share, best = answer["setting"]["error_share"], answer["plans"][0]["iteration_time_s"]
    assert share == pytest.approx(answer["setting"]["spread"]["apart"] - 1.0)
    assert 0.05 < share < 0.3
    for plan in answer["plans"]:
        fullest = max(sum(stage.values()) for stage in plan["stages"])
        low, high = plan["memory_range_bytes"]
        assert (plan["peak_memory_bytes"], low, high) == pytest.approx((fullest, 0.86 * fullest, 1.12 * fullest))
        assert low <= answer["setting"]["memory_bytes"]
        assert plan["is_to_the_brim"] == (high > answer["setting"]["memory_bytes"])
        assert plan["is_within_error"] == (plan["iteration_time_s"] <= best * (1 + share))
        assert plan["memory_share"] == plan["peak_memory_bytes"] / answer["setting"]["memory_bytes"]
    marks = {name: [plan[name] for plan in answer["plans"]] for name in ("is_to_the_brim", "is_within_error")}
    assert all(set(values) == {True, False} for values in marks.values())
    text = printed([*job, "--top", "1000"], capsys)
    words = " ".join(text.split())
    assert "~ within" in words
    assert "! fills the memory to the brim" in words
    assert "Megatron-LM: --tensor-model-parallel-size" in words
    start = next(number for number, line in enumerate(text.splitlines()) if "t x p x d" in line) + 2
    ranks = [line.split()[0] for line in text.splitlines()[start : start + len(answer["plans"])]]
    assert ["!" in rank for rank in ranks] == marks["is_to_the_brim"]
    assert ["~" in rank for rank in ranks][1:] == marks["is_within_error"][1:]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--arch", "h100", "--sensitivity"], ("--sensitivity", "h100 exists")),
        (["--arch", "mi300x", "--max-area-mm2", "900"], ("--max-area-mm2", "not published of mi300x")),
        (["--arch", "h100", "--baseline", "h101"], ("--baseline", "h101")),
        (["--arch", "h100", "--baseline", "h200,,mi300x"], ("--baseline", "separated by commas")),
        (["--arch", "h100", "--baseline", "h200,h200"], ("--baseline", "each once")),
        (["--arch", "h100", "--dtype", "fp8", "--baseline", "a100-80g"], ("--baseline", "has no fp8 path")),
        (["--arch", "h100", "--estimator", "calibrated"], ("--estimator", "is for designed chips")),
    ],
)
def test_refusals(more, words, capsys) -> None:
    refused([*JOB, *more], capsys, *words)


@pytest.mark.parametrize("model", ["tiny", "mixtral-8x7b"])
def test_full_plans_of_a_design_are_those_of_searches(model, capsys) -> None:
    """The line prices every plan with every schedule solved; the objective of searches finds the same step."""
    devices, batch = 16, 16
    job = f"evaluate --model {model} --devices {devices} --global-batch {batch} --tensor-parallel 2 --no-range".split()
    code = 0 if model == "tiny" else 3
    answer = run_json([*job, "--arch", "phaze-tpu-v4", "--micro-batch", "1"], capsys, code=code)
    options = ScenarioOptions(devices=devices, global_batch=batch, tensor_parallel=(2,))
    network = load_network("two-level", num_devices=devices)
    scenario = build_scenario(
        options, (load_model(model),), network=network, common=CommonMean.ARITHMETIC, micro_batches=(1,)
    )
    objective = Objective(scenario)
    found = objective.plan(load_architecture("phaze-tpu-v4", constants=objective.constants))
    assert (found is None) == (answer["status"] == "out_of_memory")
    if found is not None:
        assert answer["iteration_time_s"] == pytest.approx(found.ranked.time.seconds, rel=1e-12)
        assert from_plain(ParallelPlan, answer["placement"]["plan"]) == found.ranked.plan
    assert answer["setting"]["software"] == scenario.stack.name


def test_a_design_whose_stages_differ_has_the_plan_of_searches(capsys) -> None:
    """Little memory: the first stages of the fastest plan recompute, the last does not."""
    arch = "num_tc=16,num_vc=64,tc_width=128,tc_depth=128,glb_mb=32,hbm_gb=8"
    job = ["evaluate", "--model", "llama-2-7b", "--devices", 16, "--global-batch", 64]
    answer = run_json([*job, "--arch", arch, "--micro-batch", "1", "--estimator", "analytic"], capsys)
    options = ScenarioOptions(devices=16, global_batch=64, estimator="analytic")
    network = load_network("two-level", num_devices=16)
    scenario = build_scenario(
        options, (load_model("llama-2-7b"),), network=network, common=CommonMean.ARITHMETIC, micro_batches=(1,)
    )
    objective = Objective(scenario)
    found = objective.plan(load_architecture(arch, constants=objective.constants)).ranked
    assert found.plan.stage_recompute
    assert answer["iteration_time_s"] == pytest.approx(found.time.seconds, rel=1e-12)
    assert from_plain(ParallelPlan, answer["placement"]["plan"]) == found.plan
    assert answer["plans"][0]["stages"][0]["activation_bytes"] != answer["plans"][0]["stages"][-1]["activation_bytes"]
