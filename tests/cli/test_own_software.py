"""A software of the user's own: fitted, named and priced in a command each; and one that nobody measured."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from command_runs import refused, run, run_json

from phaze_opt.errors import InputError, RefusedPlanError
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.spreads import NAMED, UNSEEN, Spread, Spreads, load_spreads
from phaze_opt.jobs import evaluate as price_job
from phaze_opt.jobs.measurements import software_of_groups, with_own_software
from phaze_opt.validation.dataset import read_datasets

HEADER = (
    "hardware,n_devices,layers,hidden,heads,seq,global_batch,micro_batch,sharding,dtype,recompute,software,iter_time_s"
)
JOB = ("evaluate", "--model", "llama-3-8b", "--arch", "h100", "--devices", "8", "--global-batch", "64", "--no-range")
DEGREES = ("--tensor-parallel", "1", "--pipeline", "1", "--micro-batch", "1")


@pytest.fixture
def steps(tmp_path):
    """Steps that take twice as long as the package says of the software that they are most like."""
    path = tmp_path / "mine.csv"
    seconds = (1.2, 2.4, 4.8, 9.6)
    rows = [f"h100,8,32,4096,32,2048,{32 << n},4,fsdp,bf16,none,somebodys,{2 * s}" for n, s in enumerate(seconds)]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def test_a_software_is_fitted_and_then_goes_by_its_name(steps, tmp_path, capsys):
    out = tmp_path / "c.json"
    options = ("--data", steps, "--software", "Somebodys", "--out", out, "--no-held-out")
    found = run_json(["calibrate", *options], capsys)["families"]["modern-training"]
    (group,) = found["groups"]
    assert group == "stack/llm-foundry-h100/somebodys"
    before = run_json(["validate", "--data", steps], capsys)["datasets"]["mine"]
    after = run_json(["validate", "--data", steps, "--constants", out], capsys)["datasets"]["mine"]
    assert before["bias"] < -20
    assert after["mape"] < min(10, before["mape"])
    assert after["middles"] == []
    assert before["middles"]
    named = run_json([*JOB, *DEGREES, "--software", "SOMEBODYS", "--constants", out], capsys)
    base = run_json([*JOB, *DEGREES, "--software", "llm-foundry-h100"], capsys)
    assert named["setting"]["software"] == group.removeprefix("stack/")
    rates = [each["throughput_samples_per_s"] for each in (named, base)]
    assert rates[0] < 0.9 * rates[1]


def test_a_name_that_is_taken_is_refused(steps, tmp_path, capsys):
    options = ("calibrate", "--data", steps, "--out", tmp_path / "c.json", "--software", "TorchTitan")
    refused(options, capsys, "--software", "cannot be the name")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_order_of_rows_does_not_decide_what_a_software_extends(tmp_path, capsys, order):
    path, lines = tmp_path / "mine.csv", ["h100,8,32,4096,32,2048,32,4,fsdp,bf16,none,,2.4"]
    lines.append("h100,8,32,4096,32,2048,32,4,optimizer states,bf16,none,,2.4")
    path.write_text("\n".join([HEADER, *(lines[place] for place in order)]) + "\n")
    options = ("--data", path, "--software", "mine", "--out", tmp_path / "c.json", "--no-held-out")
    assert list(run_json(["calibrate", *options], capsys)["families"]["modern-training"]["groups"]) == [
        "stack/llm-foundry-h100/mine"
    ]


def test_rows_without_the_column_are_of_it_and_rows_that_name_another_stay(steps, tmp_path, capsys):
    """When it is fitted, and when its constants are used."""
    lines = steps.read_text().replace(",somebodys,", ",,").splitlines()
    other = lines[1].replace(",none,,", ",none,torchtitan,")
    steps.write_text("\n".join([*lines, other]) + "\n")
    out = tmp_path / "c.json"
    options = ("--data", steps, "--software", "mine", "--out", out, "--no-held-out")
    (family,) = run_json(["calibrate", *options], capsys)["families"].values()
    assert "stack/llm-foundry-h100/mine" in family["groups"]
    group = json.loads(out.read_text())["groups"]["stack/llm-foundry-h100/mine"]
    assert [len(rows) for rows in group["datasets"].values()] == [4]
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(lines) + "\n")
    found = run_json(["validate", "--data", bare, "--constants", out], capsys)["datasets"]["bare"]
    assert found["middles"] == []
    assert found["mape"] < 10
    steps.write_text("\n".join([lines[0], other]) + "\n")
    code, _, err = run(["calibrate", *options], capsys)
    assert code == 2
    assert "--software: no row is of 'mine'" in err


def test_a_name_that_nobody_knows_is_fitted_as_a_blank(steps):
    """One software a row, as rows that name none have it; a name that is known stays."""

    def software(name):
        steps.write_text(steps.read_text().replace(",somebodys,", f",{name},"))
        read = with_own_software(read_datasets(steps)[0], load_fitted(), is_calibrated=True)
        steps.write_text(steps.read_text().replace(f",{name},", ",somebodys,") if name else steps.read_text())
        return [row.text("software") for row in read[0].rows]

    assert software("somebodys") == ["llm-foundry-h100"] * 4
    assert software("torchtitan") == ["torchtitan"] * 4
    assert software("") == ["llm-foundry-h100"] * 4


def test_what_a_software_was_fitted_to_is_said_and_a_base_alone_is_no_software(steps, tmp_path, capsys):
    out = tmp_path / "c.json"
    run_json(["calibrate", "--data", steps, "--software", "mine", "--out", out, "--no-held-out"], capsys)
    named = run_json([*JOB, *DEGREES, "--software", "mine", "--constants", out], capsys)
    assert "were fitted to 4 rows of your own" in " ".join(each["sentence"] for each in named["notes"])
    file = json.loads(out.read_text())
    file["groups"]["stack/llm-foundry-h100/mine"]["residuals"] |= {
        "cross_validated_mape": 5.0,
        "leave_one_model_out_mape": 25.0,
    }
    out.write_text(json.dumps(file))
    ranged = [each for each in JOB if each != "--no-range"]
    found = run_json([*ranged, *DEGREES, "--software", "mine", "--constants", out], capsys)
    error = next(part for part in found["range"]["parts"] if part["name"] == "model error")
    rate = found["throughput_samples_per_s"]
    assert (error["low"], error["high"]) == pytest.approx((rate / 1.25, rate / 0.75))
    assert error["low_setting"] == "25.0 % of your rows kept out of the fit"
    other = run_json([*JOB, *DEGREES, "--software", "llm-foundry-h100/other"], capsys)
    assert "no software named 'llm-foundry-h100/other' was measured" in other["notes"][0]["sentence"]
    unused = run_json([*JOB, *DEGREES, "--software", "megatron-core", "--constants", out], capsys)
    (note,) = [each["sentence"] for each in unused["notes"] if each["key"] == "unused_fit"]
    assert note.endswith("mine and does not price megatron-core; --software names one of them")
    assert not any(each["key"] == "unused_fit" for each in named["notes"])


@pytest.fixture
def mycluster(tmp_path, capsys):
    """Constants fitted to invented steps of Llama 3 8B on 24 H200, with their errors kept out."""
    path, out = tmp_path / "runs.csv", tmp_path / "c.json"
    sizes = "h200,24,32,4096,32,8,14336,3,128256,4096"
    steps = {(384, 1, 1, 1): 6.93, (384, 2, 1, 1): 6.72, (384, 4, 1, 1): 6.8, (384, 1, 2, 1): 7.21}
    steps |= {(384, 2, 2, 1): 7.02, (192, 1, 4, 1): 4.02, (192, 2, 2, 3): 3.93, (192, 1, 1, 1): 3.6}
    rows = [f"{sizes},{','.join(map(str, plan))},optimizer states,bf16,none,{s}" for plan, s in steps.items()]
    header = (
        "hardware,n_devices,layers,hidden,heads,kv_heads,ffn,mlp_matrices,vocab,seq,global_batch,micro_batch,tp,pp,"
    )
    path.write_text("\n".join([f"{header}sharding,dtype,recompute,iter_time_s", *rows]) + "\n")
    run_json(["calibrate", "--data", path, "--software", "mycluster", "--out", out], capsys)
    return out


def test_own_constants_keep_ties_and_margins_and_speak_of_models_like_their_rows(mycluster, capsys):
    """Errors of the rows kept out tell plans apart; of models with experts, which no row is of, the package's do."""
    job = ["evaluate", "--arch", "h200", "--devices", "24", "--global-batch", "384", "--model"]
    own = ["--software", "mycluster", "--constants", mycluster]
    group = json.loads(mycluster.read_text())["groups"]["stack/megatron-core/mycluster"]
    dense = run_json([*job, "llama-3-8b", *own], capsys)
    error = group["residuals"]["cross_validated_mape"] / 100
    assert dense["setting"]["error_share"] == pytest.approx(error, rel=1e-3)
    assert (
        dense["range"]["parts"][0]["low_setting"]
        == f"{error:.1%}".replace("%", " %") + " of your rows kept out of the fit"
    )
    first, to_run = dense["plans"][0], dense["plan_to_run"]
    assert first["is_to_the_brim"]
    assert not to_run["is_to_the_brim"]
    assert to_run["iteration_time_s"] < first["iteration_time_s"] * (1 + error)
    experts = run_json([*job, "mixtral-8x7b", *own], capsys)
    package = run_json([*job, "mixtral-8x7b", "--software", "nanotron"], capsys)
    for key in ("error_share", "spread"):
        assert experts["setting"][key] == package["setting"][key] is not None
    said = {each["key"]: each["sentence"] for each in experts["notes"]}
    assert said["measured_elsewhere"].endswith("; none is of a model with experts")
    assert said["error"].startswith("steps of megatron-core with experts that were kept out of the fit")


