"""``phaze-opt certify`` as its users call it; prover and checker are stand-ins, whose own tests are elsewhere."""

import json
import os
import shutil
from dataclasses import replace

import pytest
from command_runs import printed, refused, run, run_json
from kits.drawn_worlds import analyse_drawn_worlds
from kits.toy_proof import ToyProver
from sample_files import space_text

from phaze_opt.certify import standing
from phaze_opt.certify.certificate import Claim
from phaze_opt.certify.check import check as checking
from phaze_opt.certify.check.report import CheckReport, CheckStage
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.errors import CertificateError, InputError, SolverError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.jobs import proof
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.progress import Progress
from phaze_opt.space.known_spaces import load_space
from phaze_opt.study.directory import truths_directory
from phaze_opt.study.result import Truth, TruthKind, TruthRecord
from phaze_opt.study.truth import keep_truth
from phaze_opt.workload.config import load_model

pytestmark = pytest.mark.usefixtures("undrawn")

SPACE = space_text(
    min_area_fraction=0.0,
    num_tc=[4, 16],
    tc_width=[64, 128],
    tc_depth=[64],
    glb_mb=[8, 16],
    hbm_gb=[80],
    micro_batch=[1, 4],
)
NUM_POINTS = 16
CERTIFY = ["certify", "--no-check", "--devices", "16", "--global-batch", "64", "--as", "phaze"]
TINY = ["--model", "tiny"]


@pytest.fixture
def use(monkeypatch):
    """Puts a prover in place of the package's."""

    def replace_prover(prover):
        monkeypatch.setattr(proof, "certify", prover)
        return prover

    return replace_prover


