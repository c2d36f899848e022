"""``phaze-opt certify --robust``: what an optimum is worth when the assumptions move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze_opt.cli.output import out
from phaze_opt.cli.progress import progress

if TYPE_CHECKING:
    from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
    from phaze_opt.certify.robust.result import RobustOptions, RobustProgress, RobustResult

Analyst = Callable[..., "RobustResult"]


def analyse(problem: CertifyProblem, options: CertifyOptions, robust: RobustOptions, *, is_quiet: bool) -> RobustResult:
    """Prove every world under a bar on standard error.

    Raises:
        InputError: a kept file is broken, or the directory cannot be written.
    """
    with progress("certify --robust", is_transient=is_quiet) as show:
        return _package_analyst()(
            problem,
            options,
            robust,
            on_progress=lambda moved: show(moved.stage.value, moved.num_worlds, moved.num_all_worlds, _describe(moved)),
        )


def _describe(progress: RobustProgress) -> str:
    what = f"{progress.num_evaluations:,} evaluations"
    if progress.regret < 1.0:
        what += f", largest regret {100.0 * progress.regret:.2f} % (at least {100.0 * progress.regret_lower:.2f} %)"
    return what


def _package_analyst() -> Analyst:
    from phaze_opt.certify.robust.analyse import analyse_robustness

    return analyse_robustness


def robust_to_json(result: RobustResult, file: str) -> dict[str, Any]:
    """An analysis as JSON: conclusions, regrets and the optimum of every world."""
    return {
        "minimax": asdict(result.minimax),
        "nominal_minimax": asdict(result.nominal_minimax),
        "effects": [asdict(effect) for effect in result.effects],
        "conclusions": [
            {
                "statement": conclusion.statement,
                "survives": conclusion.survives,
                "share": conclusion.share,
                "worst_world": "" if conclusion.worst_world < 0 else result.worlds[conclusion.worst_world].name,
            }
            for conclusion in result.conclusions
        ],
        "designs": [
            {
                "name": design.name,
                "roles": list(design.roles),
                "architecture": None if design.point is None else asdict(design.point),
                "worst_regret": design.worst_regret,
                "worst_world": result.worlds[design.worst_world].name,
                "regrets": list(design.regrets),
            }
            for design in result.designs
        ],
        "worlds": [
            {
                "name": world.name,
                "ends": [end.value for end in world.ends],
                "architecture": None if optimum.point is None else asdict(optimum.point),
                "value": optimum.value,
                "upper_bound": optimum.value_upper,
                "gap": optimum.gap,
            }
            for world, optimum in zip(result.worlds, result.optima, strict=True)
        ],
        "wall_s": result.wall_s,
        "file": file,
    }


def robust_metrics(result: RobustResult) -> dict[str, float]:
    """What the tracker shows of an analysis."""
    minimax = result.minimax
    return {
        "robust.minimax_regret": minimax.regret,
        "robust.minimax_regret_lower": minimax.regret_lower,
        "robust.num_worlds": float(len(result.worlds)),
        "robust.conclusions": float(len(result.conclusions)),
        "robust.conclusions_surviving": float(sum(conclusion.survives for conclusion in result.conclusions)),
    }


def print_robust(result: RobustResult, file: Path) -> None:
    """Sentences and tables for a person."""
    from phaze_opt.report.robust import minimax_sentences, robust_summary
    from phaze_opt.report.tables import draw_table

    screen = out()
    for table in robust_summary(result):
        screen.print(draw_table(table))
    screen.print("")
    for sentence in minimax_sentences(result):
        screen.print(sentence)
    screen.print(f"All of it, every world and range among it: {file}", soft_wrap=True)