def test_constants_of_experts_have_the_name_of_their_software():
    groups = ("stack/torchtitan/experts", "collectives/ndr", "stack/llm-foundry-h100/mine", "stack/torchtitan")
    assert software_of_groups(groups) == ["torchtitan", "mine"]


def test_of_software_without_rows_the_range_is_that_of_sources_kept_out(capsys, monkeypatch):
    spreads = Spreads({UNSEEN: Spread(0.8, 1.25, 1.1, 200, 14, "source")})
    for module in ("jobs.evaluate_plan", "objective.software_notes"):
        monkeypatch.setattr(f"phaze_opt.{module}.load_spreads", lambda: spreads)
    ranged = [each for each in JOB if each != "--no-range"]
    found = run_json([*ranged, *DEGREES, "--software", "nanotron"], capsys)
    (model,) = [each for each in found["range"]["parts"] if each["name"] == "model error"]
    value = found["throughput_samples_per_s"]
    assert (model["low"], model["high"]) == pytest.approx((value / 1.25, value / 0.8))
    assert any("no run of nanotron was measured" in each["sentence"] for each in found["notes"])


def test_a_software_that_nobody_measured_is_the_middle_of_those_that_suit(capsys):
    unknown = run_json([*JOB, *DEGREES, "--software", "somebodys"], capsys)
    note = next(each for each in unknown["notes"] if each["key"] == "software")["sentence"]
    assert "no software named 'somebodys' was measured" in note
    name = unknown["setting"]["software"]
    assert f"priced as {name}, the middle of" in note
    alone = run_json([*JOB, *DEGREES, "--software", name], capsys)
    assert alone["throughput_samples_per_s"] == unknown["throughput_samples_per_s"]


