"""What a job was priced under: machine, network, software, formats and sizes; of designed chips and real machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from phaze_opt.cost.step_time import StepTime
from phaze_opt.hardware.spreads import Spread
from phaze_opt.plan.plan_search import RankedPlan
from phaze_opt.record.near_ties import comparable


@dataclass(frozen=True, slots=True)
class PriceSetting:
    """What every price of a job shares.

    Attributes:
        machine, software, network, model: names.
        num_devices: devices of the cluster.
        tokens: of one step; of several models all together.
        flops: model FLOPs of one step, likewise.
        peak_flops_per_s: of one device.
        peak_type: number format of the matmuls, which the peak is of.
        is_ideal: whether a real machine is priced with ideal software.
        notes: sentences on what the prices rest on.
        is_real: whether the machine exists.
        global_batch: samples of a step.
        sequence_length: tokens of a sample; of several models the longest.
        optimizer, attention: of the training.
        estimator: what prices operators of a designed chip; empty of a real machine.
        memory_bytes: of one device.
        error_share: as a share, by how much two steps on one software must differ to be told apart: on machines that
            exist what 90 % of pairs of one kept-out source stay below (`hardware.spreads`), on designs the mean error
            of steps of the software that were kept out of its fit; None if none is known.
        spread: measured over predicted steps of sources kept out of every fit; None where none speaks of the setting.
    """

    machine: str
    software: str
    network: str
    model: str
    num_devices: int
    tokens: int
    flops: float
    peak_flops_per_s: float
    peak_type: str = "bf16"
    is_ideal: bool = False
    notes: tuple[str, ...] = ()
    is_real: bool = False
    global_batch: int = 0
    sequence_length: int = 0
    optimizer: str = ""
    attention: str = ""
    estimator: str = ""
    memory_bytes: float = 0.0
    error_share: float | None = None
    spread: Spread | None = None

    @property
    def counted(self) -> str:
        """What rates count: samples where a sample has no sequence (an image), else tokens."""
        return "samples" if self.sequence_length == 1 else "tokens"

    def tokens_per_s(self, time: StepTime) -> float:
        """Tokens a second over the whole cluster."""
        return self.tokens / time.seconds

    def mfu(self, ranked: RankedPlan) -> float:
        """Model FLOPs over what all devices of the cluster, idle ones too, could do in the time of the step."""
        return self.flops / (ranked.time.seconds * self.num_devices * self.peak_flops_per_s)

    def is_to_the_brim(self, ranked: RankedPlan) -> bool:
        """Whether a plan fits only if less of the memory is lost than the reserve's range admits."""
        return ranked.memory.is_to_the_brim(self.memory_bytes)

    def is_within_error(self, ranked: RankedPlan, best: RankedPlan) -> bool | None:
        """Whether a plan may be as fast as the best for all that the error of the model says; None if none is known."""
        if self.error_share is None:
            return None
        limit_s = best.time.seconds * (1.0 + self.error_share)
        return bool(comparable(ranked.time.seconds) <= comparable(limit_s))

    def is_over(self, ranked: RankedPlan) -> bool:
        """Whether a plan is expected to take more than the memory, and fits by the low end of its range alone."""
        return ranked.memory.peak_bytes > self.memory_bytes

    def place_to_run(self, plans: Sequence[RankedPlan]) -> int:
        """Place of the plan to run, of plans that stand fastest first; 0 of none.

        On a machine that exists the fastest that leaves room in the memory, of all that are too near to the first to
        tell apart; where none does, the fastest whose figure fits, though slower plans be looked at for it. Else, and
        of a design, whose proofs count predicted peaks, the fastest.
        """
        if not self.is_real:
            return 0
        near = takewhile(lambda pair: pair[0] == 0 or self.is_within_error(pair[1], plans[0]), enumerate(plans))
        roomy = (place for place, each in near if not self.is_to_the_brim(each))
        fitting = (place for place, each in enumerate(plans) if not self.is_over(each))
        return next(roomy, next(fitting, 0))
