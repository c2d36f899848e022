"""What ``phaze-opt network`` prints: tables for a person, or values for one line of JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze_opt.cli.output import out

if TYPE_CHECKING:
    from phaze_opt.hardware.network import Network
    from phaze_opt.objective.step.compiled_step import CompiledStep
    from phaze_opt.objective.step.network_design import NetworkCase, NetworkDesign
    from phaze_opt.report.content import TableContent


def print_design(design: NetworkDesign, *, output: Path | None) -> None:
    """An allocation of bandwidth for a person: levels, collectives, one sentence, and the file written if any."""
    from phaze_opt.report.networks import collective_table, design_sentence, design_table

    draw(design_table(design))
    draw(collective_table(design))
    out().print(design_sentence(design))
    if output is not None:
        out().print(f"Written to {output}: give it to --network.", soft_wrap=True)


def draw(content: TableContent) -> None:
    """One table on standard output."""
    from phaze_opt.report.tables import draw_table

    out().print(draw_table(content))


def design_to_json(design: NetworkDesign, step: CompiledStep, *, output: Path | None) -> dict[str, Any]:
    """An allocation of bandwidth as JSON; seconds and bytes."""

    def case(given: NetworkCase) -> dict[str, Any]:
        return {"levels": levels_to_json(given.network), "seconds": given.seconds}

    plan = step.plan
    return {
        "model": step.model.name,
        "plan": {"tensor": plan.tensor, "pipeline": plan.pipeline, "data": plan.data, "micro_batch": plan.micro_batch},
        "chunking": design.chunking.value,
        "given": case(design.given),
        "equal": case(design.equal),
        "best": case(design.best),
        "transfer_seconds": design.allocation.seconds,
        "transfer_bound_seconds": design.allocation.bound_s,
        "collectives": [
            {
                "name": before.name,
                "kind": before.kind.value,
                "payload_bytes": before.payload_bytes,
                "count": before.count,
                "sizes": [dimension.size for dimension in before.dimensions],
                "given_seconds": before.seconds(design.chunking),
                "best_seconds": after.seconds(design.chunking),
            }
            for before, after in zip(design.given.collectives, design.best.collectives, strict=True)
        ],
        "out": None if output is None else str(output),
    }


def levels_to_json(network: Network) -> list[dict[str, Any]]:
    """The levels of a network, innermost first; SI units."""
    from dataclasses import asdict

    return [asdict(dimension) for dimension in network.dimensions]
