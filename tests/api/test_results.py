"""Functions against the commands, whose code prints what these return; and what every result can do."""

import json
import math
import multiprocessing
from dataclasses import asdict

import pandas as pd
import pytest
from child_process import run_python
from command_runs import run_json
from sample_files import space_text, study_text

import phaze_opt as po
from phaze_opt.api.shown import MAX_CHARACTERS, Result
from phaze_opt.errors import CertificateError, InputError
from phaze_opt.report.picture import Picture
from phaze_opt.search.samplers.optuna_sampler import RandomStrategy

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
MINE = """
from phaze_opt.search.samplers.optuna_sampler import RandomStrategy


class Mine(RandomStrategy):
    '''Draws points as random does.'''
    name = "mine"
"""
CHIP = {"num_tc": 16, "num_vc": 16, "tc_width": 128, "tc_depth": 64, "glb_mb": 8, "hbm_gb": 80}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where all of them work."""
    place = tmp_path_factory.mktemp("api")
    (place / "space.toml").write_text(SPACE)
    return place


@pytest.fixture(scope="module")
def tiny(folder):
    """A problem of sixteen points."""
    return {
        "model": "tiny", "devices": 16, "global_batch": 64, "published_form": "phaze", "space": folder / "space.toml",
        "work_dir": folder,
    }  # fmt: skip


@pytest.fixture(scope="module")
def proved(tiny):
    return po.certify(**tiny)


def flags(keywords):
    """The same problem on the command line."""
    renamed = {"published_form": "as"}
    words = {name: ",".join(map(str, each)) if isinstance(each, list) else str(each) for name, each in keywords.items()}
    pairs = [(f"--{renamed.get(name, name).replace('_', '-')}", value) for name, value in words.items()]
    return [word for pair in pairs for word in pair]


def assert_presents_itself(result, *, num_rows, has_figure=True):
    """Text, table, frame and figure of any result; plain numbers only."""
    assert isinstance(result, Result)
    assert len(repr(result)) < MAX_CHARACTERS
    assert all(type(value) in {str, int, float, bool, type(None)} for value in result.facts.values()), result.facts
    assert all(type(value) in {str, int, float, bool, type(None)} for row in result.rows() for value in row.values())
    frame = result.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == num_rows
    assert result._repr_html_().startswith("<table>")
    json.dumps(result.to_dict())
    if has_figure:
        assert result.plot()._repr_html_().startswith("<svg")


def test_evaluate_is_the_command(tiny, capsys):
    job = {"model": "tiny", "devices": 16, "global_batch": 64, "tokens": 1e9, "grid": "wind"}
    job |= {"tensor_parallel": [1, 2], "micro_batch": [2, 4]}
    priced = po.evaluate(**job, arch="h100", baseline=["a100-80g", "phaze-tpu-v4"], top=3)
    assert capsys.readouterr() == ("", "")
    printed = run_json(
        ["evaluate", *flags(job), "--arch", "h100", "--baseline", "a100-80g,phaze-tpu-v4", "--top", "3"], capsys
    )
    assert json.loads(json.dumps(priced.to_dict())) == printed
    assert priced.throughput_samples_per_s == printed["throughput_samples_per_s"]
    assert list(priced.range_samples_per_s) == [printed["range"]["low"], printed["range"]["high"]]
    assert [each.throughput_samples_per_s for each in priced.baselines] == [
        each["throughput_samples_per_s"] for each in printed["baselines"]
    ]
    assert priced.facts["device_usd"] == printed["cost"]["device_usd"]
    assert printed["cost"]["training_run"] is not None
    assert_presents_itself(priced, num_rows=3)
    assert len(priced.picture().layers[0].width) == 3


def test_plans_are_all_that_fit_fastest_first():
    listed = po.plans(model="tiny", arch="h100", devices=16, global_batch=64, tensor_parallel=[1, 2])
    frame = listed.to_frame()
    assert_presents_itself(listed, num_rows=listed.num_fitting)
    assert frame.iteration_time_s.is_monotonic_increasing
    assert set(frame.tensor) == {1, 2}
    best = frame.iloc[0]
    assert (best.tensor, best.data, best.micro_batch) == (listed.best.tensor, listed.best.data, listed.best.micro_batch)
    with pytest.raises(InputError) as fault:
        po.plans(model="tiny", arch="h100", devices=16, global_batch=64, plans="phaze")
    assert fault.value.key == "plans"


def test_what_does_not_fit_is_a_value():
    priced = po.evaluate(model="tiny", arch=CHIP, devices=16, global_batch=64, published_form="phaze", max_tdp_w=1)
    assert not priced.is_feasible
    assert "is_feasible=False" in repr(priced)
    assert_presents_itself(priced, num_rows=1)


def test_search_finds_what_run_search_finds(tiny, capsys):
    moved = []
    found = po.search(**tiny, trials=8, strategy="random", on_progress=lambda *step: moved.append(step))
    assert capsys.readouterr() == ("", "")
    assert moved[-1][:3] == ("trials", 8, 8)
    assert_presents_itself(found, num_rows=8)
    values = found.to_frame().value
    assert found.throughput_samples_per_s == max(values)
    again = po.evaluate(
        model="tiny", arch=found.arch, devices=16, global_batch=64, published_form="phaze",
        micro_batch=found.best.micro_batch,
    )  # fmt: skip
    assert again.throughput_samples_per_s == pytest.approx(found.throughput_samples_per_s, rel=1e-12)
    # What is recorded is what the command records: resumed on the command line, nothing is evaluated anew.
    line = ["search", *flags(tiny), "--trials", "8", "--strategy", "random", "--no-tracking", "--resume"]
    assert run_json(line, capsys)["search_id"] == found.result.search_id


def test_the_front_of_several_objectives_is_plotted(tiny):
    found = po.search(**tiny, trials=4, strategy="random", objective="pareto", has_range=False)
    assert {"value_0", "value_1"} <= set(found.to_frame().columns)
    assert isinstance(found.picture(), Picture)


def test_a_proof_is_the_best_of_all_points_and_checks_itself(proved, tiny, capsys):
    everything = po.search(**tiny, trials=NUM_POINTS, strategy="exhaustive", has_range=False)
    assert proved.is_proved
    assert proved.throughput_samples_per_s == max(everything.to_frame().value)
    assert everything.regret == 0.0
    assert_presents_itself(proved, num_rows=len(proved.result.best))
    checked = proved.check()
    assert_presents_itself(checked, num_rows=1, has_figure=False)
    assert asdict(po.certify(check=proved.directory).report) | {"wall_s": 0} == asdict(checked.report) | {"wall_s": 0}
    with pytest.raises(InputError, match="no figure"):
        checked.plot()
    assert capsys.readouterr() == ("", "")


def test_a_front_has_a_row_for_each_of_its_designs(tiny):
    proved = po.certify(**tiny, objective=["throughput", "tdp"])
    assert_presents_itself(proved, num_rows=len(proved.result.front))
    every = po.search(**tiny, trials=NUM_POINTS, strategy="exhaustive", has_range=False).to_frame()
    every = every[every.status == "feasible"]
    front = {
        (round(one.throughput_samples_per_s, 6), round(one.tdp_w, 6))
        for one in every.itertuples()
        if not (
            (every.throughput_samples_per_s >= one.throughput_samples_per_s)
            & (every.tdp_w <= one.tdp_w)
            & ((every.throughput_samples_per_s > one.throughput_samples_per_s) | (every.tdp_w < one.tdp_w))
        ).any()
    }
    frame = proved.to_frame()
    assert {(round(each.throughput_samples_per_s, 6), round(each.tdp_w, 6)) for each in frame.itertuples()} == front
    assert proved.check().facts["objective"] == "throughput,tdp"


def test_costs_of_dies_are_at_the_prices_given(tiny, folder, capsys):
    (folder / "prices.toml").write_text("memory.hbm_usd_per_gb = 20\n")
    dies = {name: value for name, value in tiny.items() if name not in {"published_form", "space"}}
    text = space_text(min_area_fraction=0.0, num_tc=[16, 32], tc_width=[64], tc_depth=[64], glb_mb=[32])
    (folder / "dies.toml").write_text(text.replace("area_budget_mm2 = 279", "area_budget_mm2 = 800"))
    dies |= {"space": folder / "dies.toml", "prices": folder / "prices.toml", "grid": "wind"}
    found = po.search(**dies, trials=2, strategy="exhaustive", has_range=False)
    usual = po.search(**(dies | {"prices": None}), trials=2, strategy="exhaustive", has_range=False)
    proved = po.certify(**dies, no_check=True)
    assert proved.bill.device_usd == found.bill.device_usd > usual.bill.device_usd
    assert found.to_dict()["cost"]["grid"] == proved.to_dict()["cost"]["grid"] == "wind"
    printed = run_json(["certify", *flags(dies), "--no-tracking", "--no-check"], capsys)
    cheapest = [each["amount"] for each in printed["least_within"] if each["saving"] == "cheapest"]
    assert min(cheapest) <= proved.bill.device_usd * (1 + 1e-12)
    for prices, alike in ((folder / "prices.toml", found), (None, usual)):
        front = po.certify(**(dies | {"prices": prices}), objective="throughput,cost", no_check=True)
        costs = {round(each.cost_usd, 6) for each in front.result.front}
        assert round(alike.bill.device_usd, 6) in costs


@pytest.mark.parametrize("more", [{}, {"objective": "throughput,tdp", "no_check": True}, {"equal_to": "tpu-v4"}])
def test_the_document_of_a_proof_is_that_of_the_command(more, folder, capsys):
    text = space_text(min_area_fraction=0.0, num_tc=[16, 32], tc_width=[64], tc_depth=[64], glb_mb=[32])
    (folder / "few.toml").write_text(text.replace("area_budget_mm2 = 279", "area_budget_mm2 = 800"))
    job = {"model": "tiny", "devices": 16, "global_batch": 64, "space": folder / "few.toml", "work_dir": folder}
    proved = po.certify(**job, **more)
    told = [*flags({name: value for name, value in more.items() if name != "no_check"})]
    told += ["--no-check"] if "no_check" in more else []
    printed = run_json(["certify", *flags(job), *told, "--no-tracking"], capsys)
    document = json.loads(json.dumps(proved.to_dict()))
    assert document.keys() == printed.keys()
    for made in (document, printed):
        made.pop("wall_s")
        for terms in (made["equal_to"] or {}).get("found", ()):
            terms.pop("wall_s")
    assert document == printed
    assert document["checked"] is proved.checked is ("no_check" not in more)


def test_a_forged_certificate_is_refused(proved, tmp_path):
    forged = tmp_path / "forged"
    forged.mkdir()
    for path in proved.directory.iterdir():
        (forged / path.name).write_bytes(path.read_bytes())
    document = json.loads((forged / "certificate.json").read_text())
    document["claim"]["value"] *= 2
    (forged / "certificate.json").write_text(json.dumps(document))
    with pytest.raises(CertificateError):
        po.certify(check=forged)


@pytest.mark.parametrize(
    ("call", "given", "key"),
    [
        (po.certify, {"global_batch": None}, "global_batch"),
        (po.certify, {"seed": 3}, "seed"),
        (po.certify, {"check": "nowhere"}, "check"),
        (po.search, {"model": "nobody"}, "model"),
        (po.search, {"models": ["tiny"]}, "model"),
        (po.search, {"max_area_mm2": 0.5}, "max_area_mm2"),
        (po.search, {"objective": "fame"}, "objective"),
        (po.search, {"strategy_option": {"no_such": 1}}, "no_such"),
    ],
)
def test_faults_name_the_keyword(tiny, call, given, key):
    with pytest.raises(InputError) as fault:
        call(**{name: value for name, value in (tiny | given).items() if value is not None})
    assert fault.value.key == key
    assert "--" not in str(fault.value)


def test_a_study_is_the_frame_of_its_searches(folder, capsys):
    small = folder / "small"
    small.mkdir()
    axes = {"num_tc": [1, 4, 16, 64], "num_vc": [4, 64, 256], "tc_width": [32, 128], "tc_depth": [32, 128]}
    (small / "space.toml").write_text(space_text(**axes, glb_mb=[8, 32], micro_batch=[1, 4]))
    (small / "plan.toml").write_text(study_text(strategies=("random", "mine.py:Mine"), evaluations=6, seeds=2))
    (small / "mine.py").write_text(MINE)
    own = small / "mine.py"
    study = po.study(small / "plan.toml", work_dir=folder, plugin_file=own, on_progress=lambda *step: None)
    assert_presents_itself(study, num_rows=4)
    frame = study.to_frame()
    assert set(frame.strategy) == {"random", "Mine"}
    for name, regret in study.regret.items():
        assert regret == pytest.approx(frame[frame.strategy == name].regret.median())
    assert capsys.readouterr() == ("", "")
    assert study.files
    assert po.register(RandomStrategy, name="drawn-here") == "drawn-here"
    (small / "plan.toml").write_text(study_text(strategies=("random", "drawn-here"), evaluations=6, seeds=2))
    with pytest.raises(InputError, match=r"file\.py:Class"):
        po.study(small / "plan.toml", work_dir=folder)


def test_rows_of_measurements(capsys):
    scored = po.validate("eyeriss_alexnet")
    printed = run_json(["validate", "eyeriss_alexnet"], capsys)["datasets"]["eyeriss_alexnet"]
    assert scored.mape == {"eyeriss_alexnet": printed["mape"]}
    assert_presents_itself(scored, num_rows=printed["rows"])
    frame = scored.to_frame()
    known = frame[frame.unscored == ""]
    assert math.isclose(100 * known.error.abs().mean(), printed["mape"], rel_tol=1e-9)
    with pytest.raises(InputError) as fault:
        po.validate(dataset="nobody")
    assert fault.value.key == "dataset"


IMPORTS = (
    "import phaze_opt.search, phaze_opt.certify, phaze_opt.study",
    "import phaze_opt as po; po.search; import phaze_opt.search, phaze_opt.certify, phaze_opt.study",
    "from phaze_opt import certify, search, study",
    "from phaze_opt.search.options import option",
    "",
)


@pytest.mark.parametrize("order", IMPORTS)
def test_rooms_are_packages_that_can_be_called_whatever_was_imported_before(order):
    code = f"""{order}
import phaze_opt as po
for name in ("search", "certify", "study"):
    room = getattr(po, name)
    assert callable(room) and room.__path__, name
import phaze_opt.search.options, sys
assert po.search is sys.modules["phaze_opt.search"] and po.search.options.option
"""
    run_python("-c", code, check=True)


def test_a_room_is_called_in_a_spawned_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for room, arguments in ((po.search, []), (po.certify, []), (po.study, ["file.toml"])):
            with pytest.raises(InputError, match="nonsense"):
                pool.apply(room, arguments, {"nonsense": 1})


def test_importing_the_package_takes_no_time():
    code = "import time; t = time.process_time(); import phaze_opt as po; dir(po); print(time.process_time() - t)"
    assert float(run_python("-c", code, check=True).stdout) < 0.3
