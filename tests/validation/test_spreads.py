"""Ranges of predictions: they hold as often as they say, also of a source that none of their rows came from."""

import math

import numpy as np
import pytest
from kits.toy_family import HEADER, TOY, toy_lines

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.spreads import LEVEL, NAMED, UNSEEN, Spread, Spreads, load_spreads, octave, scale_of
from phaze_opt.validation.dataset import read_dataset
from phaze_opt.validation.fit import fit_family
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.training.family import MODERN_TRAINING
from phaze_opt.validation.validate import (
    CELLS,
    Residual,
    cross_coverage,
    fit_spreads,
    kept_out_residuals,
    kinds_of,
    quantile,
)


def drawn(generator, *, sources, rows, effect, noise, kept_out="source"):
    """Rows of sources with an effect of their own, as residuals."""
    return [
        Residual(("steps",), f"source {place}", kept_out, shift + generator.normal(0.0, noise))
        for place, shift in enumerate(generator.normal(0.0, effect, sources))
        for _ in range(rows)
    ]


@pytest.mark.parametrize("num_rows", [19, 40, 400])
def test_a_range_holds_for_one_more_row_as_often_as_it_says(num_rows):
    generator = np.random.default_rng(1)
    held = []
    for _ in range(2000):
        values = generator.normal(size=num_rows + 1)
        low, high = (quantile(values[:-1], np.ones(num_rows), share) for share in (0.05, 0.95))
        held.append(low <= values[-1] <= high)
    assert LEVEL - 0.03 < np.mean(held) < LEVEL + 0.03


def test_equal_weights_give_the_quantile_of_the_sample():
    values = np.random.default_rng(2).normal(size=100_001)
    expected = np.quantile(values, [0.05, 0.5, 0.95])
    assert [quantile(values, np.ones(len(values)), share) for share in (0.05, 0.5, 0.95)] == pytest.approx(
        expected.tolist(), abs=2e-3
    )


def test_sources_weigh_alike_however_many_rows_they_have():
    many = [Residual(("steps",), "many", "source", 0.0)] * 900
    few = [Residual(("steps",), name, "source", 0.5) for name in ("one", "two", "three") for _ in range(10)]
    assert fit_spreads([*many, *few])["steps"].spread.high == pytest.approx(math.exp(0.5), rel=1e-3)


def test_the_effect_of_a_source_widens_the_range_of_a_new_one_and_tells_no_two_rows_apart():
    narrow = drawn(np.random.default_rng(3), sources=40, rows=20, effect=0.0, noise=0.05)
    wide = drawn(np.random.default_rng(3), sources=40, rows=20, effect=0.2, noise=0.05)
    first, second = (fit_spreads(own)["steps"].spread for own in (narrow, wide))
    assert second.half_width > 3 * first.half_width
    assert second.apart == pytest.approx(first.apart, rel=1e-3)
    assert second.apart == pytest.approx(math.exp(1.645 * math.sqrt(2) * 0.05), rel=0.03)


def test_few_cells_make_no_range_of_their_own():
    few, enough = (
        drawn(np.random.default_rng(5), sources=count, rows=10, effect=0.1, noise=0.1, kept_out=CELLS)
        for count in (18, 19)
    )
    assert not fit_spreads(few)
    assert set(fit_spreads(enough)) == {"steps"}
    assert fit_spreads(drawn(np.random.default_rng(5), sources=7, rows=10, effect=0.1, noise=0.1))


def test_a_user_s_step_has_the_range_of_kept_out_sources_with_its_software_named_or_not():
    def kinds(**values):
        row = Row("train_megatron_h100", "mine.csv", 2, {"hardware": "h100", **values}, is_guessed=True)
        return kinds_of(MODERN_TRAINING, row, {}, is_published=False)

    assert kinds(software="TorchTitan") == (NAMED, UNSEEN)
    assert kinds() == kinds(software="nobody's") == kinds(software="nanotron") == (UNSEEN,)
    named, unknown = (load_spreads().entries[kind] for kind in (NAMED, UNSEEN))
    assert named.num_groups == unknown.num_groups
    assert named.mape < unknown.mape


def test_coverage_is_counted_on_sources_that_the_range_was_made_without():
    rows = drawn(np.random.default_rng(4), sources=40, rows=10, effect=0.2, noise=0.05)
    assert 0.85 < cross_coverage(rows)["steps"].held < 0.95


def test_every_source_is_held_against_the_range_of_the_others():
    """By hand: the range of 39 sources is made anew, and the rows of the fortieth are counted in it."""
    own = drawn(np.random.default_rng(6), sources=40, rows=5, effect=0.1, noise=0.05)
    groups = fit_spreads(own)["steps"].spread.groups
    others = fit_spreads([each for each in own if each.group != "source 7"])["steps"].spread
    quotients = np.exp([each.log_quotient for each in own if each.group == "source 7"])
    assert groups["source 7"].held == pytest.approx(np.mean((quotients >= others.low) & (quotients <= others.high)))
    assert groups["source 7"].mape == pytest.approx(100 * np.mean(abs(1 / quotients - 1)), rel=1e-3)
    assert np.mean([each.held for each in groups.values()]) == pytest.approx(
        cross_coverage(own)["steps"].held, abs=1e-3
    )
    cells = drawn(np.random.default_rng(6), sources=19, rows=5, effect=0.1, noise=0.05, kept_out="cells")
    assert fit_spreads(cells)["steps"].spread.groups == {}


