"""What a proof reports while it runs and when it ends."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from phaze_opt.certify.certificate import Certificate
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.record.result_fields import Better, Digits, result_field


class CertifyStage(StrEnum):
    """What a proof is busy with; covering finds the rows of a front over more dies than can have one each."""

    BOUNDING = "bounding"
    COVERING = "covering"
    CLOSING = "closing"
    WRITING = "writing"


@dataclass(frozen=True, slots=True)
class ProofMove:
    """How far a proof has come.

    Attributes:
        stage: what it does now.
        num_bounded, num_points: points bounded, of all.
        num_solved: points solved exactly.
        num_open: points whose bound exceeds what the tolerance allows.
        value, value_upper: incumbent and largest bound, of the goal; 0 as long as unknown.
        wall_s: since the proof began, earlier sessions included, s.
        front_gap: of a front; None where there is one goal.
    """

    stage: CertifyStage
    num_bounded: int
    num_points: int
    num_solved: int
    num_open: int
    value: float
    value_upper: float
    wall_s: float
    front_gap: float | None = None

    @property
    def gap(self) -> float:
        """value_upper / value - 1, or that of a front; infinite without an incumbent."""
        if self.front_gap is not None:
            return self.front_gap
        return self.value_upper / self.value - 1.0 if self.value > 0.0 else float("inf")


@dataclass(frozen=True, slots=True)
class RankedDesign:
    """One of the best designs; equal values share a rank, which counts from 1."""

    rank: int
    index: int
    point: DesignPoint
    value: float
    value_upper: float
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class FrontDesign:
    """A design on a front; ``cost_usd`` is None where cost is no goal, ``num_tied`` counts rows that may equal it."""

    index: int
    point: DesignPoint
    throughput_samples_per_s: float = result_field("samples/s", "samples/s", "attained", better=Better.HIGHER)
    upper_bound_samples_per_s: float = result_field("bound of samples/s", "samples/s", "that it does not exceed")
    tdp_w: float = result_field("TDP", "W", "of a chip", better=Better.LOWER)
    area_mm2: float = result_field("area", "mm2", "of a chip", better=Better.LOWER)
    cost_usd: float | None = result_field("cost", "USD", "of a device, where it is a goal", better=Better.LOWER)
    num_tied: int = result_field("ties", "", "designs that may equal it", digits=Digits.COUNT)


@dataclass(frozen=True, slots=True)
class Flatness:
    """How many points come within a relative distance of the incumbent: some are known only by their bounds."""

    within: float
    at_least: int
    at_most: int


@dataclass(frozen=True, slots=True)
class CertifyResult:
    """A finished proof, or one cut short.

    Attributes:
        certificate: its claim among the rest.
        directory: where it lies.
        best: best designs, best first; none if nothing is feasible. Of a front the fastest.
        flatness: for 0.1, 1 and 5 %.
        history: progress whenever incumbent or bound moved.
        wall_s: of all sessions, s.
        front: designs on the front, fastest first; none where there is one goal.
    """

    certificate: Certificate
    directory: Path
    best: tuple[RankedDesign, ...]
    flatness: tuple[Flatness, ...]
    history: tuple[ProofMove, ...]
    wall_s: float
    front: tuple[FrontDesign, ...] = ()