@pytest.fixture
def arguments(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    return [*CERTIFY, *TINY, "--space", str(tmp_path / "space.toml"), "--work-dir", str(tmp_path / "work")]


def test_json_is_one_line_with_what_is_proved(arguments, use, capsys, tmp_path):
    use(ToyProver())
    data = run_json([*arguments, "--no-tracking"], capsys)
    assert {"ilp_solves", "wall_s"} <= data.keys()
    assert data["points"] == data["num_solved"] == data["placements"] == NUM_POINTS
    assert data["gap"] == 0.0
    assert data["is_proved"] is True
    assert data["throughput_samples_per_s"] == data["upper_bound_samples_per_s"] == data["value"]
    assert data["file"].startswith(str(tmp_path / "work" / "phaze-opt-certificates"))
    assert data["architecture"]["glb_mb"] == data["best"]["architecture"]["glb_mb"] == 8
    assert data["architecture"] == data["best"]["architecture"]
    assert data["designs"][0]["architecture"]["micro_batch"] == data["micro_batch"]
    ranks = [design["rank"] for design in data["designs"]]
    assert ranks == sorted(ranks)
    assert ranks.count(1) == data["num_best"]["at_least"] == data["num_best"]["at_most"]
    assert [flat["within"] for flat in data["flatness"]] == [0.001, 0.01, 0.05]


def test_the_runner_up_is_explained_by_its_evaluation(arguments, use, capsys):
    prover = use(ToyProver())
    seen = {}
    use(lambda problem, *rest, **more: seen.update(p=problem) or prover(problem, *rest, **more))
    data = run_json([*arguments, "--no-tracking"], capsys)
    problem = seen["p"]
    objective = Objective(problem.scenario)
    evaluations = sorted(
        (objective.evaluate(point) for point in problem.space.points()), key=lambda one: -one.throughput_samples_per_s
    )
    best = evaluations[0]
    second = next(
        one for one in evaluations if one.throughput_samples_per_s < best.throughput_samples_per_s * (1 - 1e-9)
    )
    runner_up = data["runner_up"]
    assert runner_up["falls_short"] == pytest.approx(
        1 - second.throughput_samples_per_s / best.throughput_samples_per_s
    )
    assert runner_up["longer_iteration_s"] == pytest.approx(second.iteration_time_s - best.iteration_time_s)
    assert sum(runner_up["causes"].values()) == pytest.approx(runner_up["longer_iteration_s"])
    assert "in place of" in runner_up["why"]


KNOWN_OPTIMA = (
    (TruthKind.CERTIFIED, 1.25, 0.0, "is worth"),
    (TruthKind.ENUMERATED, 1.25, 0.0, "is worth"),
    (TruthKind.CERTIFIED, 0.99, 0.02, ""),
    (TruthKind.ENUMERATED, 0.5, 0.0, "optimum of this space allows"),
    (TruthKind.CERTIFIED, 0.5, 0.02, "optimum of this space allows"),
)
"""Kind, share of what is attained and gap of a known optimum, and what a search that contradicts it says."""


def test_a_search_that_contradicts_the_known_optimum_says_that_it_is_wrong(arguments, use, capsys, tmp_path):
    """It attains more than the optimum allows, or less at the optimum's own point."""
    use(ToyProver())
    data = run_json([*arguments, "--no-tracking"], capsys)
    shutil.rmtree(tmp_path / "work" / "phaze-opt-certificates")
    axes = {**data["architecture"], "micro_batch": data["micro_batch"]}
    point = next(
        point
        for point in load_space(tmp_path / "space.toml").points()
        if all(getattr(point, name) in (value, 0) for name, value in axes.items() if hasattr(point, name))
    )
    search = ["search", *arguments[2:], "--no-tracking", "--resume", "--strategy"]
    every, poor = [*search, "exhaustive", "--trials", str(NUM_POINTS)], [*search, "random", "--trials", "1", "--json"]
    for kind, share, gap, fault in KNOWN_OPTIMA:
        truth = Truth(kind, share * data["value"], point, gap=gap)
        record = TruthRecord(data["problem_digest"], truth, NUM_POINTS, NUM_POINTS, 0.0, "1.0", 1.0)
        shutil.rmtree(truths_directory(tmp_path / "work"), ignore_errors=True)
        keep_truth(record, cache_dir=truths_directory(tmp_path / "work"))
        code, out, err = run([*every, "--json"], capsys)
        assert code == 0, err
        assert json.loads(out)["regret"] == (None if fault else 0.0)
        assert ("counts for nothing" in err) is bool(fault)
        assert fault in " ".join(err.split())
        code, out, err = run(poor, capsys)
        if fault == "is worth":
            assert (code, json.loads(out)["regret"]) == (0, None), "though no trial was at the optimum's point"
            assert fault in " ".join(err.split())
        words = " ".join(run(every, capsys)[1].split())
        assert ("by a certificate in this directory" in words) is not bool(fault)


def test_throughput_per_tdp(arguments, use, capsys):
    use(ToyProver(looseness=0.0005))
    data = run_json([*arguments, "--no-tracking", "--objective", "throughput_per_tdp"], capsys)
    assert data["objective"] == Goal.THROUGHPUT_PER_TDP.value
    assert data["value"] == pytest.approx(data["best"]["throughput_per_tdp"])
    assert data["upper_bound"] == pytest.approx(data["value"] * 1.0005)
    assert data["upper_bound_samples_per_s"] == pytest.approx(data["throughput_samples_per_s"] * 1.0005)


def test_words_for_people(arguments, use, capsys, tmp_path):
    use(ToyProver())
    page = tmp_path / "page.html"
    code, out, err = run([*arguments, "--report", str(page), "--no-tracking", "--details"], capsys)
    assert code == 0, err
    for words in ("Proved: of all 16 points", "Best 10 designs", "How flat", "runner-up", "--check", "in place of"):
        assert words in out
    assert err == ""
    text = page.read_text()
    for words in ("the certified optimum", "How flat the top is", "plot-gap", "plot-breakdown", "runner-up"):
        assert words in text


def test_models_share_a_design(arguments, use, capsys):
    use(ToyProver())
    index = arguments.index("--model")
    shared = [*arguments[:index], "--models", "tiny,bert-large", *arguments[index + 2 :]]
    data = run_json([*shared, "--no-tracking"], capsys)
    assert [member["model"] for member in data["best"]["members"]] == ["tiny", "bert-large"]
    rates = [member["throughput_samples_per_s"] for member in data["best"]["members"]]
    assert data["value"] == pytest.approx(sum(rates) / 2)
    assert data["runner_up"]["model"] in ("tiny", "bert-large")


def test_what_is_not_proved_is_said_and_exits_with_0(arguments, use, capsys):
    use(ToyProver(looseness=0.02))
    code, out, err = run([*arguments, "--json", "--no-tracking"], capsys)
    assert code == 0
    assert json.loads(out)["is_proved"] is False
    assert "not proved within the tolerance of 0.1 %: the gap is 2 %" in err
    _, out, _ = run([*arguments, "--no-tracking"], capsys)
    assert "; not proved within 0.1 %: none of all 16 points exceeds" in " ".join(out.split())


def test_infeasible_is_exit_code_3(arguments, use, capsys):
    use(ToyProver())
    data = run_json([*arguments, "--no-tracking", "--max-tdp-w", "1"], capsys, code=3)
    assert (data["architecture"], data["is_feasible"], data["throughput_samples_per_s"]) == (None, False, None)
    code, out, err = run([*arguments, "--no-tracking", "--max-tdp-w", "1"], capsys)
    assert code == 3
    assert "infeasible" in err
    assert "none of the 16 points of this space is feasible" in out


def test_a_budget_that_leaves_no_architecture_is_infeasible(arguments, capsys, tmp_path):
    assert run_json([*arguments, "--max-area-mm2", "0.001"], capsys, code=3)["architecture"] is None
    assert not (tmp_path / "work").exists()


def test_ctrl_c_says_how_to_go_on(arguments, use, capsys):
    use(ToyProver(stop_at=5))
    data = run_json([*arguments, "--no-tracking"], capsys, code=130)
    assert (data["is_interrupted"], data["num_solved"]) == (True, 5)
    refused([*arguments, "--no-tracking"], capsys, "--resume", code=130)


def test_robust_adds_worlds(arguments, use, capsys, monkeypatch, tmp_path):
    use(ToyProver())
    monkeypatch.setattr(proof, "analyse_robustness", analyse_drawn_worlds)
    more = ["--robust", "--robust-samples", "1", "--no-tracking", "--micro-batch", "4"]
    _, out, err = run([*arguments, *more, "--json"], capsys)
    robust = json.loads(out)["robust"]
    assert err == ""
    assert len(robust["worlds"]) == 1 + 2**4 + len(robust["alternatives"]) + 1
    assert robust["worlds"][0]["value"] == json.loads(out)["value"]
    least = next(design for design in robust["designs"] if "min-max regret" in design["roles"])
    assert robust["minimax"]["regret"] == least["worst_regret"] == max(least["regrets"])
    first = next(design for design in robust["designs"] if "nominal rank 1" in design["roles"])
    assert least["worst_regret"] <= first["worst_regret"]
    num_within = sum(regret <= 0.01 for regret in first["regrets"])
    assert robust["conclusions"][0]["share"] == num_within / len(robust["worlds"])
    page = tmp_path / "page.html"
    _, out, _ = run([*arguments, *more, "--report", str(page)], capsys)
    for words in ("Which conclusions survive", "Regret of good designs", "min-max-regret", "robust.json"):
        assert words in out
    assert "Which conclusions survive" in page.read_text()


def interrupted_kernel():
    """As numba leaves it."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as cause:
        raise SystemError("returned a result with an exception set") from cause


def interrupted_compilation():
    """As numba leaves it when Ctrl-C comes while it loads a kernel."""
    try:
        raise KeyboardInterrupt
    finally:
        raise RuntimeError("no compiled object yet")


@pytest.mark.parametrize("interrupted", [interrupted_kernel, interrupted_compilation])
def test_ctrl_c_within_a_kernel_is_ctrl_c(interrupted, arguments, use, capsys, certificate, monkeypatch):
    use(lambda *_, **__: interrupted())
    refused([*arguments, "--no-tracking"], capsys, "--resume", code=130)
    monkeypatch.setattr(checking, "check_certificate", lambda *_, **__: interrupted())
    code, _, err = run(["certify", "--check", str(certificate[0])], capsys)
    assert (code, err) == (130, "phaze-opt: interrupted; a check keeps nothing: run it again\n")
    use(ToyProver(error=SystemError("broken")))
    refused([*arguments, "--no-tracking"], capsys, "SystemError", "broken", code=1)


def test_ctrl_c_among_the_worlds_says_how_to_go_on(arguments, use, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    use(ToyProver())
    monkeypatch.setattr(proof, "analyse_robustness", interrupted)
    refused([*arguments, "--robust", "--no-tracking"], capsys, "--resume", code=130)


def test_options_reach_the_prover(arguments, use, capsys, tmp_path):
    seen = {}

    def prover(problem, options, *, on_progress=None):
        seen.update(problem=problem, options=options)
        return ToyProver()(problem, options, on_progress=on_progress)

    use(prover)
    more = ["--tolerance", "0", "--jobs", "3", "--resume", "--exclusivity", "type", "--attention", "unfused"]
    more += ["--micro-batch", "2,8", "--hbm", "32,64", "--schedule-gap", "0", "--recompute", "never"]
    printed([*arguments, *more, "--json", "--no-tracking"], capsys)
    options, scenario = seen["options"], seen["problem"].scenario
    assert (options.tolerance, options.jobs, options.is_resumed) == (0.0, 3, True)
    assert options.directory == tmp_path / "work" / "phaze-opt-certificates"
    assert (scenario.exclusivity, scenario.attention, scenario.recompute) == ("type", "unfused", "never")
    assert scenario.schedule_gap == 0.0
    assert seen["problem"].space.axes.micro_batch == (2, 8)
    assert seen["problem"].space.axes.hbm_bytes == (32 << 30, 64 << 30)


def test_places_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    refused([*CERTIFY, *TINY, "--work-dir", str(tmp_path / "file")], capsys, "--work-dir")
    where = ["--work-dir", str(tmp_path / "work"), "--report", str(tmp_path / "file" / "page.html")]
    refused([*CERTIFY, *TINY, *where], capsys, "--report", "file")
    assert not (tmp_path / "work").exists()


def test_what_the_prover_refuses_leaves_no_record(arguments, use, capsys, tmp_path):
    use(ToyProver(error=InputError("nothing to resume; run it without --resume")))
    refused(arguments, capsys, "nothing to resume")
    assert not (tmp_path / "work" / "phaze-opt-runs").exists()


def test_a_failing_solver_is_one_sentence(arguments, use, capsys):
    use(ToyProver(error=SolverError("no answer")))
    err = refused([*arguments, "--no-tracking"], capsys, code=1)
    assert err == "phaze-opt: SolverError: no answer\n"


def test_a_failing_tracker_changes_nothing(arguments, use, capsys, monkeypatch):
    use(ToyProver())
    first = run_json([*arguments, "--no-tracking"], capsys)

    class Broken:
        name = "broken"
        tracking_uri = "nowhere"

        def open(self, config):
            return self

        open_certificate = open

        def __getattr__(self, name):
            raise RuntimeError(name)

    monkeypatch.setattr("phaze_opt.track.protocol.load_plugin", lambda group, name: Broken())
    code, out, err = run([*arguments, "--json"], capsys)
    assert (code, "tracking" in err) == (0, True)
    assert {**json.loads(out), "tracking_uri": ""} == {**first, "tracking_uri": ""}


CLAIM = Claim(True, 3, None, 100.0, 100.05, 100.0, 0.0005, 0.001, True, 64, 5)


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    """A directory, and a checker that accepts it."""
    directory = tmp_path / "certificate"
    directory.mkdir()
    (directory / "certificate.json").write_text("{}")
    seen = []

    def accept(path, *, on_progress):
        seen.append(path)
        on_progress(Progress(CheckStage.BOUNDS, 1, 2))
        return CheckReport(path, ("tiny",), Goal.THROUGHPUT, CLAIM, 60, 4, 0, 0, 7, 1, 2, 30, 0.5)

    monkeypatch.setattr(checking, "check_certificate", accept)
    return directory, seen


def test_a_certificate_that_holds(certificate, capsys):
    directory, seen = certificate
    out = printed(["certify", "--check", str(directory)], capsys)
    assert " ".join(out.split()).startswith(
        "Valid: for tiny the best of 64 points attains 100 samples/s and none exceeds 100.05"
    )
    data = run_json(["certify", "--check", str(directory / "certificate.json")], capsys)
    assert (data["valid"], data["reason"], data["claim"]["value_upper"]) == (True, "", 100.05)
    assert seen == [directory, directory / "certificate.json"]


def test_a_certificate_that_is_refused(certificate, capsys, monkeypatch):
    directory, _ = certificate

    def refuse(path, *, on_progress):
        raise CertificateError("its upper bound is lower than its multipliers give", file="points.parquet", row=12)

    monkeypatch.setattr(checking, "check_certificate", refuse)
    refused(["certify", "--check", str(directory)], capsys, "points.parquet, row 12", "refused")
    code, out, err = run(["certify", "--check", str(directory), "--json"], capsys)
    data = json.loads(out)
    assert code == 2
    assert (data["valid"], data["claim"]) == (False, None)
    assert "row 12" in data["reason"]
    assert "row 12" in err


def test_an_infeasible_claim_can_be_checked(certificate, capsys, monkeypatch):
    directory, _ = certificate
    claim = replace(CLAIM, is_feasible=False, incumbent=-1, value=0.0, value_upper=0.0, gap=0.0)
    report = CheckReport(directory, ("tiny",), Goal.THROUGHPUT, claim, 0, 0, 64, 0, 0, 0, 0, 0, 0.5)
    monkeypatch.setattr(checking, "check_certificate", lambda *_, **__: report)
    _, out, _ = run(["certify", "--check", str(directory)], capsys)
    assert "none of 64 points is feasible" in out


def small_problem(tmp_path):
    constants = load_constants()
    (tmp_path / "space.toml").write_text(SPACE)
    cluster = Cluster(16, load_network("two-level", num_devices=16, constants=constants))
    scenario = Scenario((load_model("tiny"),), cluster, 64)
    return CertifyProblem(scenario, load_space(tmp_path / "space.toml"), constants)


def test_the_runner_up_is_found_beyond_designs_that_tie(tmp_path):
    """As if the table ended before it: the same one is found by evaluating from the highest bound down."""
    problem = small_problem(tmp_path)
    result = ToyProver(looseness=0.01)(problem, CertifyOptions(directory=tmp_path))
    num_tied = sum(design.rank == 1 for design in result.best)
    whole = standing.find_second(result, problem)
    cut = standing.find_second(replace(result, best=result.best[:num_tied]), problem)
    assert cut.is_certain
    assert cut.design.value == whole.design.value
    assert cut.design.rank == whole.design.rank == num_tied + 1
    assert standing.find_second(replace(result, best=()), problem) is None


def test_a_search_for_the_runner_up_that_is_cut_short_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(standing, "MAX_EVALUATIONS", 1)
    problem = small_problem(tmp_path)
    result = ToyProver(looseness=0.9)(problem, CertifyOptions(directory=tmp_path))
    cut = standing.find_second(replace(result, best=result.best[:2]), problem)
    assert cut is None or not cut.is_certain


def test_a_folder_without_a_certificate_names_those_below_it(capsys, tmp_path):
    for age, name in enumerate(("robust/second", "first", "robust/third")):
        file = tmp_path / name / ("certificate.json" if name == "first" else "front.json")
        file.parent.mkdir(parents=True)
        file.write_text("{}")
        os.utime(file, (1000 - age, 1000 - age))
    said = refused(["certify", "--check", tmp_path], capsys)
    places = [str(tmp_path / name) for name in ("robust/second", "first", "robust/third")]
    assert f"holds no certificate; {tmp_path} has {', '.join(places)}: give one of them" in said
    said = refused(["certify", "--check", tmp_path / "robust" / "fourth"], capsys)
    assert f"does not exist; {tmp_path / 'robust'} has {places[0]}, {places[2]}: give one of them" in said
