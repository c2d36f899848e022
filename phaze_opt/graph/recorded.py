"""`RecordedWorkload`: a model that states its own layers, whatever it is made of."""

from typing import Protocol, cast

from phaze_opt.graph.operator import ShardingOptions
from phaze_opt.graph.program import Program
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload


class RecordedWorkload(Workload, Protocol):
    """What `graph.build`, `graph.sharding` and `graph.sharding` ask of every model but a `ModelSpec`."""

    def sharding_obstacle(self, tensor_parallel: int, options: ShardingOptions) -> str | None:
        """Why it cannot be sharded so, as a sentence; None if it can."""
        ...

    def model_flops(self, sequence_length: int) -> float:
        """Matmul FLOPs of forward and backward of one sample, whatever the sharding and fusion."""
        ...

    def record_layers(
        self, training: TrainingSpec, *, tensor_parallel: int, options: ShardingOptions
    ) -> tuple[Program, ...]:
        """An unfused program of each kind of layer, in the order of the kinds of its ``cut``.

        Raises:
            InputError: the model cannot be run so.
        """
        ...


def as_recorded(model: Workload) -> RecordedWorkload:
    """A model that is no `ModelSpec`, as what it is.

    Raises:
        TypeError: it does not state its layers; a bug.
    """
    if not hasattr(model, "record_layers"):
        message = f"{type(model).__name__} states no layers: it is neither a ModelSpec nor a RecordedWorkload"
        raise TypeError(message)
    return cast("RecordedWorkload", model)
