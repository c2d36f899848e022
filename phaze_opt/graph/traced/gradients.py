"""What of a recorded backward pass is not computed in training.

A tape differentiates every operation to all of its inputs. Training does not: an image has no gradient, nor has the
state before the first step, and a result that nothing reads gives none. Such gradients, and all that serves them
alone, are taken out of a program.
"""

from collections.abc import Sequence
from dataclasses import replace

from phaze_opt.graph.operator import Phase
from phaze_opt.graph.program import Node, Tensor, TensorRole

_GRADIENTS = (TensorRole.GRADIENT, TensorRole.WEIGHT_GRADIENT)


def without_idle_gradients(nodes: Sequence[Node], outputs: Sequence[Tensor]) -> tuple[Node, ...]:
    """The nodes of a program without backward work that no result and no parameter needs.

    Args:
        nodes: forward nodes, then backward nodes.
        outputs: tensors that leave the layer.
    """
    forward = [node for node in nodes if node.phase is not Phase.BACKWARD]
    backward = [node for node in nodes if node.phase is Phase.BACKWARD]
    return (*forward, *_needed(_given(backward), {tensor.name for tensor in outputs}))


def _given(nodes: Sequence[Node]) -> list[Node]:
    """Nodes that a gradient reaches: not those all of whose gradients are of nothing."""
    absent: set[str] = set()
    kept: list[Node] = []
    for node in nodes:
        read = [tensor for tensor in node.inputs if tensor.role in _GRADIENTS]
        present = [tensor for tensor in read if tensor.elements and tensor.name not in absent]
        if read and not present:
            absent.update(tensor.name for tensor in node.outputs)
            continue
        gone = {tensor.name for tensor in read} - {tensor.name for tensor in present}
        inputs = tuple(tensor for tensor in node.inputs if tensor.name not in gone)
        kept.append(replace(node, inputs=inputs) if gone else node)
    return kept


def _needed(nodes: Sequence[Node], leaving: set[str]) -> list[Node]:
    """Nodes that a parameter's gradient or a tensor that leaves needs, with those of their results alone."""
    read = set(leaving)
    kept: list[Node] = []
    for node in reversed(nodes):
        outputs = tuple(
            tensor for tensor in node.outputs if tensor.role is TensorRole.WEIGHT_GRADIENT or tensor.name in read
        )
        if node.outputs and not outputs:
            continue
        read.update(tensor.name for tensor in node.inputs)
        kept.append(node if len(outputs) == len(node.outputs) else replace(node, outputs=outputs))
    return kept[::-1]
