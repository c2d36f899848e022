"""What a model was priced as: class, parameters, layers and FLOPs, and the keys of its config that were not read.

What a job was priced under: machine, network, software, formats and sizes; of designed chips and real machines.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

from phaze_opt.cost.step_time import StepTime
from phaze_opt.graph.sharding import model_flops
from phaze_opt.hardware.spreads import Spread
from phaze_opt.plan.plan_search import RankedPlan
from phaze_opt.record.near_ties import comparable
from phaze_opt.units import GIGA
from phaze_opt.workload.model import transformer_of
from phaze_opt.workload.workload import Workload, sequence_length_of


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


@dataclass(frozen=True, slots=True)
class PricedAs:
    """One model as it was priced.

    Attributes:
        model: its name.
        architecture: its class of transformers; empty of what is none.
        num_parameters: tied ones once.
        num_layers: blocks, an encoder's with them; all layers of a chain of which equal ones are the lesser part.
        sequence_length: positions of one sample; the decoder's beside an encoder.
        flops_per_token: matmul FLOPs of forward and backward over these positions.
        unread_keys: keys of its config that were not read and are not known to change nothing.
    """

    model: str
    architecture: str
    num_parameters: int
    num_layers: int
    sequence_length: int
    flops_per_token: float
    unread_keys: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """For a person."""
        kind = f"{self.architecture}, " if self.architecture else ""
        layers = "layers" if self.num_layers > 1 else "layer"
        return (
            f"{self.model} is priced as {kind}{self.num_parameters:,} parameters, {self.num_layers} {layers}, "
            f"{self.flops_per_token / GIGA:.4g} GFLOP a {self._sample}."
        )

    @property
    def _sample(self) -> str:
        """What FLOPs are counted for: a position of a sequence, or a sample that is none."""
        return f"token of {self.sequence_length:,}" if self.sequence_length > 1 else "sample"

    @property
    def warning(self) -> str:
        """What may be missing of it; empty if nothing is known to be."""
        if not self.unread_keys:
            return ""
        return (
            f"of the config of {self.model} these keys were not read, and may change it: {', '.join(self.unread_keys)}"
        )


def priced_as(models: Sequence[Workload], sequence_length: int | None) -> tuple[PricedAs, ...]:
    """What each model is priced as at a sequence length, or at its own."""
    return tuple(_priced(model, sequence_length_of(model, sequence_length)) for model in models)


def priced_to_json(priced: Sequence[PricedAs]) -> list[dict[str, Any]]:
    """As JSON."""
    return [{**asdict(each), "unread_keys": list(each.unread_keys)} for each in priced]


def _priced(model: Workload, length: int) -> PricedAs:
    spec = transformer_of(model)
    chain = model.cut.chain
    return PricedAs(
        model=model.name,
        architecture="" if spec is None else spec.architecture,
        num_parameters=model.num_parameters,
        num_layers=model.num_layers if 2 * model.num_layers >= len(chain) else len(chain),
        sequence_length=length,
        flops_per_token=model_flops(model, length) / length,
        unread_keys=() if spec is None else spec.unread_keys,
    )
