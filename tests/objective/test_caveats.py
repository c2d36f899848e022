"""Each rule of notes: it speaks where it applies, with the right figures, and is silent elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
from kits.scenarios import make_axes, make_scenario

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import area_um2_table, tdp_w_table
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.die_report import die_of
from phaze_opt.hardware.silicon.silicon import constants_with, silicon_of
from phaze_opt.objective.caveats import RULES, Answer, apply_rules, head_note, notes_about, notes_to_json
from phaze_opt.objective.evaluate import Objective
from phaze_opt.space.known_spaces import load_space
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI, um2_to_mm2

CONSTANTS = load_constants()
AXES = make_axes(
    (4, 8), (32, 64), num_tc=(1, 2, 4), num_vc=(1, 2, 4), tc_width=(64, 128), tc_depth=(64, 128), micro_batch=(1, 2)
)
SPACE = SearchSpace("small", AXES, area_budget_um2=40e6, min_area_fraction=0.3)


def chip(text):
    return load_architecture(f"num_tc=4,num_vc=4,tc_width=128,tc_depth=128,{text}")


def keys(notes):
    return [note.key for note in notes]


def note_of(key, **answer):
    return RULES[key](Answer(CONSTANTS, **answer))


def evaluated(accelerator, *, micro_batch=1, **scenario):
    setting = make_scenario("tiny", **scenario)
    return Objective(setting).evaluate_accelerator(accelerator, micro_batch), setting


@pytest.mark.parametrize(
    ("capacity", "figures", "like"),
    [("16", "400 GB/s at 16 GB", ""), ("17", "800 GB/s at 17 GB", "32 GB"), ("80", "2,000 GB/s at 80 GB", "")],
)
def test_bandwidth_by_started_stacks_is_said(capacity, figures, like):
    sentence = note_of("hbm_bandwidth", accelerator=chip(f"glb_mb=8,hbm_gb={capacity}"))
    assert figures in sentence
    assert ("as much as" in sentence) == bool(like)
    assert like in sentence


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        (18, "18 devices do not fill nodes of 8, and groups across nodes are priced as islands of 2; a network file"),
        (18, "size = 6 prices 3 nodes of 6."),
        (17, "islands of 1."),
        (4, ""),
        (16, ""),
    ],
)
def test_nodes_that_are_filled_in_part_are_said(devices, says):
    cluster = Cluster(devices, load_network("dgx-h100", num_devices=devices))
    sentence = note_of("partial_nodes", cluster=cluster)
    assert bool(sentence) == bool(says)
    assert says in sentence
    assert not note_of("partial_nodes", cluster=Cluster(18, load_network("phaze", num_devices=18)))


def test_a_bandwidth_that_was_given_needs_no_note():
    assert not note_of("hbm_bandwidth", accelerator=replace(chip("glb_mb=8,hbm_gb=17"), hbm_bandwidth_bytes_per_s=1e12))
    fixed = load_constants().with_options({"hbm_form": "fixed"})
    assert not RULES["hbm_bandwidth"](Answer(fixed, chip("glb_mb=8,hbm_gb=17")))


@pytest.mark.parametrize(("glb", "is_said"), [("128", False), ("129", True), ("2", False), ("1", True)])
def test_extrapolated_buffers_are_said(glb, is_said):
    sentence = note_of("extrapolated_buffers", accelerator=chip(f"glb_mb={glb},hbm_gb=32"))
    assert (f"{glb} MB" in sentence) == is_said == bool(sentence)


def test_an_uncovered_buffer_is_refused_by_every_evaluation():
    with pytest.raises(InputError) as caught:
        evaluated(chip("glb_mb=4096,hbm_gb=32"))
    assert caught.value.key == "glb_mb"


@pytest.mark.parametrize(("cores", "is_said"), [(4, False), (24, True)])
def test_arrays_that_fill_more_of_a_die_than_of_any_that_was_fitted_are_said(cores, is_said):
    known = constants_with(silicon_of(7, load_network("two-level", num_devices=64)))
    text = f"num_tc={cores},num_vc=24,tc_width=128,tc_depth=128,glb_mb=24,glb_bytes_per_cycle=6144,hbm_stacks=4"
    answer = Answer(known, load_architecture(text, constants=known))
    said = [note.sentence for note in apply_rules(answer) if note.key == "array_share"]
    share = die_of(answer.accelerator, known).array_share
    sentence = f"Arrays fill {100 * share:.1f} % of this die, and at most 23 % of any that areas were fitted to: "
    assert said == ([f"{sentence}its area and power are extrapolated."] if is_said else [])


def test_padding_is_said_with_the_samples_that_are_computed():
    accelerator = chip("glb_mb=8,hbm_gb=32")
    evaluation, scenario = evaluated(accelerator, micro_batch=8, global_batch=1, devices=8)
    assert "Of the 8 samples" in note_of("padded_batch", evaluation=evaluation, scenario=scenario)
    assert " 7 are padding" in note_of("padded_batch", evaluation=evaluation, scenario=scenario)
    evaluation, scenario = evaluated(accelerator, micro_batch=2, global_batch=16, devices=8)
    assert not note_of("padded_batch", evaluation=evaluation, scenario=scenario)


def test_of_several_models_the_padded_one_is_found():
    evaluation, scenario = evaluated(chip("glb_mb=8,hbm_gb=32"), micro_batch=8, global_batch=1, devices=8)
    both = replace(evaluation, placement=None, members=(evaluation, evaluation))
    assert note_of("padded_batch", evaluation=both, scenario=scenario)


def largest_by_brute_force(space, network):
    objective = Objective(make_scenario("tiny"))
    chips = [objective.accelerator(point) for point in space.points()]
    areas = um2_to_mm2(float(np.max(area_um2_table(AcceleratorTable.from_accelerators(chips)))))
    return areas, float(tdp_w_table(AcceleratorTable.from_accelerators(chips), network, CONSTANTS).max())


def test_the_largest_chips_are_the_largest_of_all():
    network = make_scenario("tiny").cluster.network
    for space in (SPACE, SPACE.restrict(max_area_mm2=25), replace(SPACE, min_area_fraction=1.0)):
        area, power = largest_by_brute_force(space, network)
        table = space.largest_chips(CONSTANTS)
        assert um2_to_mm2(float(area_um2_table(table).max())) == area
        scenario = make_scenario("tiny", max_tdp_w=np.nextafter(power, 0))
        assert not note_of("tdp_budget", scenario=scenario, space=space)
        assert note_of("tdp_budget", scenario=make_scenario("tiny", max_tdp_w=power * (1 + 1e-12)), space=space)


@pytest.mark.parametrize(("share", "is_said"), [(0.999, False), (1.0, True), (20.0, True)])
def test_a_budget_that_cannot_bind_is_said_though_the_space_was_cut_by_it(share, is_said):
    largest, _ = largest_by_brute_force(SPACE, make_scenario("tiny").cluster.network)
    budget = share * largest
    space = SPACE.restrict(max_area_mm2=budget)
    sentence = note_of("area_budget", scenario=make_scenario("tiny", max_area_mm2=budget), space=space)
    assert bool(sentence) == is_said
    assert (f"{largest:.1f} mm2" in sentence) == is_said


def test_a_best_design_at_the_edge_names_axes_and_ends():
    objective = Objective(make_scenario("tiny"))
    inside = {point for point in SPACE.points() if point.num_tc == 2 and point.num_vc == 2}
    found = {}
    for point in sorted(inside)[::3]:
        evaluation = objective.evaluate(point)
        answer = Answer(CONSTANTS, evaluation.accelerator, evaluation, objective.scenario, SPACE)
        found[point] = RULES["edge_of_space"](answer)
    for point, sentence in found.items():
        assert "num_tc" not in sentence
        assert ("hbm_gb at its lowest, 32" in sentence) == (point.hbm_bytes == 32 * GIBI)
        assert ("hbm_gb at its highest, 64" in sentence) == (point.hbm_bytes == 64 * GIBI)
        assert ("glb_mb at its highest, 8" in sentence) == (point.glb_bytes == 8 * MEBI)
        # An axis cannot go below one.
        assert "micro_batch at its lowest" not in sentence
        assert ("micro_batch at its highest, 2" in sentence) == (point.micro_batch == 2)
    single = replace(SPACE, axes=replace(AXES, hbm_bytes=(32 * GIBI,)))
    evaluation = objective.evaluate(next(iter(single.points())))
    answer = Answer(CONSTANTS, evaluation.accelerator, evaluation, objective.scenario, single)
    assert "hbm_gb" not in RULES["edge_of_space"](answer)


def test_notes_come_in_the_order_of_the_rules_and_once():
    evaluation, scenario = evaluated(chip("glb_mb=256,hbm_gb=17"), micro_batch=8, global_batch=1, devices=8)
    notes = notes_about(evaluation, scenario=scenario, constants=CONSTANTS)
    assert keys(notes) == ["hbm_bandwidth", "extrapolated_buffers", "padded_batch"]
    assert notes_to_json(notes)[0] == {"key": notes[0].key, "sentence": notes[0].sentence}
    assert all(note.sentence.endswith(".") and note.sentence.count("\n") == 0 for note in notes)


def test_without_a_best_design_only_budgets_are_spoken_of():
    scenario = make_scenario("tiny", max_area_mm2=1e4, max_tdp_w=1e5)
    assert keys(notes_about(None, scenario=scenario, constants=CONSTANTS, space=SPACE)) == ["area_budget", "tdp_budget"]
    assert apply_rules(Answer(CONSTANTS)) == ()


def test_a_space_file_beyond_all_tables_is_refused(tmp_path):
    path = tmp_path / "space.toml"
    text = "[axes]\nnum_tc = [1]\nnum_vc = [1]\ntc_width = [{w}]\ntc_depth = [{w}]\nglb_mb = [2, {glb}]\n"
    for width, glb, key in ((64, 513, "glb_mb"), (1024, 4, "tc_width")):
        path.write_text("area_budget_mm2 = 5000\n" + text.format(w=width, glb=glb), encoding="utf-8")
        with pytest.raises(InputError) as caught:
            load_space(path)
        assert caught.value.key == key
    path.write_text("area_budget_mm2 = 5000\n" + text.format(w=64, glb=512), encoding="utf-8")
    assert load_space(path).size


def test_heads_that_cost_time_on_gpus_are_said():
    assert "no multiple of 16" in head_note(108)
    assert "no multiple of 16" in head_note(150)
    assert "no multiple of 64" in head_note(80)
    assert head_note(128) == head_note(64) == head_note(192) == ""
