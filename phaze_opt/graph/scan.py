"""Selective scan (Mamba) on a `Tape`: vector work whose steps follow one another.

h_t = exp(d_t A) h_(t-1) + (d_t x_t) B_t and y_t = C_t h_t, for every channel and each of its states. The states stay on
chip: forward writes the result alone, and backward makes them again before it walks the steps in reverse (Gu and Dao
2023, section 3.3.2), so it takes twice the steps.
"""

from dataclasses import dataclass

from phaze_opt.errors import InputError
from phaze_opt.graph.operator import OperatorKind, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Tape, Tensor

_FORWARD_ADDS = 5
"""Lane operations a state besides the exponential: d A, (d x) B, the state (two), and C h summed up."""
_BACKWARD_ADDS = 10
"""Those of a state's gradient and of the gradients of d, A, x, B and C, two each."""


@dataclass(frozen=True, slots=True)
class ScanShape:
    """Sizes of a scan: steps of a sequence, sequences, channels, and states of each channel."""

    steps: int
    batch: int
    channels: int
    states: int

    def __post_init__(self) -> None:
        """Refuse empty sizes."""
        if min(self.steps, self.batch, self.channels, self.states) < 1:
            message = f"scan {self}: every size must be positive"
            raise InputError(message)

    @property
    def elements(self) -> int:
        """Of the result."""
        return self.steps * self.batch * self.channels


def selective_scan(
    tape: Tape, name: str, inputs: tuple[Tensor, Tensor, Tensor, Tensor], shape: ScanShape, *, has_skip: bool = True
) -> Tensor:
    """The scan's result, [steps, batch, channels]; backward keeps its inputs.

    Args:
        tape: what records it.
        name: of the operation and of its result.
        inputs: x and d, [steps, batch, channels]; B and C, [steps, batch, states].
        shape: all sizes.
        has_skip: whether each channel adds its input times a parameter.
    """
    decay = tape.weight(f"{name}.decay", shape.channels * shape.states)
    weights = (decay, tape.weight(f"{name}.skip", shape.channels)) if has_skip else (decay,)
    result = tape.tensor(name, shape.elements)
    cells = shape.elements * shape.states
    again = (VectorWork(VectorKind.ACTIVATION_FORWARD, cells), VectorWork(VectorKind.ADD, _FORWARD_ADDS * cells))
    kind, fusibility = OperatorKind.VECTOR, Fusibility.OPAQUE
    tape.emit(name, kind, fusibility, (*inputs, *weights), (result,), vector_works=again, serial_steps=shape.steps)

    def differentiate() -> None:
        read = (*inputs, *weights, tape.gradient(result))
        written = tuple(tape.add_gradient(each, name) for each in (*inputs, *weights))
        works = (*again, VectorWork(VectorKind.ADD, _BACKWARD_ADDS * cells))
        steps = 2 * shape.steps
        tape.emit(f"{name}.gradient", kind, fusibility, read, written, vector_works=works, serial_steps=steps)

    tape.on_backward(differentiate)
    return result