def test_a_software_that_is_named_has_the_range_of_steps_whose_software_was(capsys):
    """Named and measured: errors under its name; by rule, unmeasured or nobody's: errors of software as unknown."""
    known = load_spreads().entries

    def priced(*more):
        found = run_json([*JOB, *DEGREES, *more], capsys)
        return found["setting"]["spread"], next(each["sentence"] for each in found["notes"] if each["key"] == "error")

    spread, sentence = priced("--software", "TorchTitan")
    assert (spread["low"], spread["high"]) == (known[NAMED].low, known[NAMED].high)
    assert "its software named" in sentence
    for more in ((), ("--software", "nanotron"), ("--software", "somebodys")):
        spread, sentence = priced(*more)
        assert (spread["low"], spread["high"]) == (known[UNSEEN].low, known[UNSEEN].high)
        assert "taken as unknown" in sentence


def test_the_middle_says_whose_launcher_refuses_the_plan(capsys):
    """Sixteen tensor shards of eight key-value heads: whoever copies none is left out by a rule, and named."""
    job = ["evaluate", "--model", "llama-3-8b", "--arch", "h100", "--devices", "16", "--global-batch", "16"]
    job += ["--tensor-parallel", "16", "--zero", "3", "--no-range", "--software", "somebodys"]
    note = next(each for each in run_json(job, capsys)["notes"] if each["key"] == "software")["sentence"]
    middle, *left = note.split("; left out: ")
    assert [each.split(" takes ")[0] for each in left] == ["fms-fsdp", "torchtitan"]
    assert left[1].startswith("torchtitan takes key value heads in multiples of 16 ")
    assert not {"fms-fsdp", "torchtitan"} & set(middle.partition("priced as")[2].split())


