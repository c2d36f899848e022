"""Forged problems are refused with one sentence that names file, row and rule, though every digest is right again."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from forger import Forger
from forger_words import (
    UPPER,
    a_feasible_row,
    in_file,
    in_points,
    refusal,
)

from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    POINTS_FILE,
    POOL_FILE,
)


def swapped_model(forger: Forger) -> str:
    forger.certificate(lambda data: data["scenario"]["models"][0].update(num_layers=2))
    return rf"^{re.escape(POINTS_FILE)}, row \d+: {UPPER} is .* but its multipliers give"


def other_axes(forger: Forger) -> str:
    forger.certificate(lambda data: data["space"]["axes"].update(num_vc=[4, 16, 32]))
    return in_points(12, "num_vc is 64 but the space has 32 there")


def other_area_budget(forger: Forger) -> str:
    forger.certificate(lambda data: data["space"].update(area_budget_um2=1e9))
    return rf"^{re.escape(POINTS_FILE)}, row \d+: .* is \d+ but the space has"


def other_band(forger: Forger) -> str:
    forger.certificate(lambda data: data["space"].update(min_area_fraction=0.9))
    return rf"^{re.escape(POINTS_FILE)}, row \d+: .* is \d+ but the space has"


def other_cap(forger: Forger) -> str:
    forger.certificate(lambda data: data["space"].update(max_area_um2=1e8))
    return rf"^{re.escape(POINTS_FILE)}, row \d+: .* is \d+ but the space has"


def larger_space(forger: Forger) -> str:
    forger.certificate(lambda data: data["space"]["axes"]["glb_bytes"].append(2**26))
    return in_points(456, "holds 456 rows but the space has")


def other_devices(forger: Forger) -> str:
    forger.certificate(lambda data: data["scenario"]["cluster"].update(num_devices=32))
    return in_points(a_feasible_row(forger), f"{UPPER} is .* but its multipliers give")


def other_network(forger: Forger) -> str:
    def change(data: Any) -> None:
        for dimension in data["scenario"]["cluster"]["network"]["dimensions"]:
            dimension["latency_s"] *= 2

    forger.certificate(change)
    return in_points(a_feasible_row(forger), f"{UPPER} is .* but its multipliers give")


def other_batch(forger: Forger) -> str:
    forger.certificate(lambda data: data["scenario"].update(global_batch=128))
    return in_points(a_feasible_row(forger), f"{UPPER} is .* but its multipliers give")


def other_policy(forger: Forger) -> str:
    forger.certificate(lambda data: data["scenario"].update(recompute="always"))
    return rf"^{re.escape(POINTS_FILE)}, row \d+: "


def other_exclusivity(forger: Forger) -> str:
    forger.certificate(lambda data: data["scenario"].update(exclusivity="chip"))
    return in_file(POOL_FILE, "topology .*, block .*, entry .*: has 3 flows under chip exclusivity")


def other_goal(forger: Forger) -> str:
    forger.certificate(lambda data: data.update(goal="throughput_per_tdp"))
    return rf"^({re.escape(POINTS_FILE)}, row \d+: attains .*|{re.escape(CERTIFICATE_FILE)}: claim: value is)"


def goal_without_best(forger: Forger) -> str:
    forger.certificate(lambda data: data.update(goal="pareto"))
    return in_file(CERTIFICATE_FILE, "goal 'pareto' has no single best value")


def other_constants(forger: Forger) -> str:
    forger.certificate(lambda data: data.update(constants_digest="0" * 64))
    return in_file(CERTIFICATE_FILE, "constants_digest is not that of this package's constants")


def unknown_estimator(forger: Forger) -> str:
    forger.certificate(lambda data: data["scenario"].update(estimator="oracle"))
    return in_file(CERTIFICATE_FILE, "its estimator cannot be had: .*oracle")


def other_format(forger: Forger) -> str:
    forger.certificate(lambda data: data.update(format=2))
    return in_file(CERTIFICATE_FILE, "format is 2, not 1")


def other_slot(forger: Forger) -> str:
    forger.certificate(lambda data: data["slots"][1].update(block=data["slots"][1]["block"] + 1))
    return in_file(CERTIFICATE_FILE, "slot 1 is .* not ")


def missing_slot(forger: Forger) -> str:
    forger.certificate(lambda data: data["slots"].pop())
    forger.multipliers(lambda tables: tables.update({name: table[:, :-1] for name, table in tables.items()}))
    return in_file(CERTIFICATE_FILE, "lists .* slots but the models have")


FORGERIES = (
    swapped_model,
    other_axes,
    other_area_budget,
    other_band,
    other_cap,
    larger_space,
    other_devices,
    other_network,
    other_batch,
    other_policy,
    other_exclusivity,
    other_goal,
    goal_without_best,
    other_constants,
    unknown_estimator,
    other_format,
    other_slot,
    missing_slot,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forgery_is_refused_by_row_and_rule(forge: Callable[[Forger], str], forger: Forger) -> None:
    expected = forge(forger)
    sentence = refusal(forger)
    assert re.match(expected, sentence), sentence
