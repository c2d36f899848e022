"""Pipelines as runs of equal stages, first stage first."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from phaze_opt.cost.step_traffic import Counts, stage_counts


@dataclass(frozen=True, slots=True)
class StageRuns:
    """The stages of a pipeline as runs of stages that hold and send the same.

    Attributes:
        kinds: embeddings, blocks and heads of the distinct stages, shape (kinds, layers).
        kind: of each run's stages, place in ``kinds``, shape (runs,).
        boundaries: of each run's stages, place among the distinct pairs of boundaries, shape (runs,).
        recompute: of each run's stages, as given, shape (runs,).
        first: number of each run's first stage, shape (runs,).
        length: stages of each run, shape (runs,).
    """

    kinds: Counts
    kind: Counts
    boundaries: Counts
    recompute: Counts
    first: Counts
    length: Counts


def list_runs(blocks: tuple[int, ...], boundaries: Counts, recompute: Counts) -> StageRuns:
    """Runs of the stages of a pipeline.

    Args:
        blocks: of each stage.
        boundaries: pair of boundaries of each stage (`step_traffic.TransferCosts`).
        recompute: of each stage, any numbers.
    """
    counts = [tuple(row) for row in stage_counts(blocks).tolist()]
    kinds = list(dict.fromkeys(counts))
    number = {kind: place for place, kind in enumerate(kinds)}
    keys = zip([number[kind] for kind in counts], boundaries.tolist(), recompute.tolist(), strict=True)
    found = [(*key, len(list(members))) for key, members in groupby(keys)]
    kind, pair, choice, length = (np.array(column, np.int64) for column in zip(*found, strict=True))
    return StageRuns(np.array(kinds, np.int64), kind, pair, choice, length.cumsum() - length, length)