def test_only_a_rule_of_a_launcher_leaves_software_out(monkeypatch):
    """What is at fault under one software for another reason is the answer, and none is left out in silence."""
    scenario = Scenario(software="")

    def priced(request):
        fault = {"b": RefusedPlanError("b takes 2"), "c": InputError("no such file")}.get(request.scenario.software)
        if fault is not None:
            raise fault
        return "priced"

    monkeypatch.setattr(price_job, "_price", priced)
    assert price_job._answers(Request(scenario), ("a", "b")) == ({"a": "priced"}, {"b": "b takes 2"})
    with pytest.raises(InputError, match="no such file"):
        price_job._answers(Request(scenario), ("a", "b", "c"))
    with pytest.raises(RefusedPlanError, match="b takes 2"):
        price_job._answers(Request(scenario), ("b",))


@dataclass(frozen=True)
class Scenario:
    software: str


@dataclass(frozen=True)
class Request:
    scenario: Scenario


class Machine(str):
    """Known by its name; its software asks nothing."""

    stack = SimpleNamespace(rules=())


def test_a_plan_that_fits_under_other_software_alone_is_priced_by_that(monkeypatch):
    """Constants of a user's own may make a plan the best that no suiting software has the memory for."""
    taken = {"suits": [], "fits": [SimpleNamespace(time=SimpleNamespace(seconds=2.0))]}
    monkeypatch.setattr(price_job, "suited_software", lambda plan, device, *, sequence_length: ("suits",))
    monkeypatch.setattr(
        price_job, "rank_plans", lambda model, training, plans, *, machine: SimpleNamespace(ranked=taken[machine])
    )
    training = SimpleNamespace(sequence_length=8)
    monkeypatch.setattr(price_job, "launch_sizes", lambda model, training, plan: {})
    jobs = {name: SimpleNamespace(model=None, training=training, machine=Machine(name)) for name in taken}
    answers = {name: SimpleNamespace(plans=SimpleNamespace(job=job)) for name, job in jobs.items()}
    request = SimpleNamespace(device=None, scenario=SimpleNamespace(global_batch=16))
    priced = price_job._middle_price(None, answers, request)
    assert (priced.software, priced.ranked, priced.rates) == ("fits", taken["fits"][0], {"fits": 8.0})