def test_the_packages_ranges_of_steps_hold_as_often_as_they_should():
    """By publication kept out whole, 85 to 95 %; of the same rows named and not."""
    unseen, named = (load_spreads().entries[kind] for kind in (UNSEEN, NAMED))
    for spread in (unseen, named):
        assert 0.85 <= np.mean([each.held for each in spread.groups.values()]) <= 0.95
        assert sum(each.num_rows for each in spread.groups.values()) == spread.num_rows
        assert np.mean([each.mape for each in spread.groups.values()]) == pytest.approx(spread.mape, rel=1e-3)
    assert unseen.groups.keys() == named.groups.keys()


def test_too_few_rows_or_sources_give_no_range():
    assert fit_spreads([Residual(("a",), f"{place}", CELLS, 0.1) for place in range(18)]) == {}
    assert fit_spreads([Residual(("a",), f"{place % 2}", CELLS, 0.1) for place in range(40)]) == {}


def uneven(generator, *, rows):
    """Rows whose errors are eight times as large under one recipe, and twice on one machine."""
    for place in range(rows):
        recipe, machine = generator.choice(["even", "rough"]), generator.choice(["m1", "m2"])
        width = 0.03 * (8.0 if recipe == "rough" else 1.0) * (2.0 if machine == "m2" else 1.0)
        facts = {"recipe": recipe, "machine": machine, "set": "all"}
        error = generator.normal(0.0, width)
        yield Residual(("kind",), f"{place}", CELLS, error, facts=facts, traits=("recipe", "machine"))


def test_a_range_is_as_wide_as_the_errors_of_rows_like_it():
    """Widths are known, and the middle 90 % of a normal distribution with it."""
    made = fit_spreads(list(uneven(np.random.default_rng(8), rows=2000)))["kind"]
    for recipe, machine, width in (("even", "m1", 0.03), ("even", "m2", 0.06), ("rough", "m1", 0.24)):
        facts = {"recipe": recipe, "machine": machine}
        low, high = Spreads({"kind": made.spread}, {"kind": made.scale}).around(["kind"], 1.0, facts)
        assert (math.log(low), math.log(high)) == pytest.approx((-1.645 * width, 1.645 * width), rel=0.2)


def test_ranges_with_a_scale_are_counted_on_rows_that_it_was_made_without():
    found = cross_coverage(list(uneven(np.random.default_rng(9), rows=800)))["kind"]
    assert 0.87 < found.least <= found.held < 0.93
    assert found.sets["all"].held == found.held


def test_what_nothing_tells_of_has_the_scale_of_the_kind():
    scale = {"recipe, term": {"a, b": 1.0}, "machine": {"m": 0.5}}
    assert scale_of(scale, {"recipe": "a", "term": "b", "machine": "m"}) == pytest.approx(math.exp(1.5))
    assert scale_of(scale, {"recipe": "a", "machine": "other"}) == 1.0
    assert [octave(value) for value in (1.0, 1.99, 2.0, 0.3)] == ["2^0", "2^0", "2^1", "2^-2"]
    assert octave(40.0, 2) == "2^4"


def test_no_range_leaves_its_prediction_out():
    assert Spread(1.05, 1.3, 1.1, 40, 20, CELLS).around(2.0, 3.0) == pytest.approx((2.0, 2.0 * 1.3**3))


def test_rows_are_predicted_without_their_cells(tmp_path):
    path = tmp_path / "op_llmcompass.csv"
    path.write_text("\n".join([HEADER, *toy_lines()]) + "\n")
    rows = read_dataset(path).rows
    known = fit_family(TOY, rows, FittedConstants({}))
    found = [each for each in kept_out_residuals(TOY, rows, known) if each.kept_out == CELLS]
    assert {each.facts["machine"] for each in found} == {row.text("hardware") for row in rows}
    assert len(found) == len(rows)
    assert max(abs(each.log_quotient) for each in found) < 0.1


def test_the_narrowest_known_kind_is_taken():
    one, two = Spread(0.9, 1.1, 1.05, 20, 5, CELLS), Spread(0.8, 1.3, 1.1, 40, 5, CELLS)
    table = Spreads({"narrow": one, "wide": two})
    assert table.find(["unknown", "narrow", "wide"]) is one
    assert table.find(["unknown"]) is None
    assert one.around(10.0) == (9.0, 11.0)
    assert table.around(["unknown", "wide"], 10.0, {}) == (8.0, 13.0)
    assert all(math.isnan(end) for end in table.around(["unknown"], 10.0, {}))


def test_the_packages_ranges_contain_their_prediction():
    known = load_spreads().entries
    assert known
    assert all(spread.low < spread.high and spread.apart >= 1.0 for spread in known.values())
