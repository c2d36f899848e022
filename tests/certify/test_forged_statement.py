"""Forged statements, claims and problems, are refused by file, row and rule, though every digest is right again."""

from pathlib import Path

import pytest
from forger import ANY, ATTAINED, FEASIBLE, RECOMPUTED, UPPER, Forger, times
from kits.planted import plant

from phaze_opt.certify.certificate import CERTIFICATE_FILE, POINTS_FILE, POOL_FILE

HUGE = 10**30
MORE = "holds more than its form asks for"
OTHER_SPACE = r".* is \d+ but the space has"
STATED = {
    "raised value": ("claim.value", times(1.001), "claim: value is .* but the rows give"),
    "other throughput": (f"claim.{ATTAINED}", 1.0, f"claim: {ATTAINED} is 1 but the rows give"),
    "other point": ("claim.point.num_tc", 2, "claim: point.num_tc is 2 but the rows give"),
    "no point": ("claim.point", None, "claim: point.num_tc is None but the rows give"),
    "larger gap": (
        "claim",
        lambda claim: claim | {"gap": 0.5, "is_proved": False},
        "claim: gap is 0.5 but value and value_upper give",
    ),
    "other goal": ("goal", "throughput_per_tdp", "claim: value is"),
    "lower value_upper": ("claim.value_upper", times(0.999), "claim: value_upper is .* but the rows give"),
    "other count": ("claim.num_solved", 1000, "claim: num_solved is 1000 but the rows give"),
    "other size": ("claim.num_points", 1000, "claim: num_points is 1000 but the rows give 456"),
    "points left out": (
        "claim",
        lambda claim: claim | {"num_left_out": 1000, "num_points": claim["num_points"] + 1000},
        "claim: num_left_out is 1000, but every point of this space has a row",
    ),
    "negative tolerance": ("claim.tolerance", -1.0, "claim: tolerance is -1.0"),
    "infeasible": ("claim.is_feasible", False, "claim: is_feasible is False but the rows say True"),
    "too modest": ("claim.is_proved", False, "claim: is not is_proved though the gap of .* is within the tolerance"),
    "unknown key": ("claim.is_checked_by", "an auditor", MORE),
    "words for numbers": ("claim.num_points", str, MORE),
    "impossible effort": ("provenance.num_placements", -1, "claim: its provenance holds a number that is not finite"),
    "goal without best": ("goal", "pareto", "goal 'pareto' goes with no front of 0 goals"),
    "other constants": ("constants_digest", "0" * 64, "constants_digest is not that of this package's constants"),
    "unknown estimator": ("scenario.estimator", "oracle", "its estimator cannot be had: .*oracle"),
    "other format": ("format", 1, "format is 1, not 2"),
    "other slot": ("slots.1.block", lambda block: block + 1, "slot 1 is .* not "),
    "unlisted file": ("files.more", "0" * 64, r"files lists \["),
    "endless cluster": ("scenario.cluster.num_devices", HUGE, f"{HUGE} devices are more than"),
    "endless buffer": ("space.axes.glb_bytes.+", HUGE, r"cannot be worked out again \(OverflowError"),
    "no graph": ("scenario.models.0.ffn_size", -5, r"cannot be worked out again \(InputError: matmul n = -5"),
}
CONTRADICTED_BY_ROWS = {
    "swapped model": ("scenario.models.0.num_layers", 2, ANY, RECOMPUTED),
    "other axes": ("space.axes.num_vc", [4, 16, 32], 12, "num_vc is 64 but the space has 32 there"),
    "other area budget": ("space.area_budget_um2", 1e9, ANY, OTHER_SPACE),
    "other band": ("space.min_area_fraction", 0.9, ANY, OTHER_SPACE),
    "other cap": ("space.max_area_um2", 1e8, ANY, OTHER_SPACE),
    "larger space": ("space.axes.glb_bytes.+", 2**26, 456, "holds 456 rows but the space has"),
    "other devices": ("scenario.cluster.num_devices", 32, FEASIBLE, RECOMPUTED),
    "other network": ("scenario.cluster.network.dimensions.0.latency_s", times(2), FEASIBLE, RECOMPUTED),
    "other batch": ("scenario.global_batch", 128, FEASIBLE, RECOMPUTED),
    "other policy": ("scenario.recompute", "always", ANY, ""),
    "smaller gap": ("claim.gap", lambda gap: gap - 1e-6, ANY, "its upper bound is .*, more than the claim's gap"),
}


@pytest.mark.parametrize("name", STATED)
def test_a_false_statement_is_refused(name: str, forger: Forger) -> None:
    place, value, rule = STATED[name]
    forger.put(place, value)
    forger.assert_refused(CERTIFICATE_FILE, rule)


@pytest.mark.parametrize("key", ["estimator", "layer_fusion"])
def test_a_certificate_runs_no_code(key: str, forger: Forger, tmp_path: Path) -> None:
    planted = plant(tmp_path)
    forger.put(f"scenario.{key}", planted.name)
    forger.sign()
    rule = f"does not hold what its form asks for .'{key}': .* is code in a file, and no file runs code by being read"
    forger.assert_refused(CERTIFICATE_FILE, rule, is_sealed=False)
    assert not planted.has_run


@pytest.mark.parametrize("name", CONTRADICTED_BY_ROWS)
def test_a_statement_that_rows_contradict_is_refused(name: str, forger: Forger) -> None:
    place, value, row, rule = CONTRADICTED_BY_ROWS[name]
    forger.put(place, value)
    forger.assert_refused(POINTS_FILE, rule, row=forger.row(**row) if isinstance(row, dict) else row)


def test_another_solved_row_with_all_its_numbers_is_no_incumbent(forger: Forger) -> None:
    columns = forger.columns()
    best, upper = max(columns[ATTAINED]), max(columns[UPPER])
    row = next(i for i in columns["index"] if 0 < columns[ATTAINED][i] < best * (1 - 1e-6))
    value = columns[ATTAINED][row]
    forger.claim(incumbent=row, value=value, throughput_samples_per_s=value, gap=upper / value - 1.0, is_proved=False)
    forger.assert_refused(POINTS_FILE, f"attains .*, more than the .* of the incumbent, row {row}", row=ANY)


def test_an_unsolved_row_is_no_incumbent(forger: Forger) -> None:
    row = forger.row(**FEASIBLE)
    forger.claim(incumbent=row)
    forger.assert_refused(CERTIFICATE_FILE, f"claim: incumbent is row {row}, which is not solved")


def test_prices_hold_under_their_own_exclusivity(forger: Forger) -> None:
    forger.put("scenario.exclusivity", "chip")
    forger.assert_refused(POOL_FILE, "topology .*, block .*, entry .*: has 3 flows under chip exclusivity")


def test_a_missing_slot_is_refused(forger: Forger) -> None:
    forger.certificate(lambda data: data["slots"].pop())
    forger.multipliers(lambda tables: tables.update({name: table[:, :-1] for name, table in tables.items()}))
    forger.assert_refused(CERTIFICATE_FILE, "lists .* slots but the models have")
