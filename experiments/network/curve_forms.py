"""Forms of the all-reduce curve side by side on the public half: in-sample, and with sizes or group sizes kept out.

Every form has three constants a fabric: t = a steps(n) + x + c**(1-e) x**e with x = (V + k S) / (r_n B) and
V = 2(n-1)/n S. What differs is steps(n), the exponent e, and k, work at the end points of switched links. The form of
`phaze_opt.estimate.collective_curves` is the one marked. Run: python experiments/network/curve_forms.py [--write]
"""

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.validation.collectives import CollectiveCase, read_case
from phaze_opt.validation.dataset import read_dataset

RESULT = Path(__file__).with_suffix(".json")
SOFT_ERROR = 0.05


@dataclass(frozen=True)
class Form:
    """One form of the curve."""

    name: str
    exponent: float = 1 / 3
    ends: float = 0.5
    steps: Callable[[float], float] = math.log2


FORMS = (
    Form("used: log2 n, cube root, ends 0.5"),
    Form("square root", exponent=1 / 2),
    Form("exponent 2/5", exponent=2 / 5),
    Form("exponent 1/4", exponent=1 / 4),
    Form("no end points", ends=0.0),
    Form("ends 0.65", ends=0.65),
    Form("square root, no end points (the prototype's)", exponent=1 / 2, ends=0.0),
    Form("ceil(log2 n)", steps=lambda size: float(math.ceil(math.log2(size)))),
    Form("n - 1 steps", steps=lambda size: size - 1.0),
    Form("no growth with n", steps=lambda _: 1.0),
)


@dataclass(frozen=True)
class Points:
    """Rows of one fabric."""

    seconds: Floats
    bytes: Floats
    devices: Floats
    share: Floats
    specified: float
    is_switched: bool

    def only(self, chosen: Flags) -> "Points":
        """Some of the rows."""
        return Points(
            self.seconds[chosen],
            self.bytes[chosen],
            self.devices[chosen],
            self.share[chosen],
            self.specified,
            self.is_switched,
        )


def read_points() -> dict[str, Points]:
    """Rows by fabric; across nodes one ring runs at the adapters of a whole node."""
    path = Path(str(resources.files("phaze_opt.validation").joinpath("data/collective_all_reduce.csv")))
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    fabrics = {}
    for row in read_dataset(path).rows:
        case = read_case(row)
        assert isinstance(case, CollectiveCase)
        fabric = case.levels[-1][0]
        fabrics[fabric.name] = fabric
        devices = math.prod(size for _, size in case.levels)
        inside = math.prod(size for _, size in case.levels[:-1])
        shares = fabric.ring_shares
        share = shares[devices - 2] if shares else float(inside)
        entry = (row.number("latency_us") * 1e-6, row.number("bytes"), float(devices), share)
        found.setdefault(fabric.name, []).append(entry)
    return {
        name: Points(*np.array(rows).T, fabrics[name].bandwidth_bytes_per_s, fabrics[name].endpoint_share > 0)
        for name, rows in found.items()
    }


def predict(form: Form, constants: Floats, points: Points) -> Floats:
    """Times at constants (a, B, c), given as logarithms."""
    step_s, bandwidth, ramp_s = np.exp(constants)
    ends = form.ends if points.is_switched else 0.0
    moved = (2 * (points.devices - 1) / points.devices + ends) * points.bytes
    transfer_s = moved / (points.share * bandwidth)
    steps = np.array([form.steps(size) for size in points.devices])
    return np.asarray(step_s * steps + transfer_s + ramp_s ** (1 - form.exponent) * transfer_s**form.exponent)


def fit(form: Form, points: Points) -> Floats:
    """Constants of one fabric."""

    def residuals(constants: Floats) -> Floats:
        return np.log(predict(form, constants, points) / points.seconds)

    start = np.log([1e-5, 0.8 * points.specified, 1e-5])
    low, high = np.log([1e-7, 0.2 * points.specified, 1e-9]), np.log([1e-2, 3.0 * points.specified, 1e-2])
    found = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=SOFT_ERROR, max_nfev=400)
    return np.asarray(found.x)


def errors(form: Form, points: Points, labels: Sequence[object] | None = None) -> Floats:
    """Absolute relative errors, fitted to all rows or without those of each row's label; nan if nothing is left."""
    if labels is None:
        return np.abs(predict(form, fit(form, points), points) / points.seconds - 1)
    found = np.full(len(points.seconds), np.nan)
    for label in set(labels):
        held_out = np.array([each == label for each in labels])
        if not held_out.all():
            rest, apart = points.only(~held_out), points.only(held_out)
            found[held_out] = np.abs(predict(form, fit(form, rest), apart) / apart.seconds - 1)
    return found


def compare() -> dict[str, dict[str, float]]:
    """MAPE in per cent of every form: fitted; by octave of size; by number of devices where there are several."""
    fabrics = read_points()
    table = {}
    for form in FORMS:
        fitted, octaves, groups = [], [], []
        for points in fabrics.values():
            fitted.append(errors(form, points))
            octaves.append(errors(form, points, [int(math.log2(size)) for size in points.bytes]))
            groups.append(errors(form, points, list(points.devices)))
        columns = {"fitted": fitted, "by_size": octaves, "by_devices": groups}
        table[form.name] = {
            key: round(float(100 * np.nanmean(np.concatenate(parts))), 2) for key, parts in columns.items()
        }
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    arguments = parser.parse_args()
    meta = {"command": "python experiments/network/curve_forms.py --write", "tolerance": 0.05, "unit": "per cent"}
    text = json.dumps({"_meta": meta, "forms": compare()}, indent=1) + "\n"
    if arguments.write:
        RESULT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
