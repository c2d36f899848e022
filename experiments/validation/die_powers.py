"""Powers at full rate against the makers' limits of GPUs; writes die_powers.json beside this file.

    python experiments/validation/die_powers.py

Eight energies are fitted to five GPUs, each kept out in turn; die_constants.toml holds the values, as a test sees to.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from dies import summary, whole_dies

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.silicon.die_columns import DieRates
from phaze_opt.hardware.silicon.die_constants import load_die_constants, power_constants
from phaze_opt.hardware.silicon.die_power import die_power
from phaze_opt.record.arrays import Floats
from phaze_opt.units import GIGA, PICO
from phaze_opt.validation.dies import dies_of_rows
from phaze_opt.validation.family import FitParameter, Part
from phaze_opt.validation.fit import Expectation, fit_parameters
from phaze_opt.validation.measured_row import Row

OUT = Path(__file__).with_name("die_powers.json")

POWER_GROUP = "silicon/power"
POWER_ERROR = 0.2
"""Log error that the power of a chip is expected to have."""
POWERS = (
    "mac_pj",
    "threaded_lane_pj",
    "local_pj_per_byte",
    "network_pj_per_byte",
    "memory_share",
    "link_pj_per_bit",
    "static_w_per_mm2",
    "board_w",
)
"""Fitted to GPUs; the energy of a vector lane, which none of them has, stays as expected."""


def power_rows() -> tuple[Row, ...]:
    """GPUs with matrix units whose limit the data set does not call power-limited, in the order of the file."""
    return tuple(
        row
        for row in whole_dies()
        if row.text("style") == "gpu" and row.text("tdp_kind") == "flagship" and row.number("mac16_full", 0) > 0
    )


def rates_of_rows(rows: Sequence[Row]) -> DieRates:
    """What machines do at full rate, by their own clock, enabled units and memory."""
    known = load_die_constants()

    def memory_pj(row: Row) -> float:
        kind = row.text("ext_dram").partition("-")[0]
        return known.value("dram.gddr6_pj_per_bit" if kind == "gddr6" else f"hbm.{kind}.pj_per_bit")

    return DieRates(
        clock_hz=np.array([row.number("clock_ghz") * GIGA for row in rows]),
        active_share=np.array([row.number("active_share") for row in rows]),
        memory_bytes_per_s=np.array([row.number("dram_gbytes_s") * GIGA for row in rows]),
        memory_j_per_bit=np.array([memory_pj(row) * PICO for row in rows]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPowers:
    """Rows whose "seconds" are W."""

    measured_s: Floats
    unscored: Mapping[int, str]
    rows: tuple[Row, ...]

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Power at full rate, W; the die's published area."""
        constants = replace(power_constants(), **fitted.groups.get(POWER_GROUP, {}))
        area_mm2 = np.array([row.number("die_mm2") for row in self.rows])
        return die_power(dies_of_rows(self.rows), rates_of_rows(self.rows), area_mm2, constants).total

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """One part: the whole."""
        return (Part("power", float(self.seconds(fitted)[index])),)


def compile_powers(rows: Sequence[Row]) -> CompiledPowers:
    """Rows with their makers' limits."""
    return CompiledPowers(np.array([row.number("tdp_w") for row in rows]), {}, tuple(rows))


def power_parameters() -> tuple[FitParameter, ...]:
    """Energies within three deviations of what is expected: the middle of the file's range, whose ends are one away."""
    found = []
    for name in POWERS:
        entry = load_die_constants().entries[f"power.{name}"]
        expected, reach = math.sqrt(entry.low * entry.high), (entry.high / entry.low) ** 1.5
        found.append(
            FitParameter(POWER_GROUP, name, entry.unit, expected / reach, expected * reach, expected, name, is_log=True)
        )
    return tuple(found)


def fit_powers(rows: Sequence[Row]) -> FittedConstants:
    """Energies fitted to the limits of chips, each pulled to what is expected as strongly as its source is sure."""
    parameters = power_parameters()
    expectations = tuple(Expectation(each, 3 * POWER_ERROR / math.log(each.high / each.start)) for each in parameters)
    return fit_parameters(
        compile_powers(rows), parameters, FittedConstants({}), soft_error=POWER_ERROR, expectations=expectations
    )


def power_figures() -> dict[str, Any]:
    """Fitted energies; powers over limits of every GPU by constants expected, fitted, and fitted without it."""
    rows = power_rows()
    compiled, fitted = compile_powers(rows), fit_powers(rows)
    starts = FittedConstants({POWER_GROUP: {each.name: each.start for each in power_parameters()}})
    alone = np.array(
        [compile_powers([row]).seconds(fit_powers([other for other in rows if other is not row]))[0] for row in rows]
    )
    limits = compiled.measured_s
    ratios = {
        "expected": compiled.seconds(starts) / limits,
        "fitted": compiled.seconds(fitted) / limits,
        "left_out": alone / limits,
    }
    others = [row for row in whole_dies() if row not in rows and row.text("ext_dram").startswith(("hbm", "gddr6"))]
    not_claimed = compile_powers([row for row in others if row.values.get("tdp_w")])
    return {
        "constants": {name: float(f"{fitted.value(POWER_GROUP, name):.4g}") for name in POWERS},
        "chips": [
            {"chip": row.text("chip"), "limit_w": row.number("tdp_w")}
            | {name: round(float(values[place]), 3) for name, values in ratios.items()}
            for place, row in enumerate(rows)
        ],
        "summary": {name: summary(values) for name, values in ratios.items()},
        "not_claimed": [
            {
                "chip": row.text("chip"),
                "kind": row.text("tdp_kind"),
                "limit_w": row.number("tdp_w"),
                "model_w": round(w),
            }
            for row, w in zip(not_claimed.rows, not_claimed.seconds(fitted).tolist(), strict=True)
        ],
    }


def main() -> None:
    """Work it out and write it."""
    figures = power_figures()
    meta = {
        "command": "python experiments/validation/die_powers.py",
        "versions": {name: version(name) for name in ("phaze-opt", "numpy", "scipy")},
    }
    OUT.write_text(json.dumps({"_meta": meta, **figures}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figures["summary"], indent=1), file=sys.stderr)


if __name__ == "__main__":
    main()
