"""``phaze-opt software``: training software that plans can be priced with, its choices and fitted constants."""

from __future__ import annotations

from dataclasses import asdict

from phaze_opt.cli.options import JsonOption
from phaze_opt.cli.output import out, print_json


def software(*, json: JsonOption = False) -> None:
    """List the training software that `evaluate --software` knows: what it fuses and overlaps, and what was fitted."""
    from phaze_opt.hardware.fitted import load_fitted
    from phaze_opt.objective.step.stacks import list_stacks, load_stack
    from phaze_opt.report.content import Column, TableContent
    from phaze_opt.report.tables import draw_table

    stacks = [load_stack(name, load_fitted()) for name in list_stacks()]
    if json:
        print_json([asdict(stack) for stack in stacks])
        return
    rows = tuple(
        (
            stack.name,
            f"{stack.fusion.value}, {stack.attention.value} attention",
            " ".join(f"{share:.2f}" for share in (stack.tensor_overlap, stack.data_overlap, stack.parameter_overlap)),
        )
        for stack in stacks
    )
    columns = (Column("software"), Column("kernels fused"), Column("overlap t, g, p", is_number=True))
    note = (
        "overlap: shares of tensor-parallel, gradient and ZeRO 3 parameter traffic that hide behind compute; all "
        "constants with --json"
    )
    out().print(draw_table(TableContent("Training software", columns, rows, note)))
