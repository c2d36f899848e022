"""``phaze-opt software``: training software that plans can be priced with, its choices and fitted constants."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from phaze_opt.cli.options import JsonOption
from phaze_opt.cli.output import out, print_json


def software(*, json: JsonOption = False) -> None:
    """List the training software that `evaluate --software` knows: what it fuses, overlaps, and was measured on."""
    from phaze_opt.hardware.fitted import load_fitted, read_own_file
    from phaze_opt.objective.step.stacks import list_stacks, load_stack
    from phaze_opt.report.software import choices_table, features_table, measured_table
    from phaze_opt.report.tables import draw_table

    names = list_stacks()
    stacks = [load_stack(name, load_fitted()) for name in names]
    if json:
        print_json([asdict(stack) | {"measured": _measured_to_json(stack.name)} for stack in stacks])
        return
    tables = choices_table(stacks), measured_table(names, read_own_file().sets), features_table(names)
    for table in tables:
        out().print(draw_table(table))


def _measured_to_json(name: str) -> dict[str, Any] | None:
    """Rows, recomputation and parallel features of a software; None of one that was not measured."""
    from phaze_opt.objective.step.measured_software import measured_rows

    measured = measured_rows(name)
    if measured is None:
        return None
    return {
        "rows": [asdict(each) for each in measured.rows],
        "recompute": sorted(each.value for each in measured.recompute),
        "largest_degrees": dict(measured.reach),
        "run_together": sorted(sorted(shape) for shape in measured.shapes),
    }
