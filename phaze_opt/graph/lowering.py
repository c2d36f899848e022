"""Lower a program to operator graphs and sizes of a layer: traffic, edges and activation memory from its tensors.

The optimizer update, which no tape records, is one vector operator.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from phaze_opt.graph.attention import is_attention_core
from phaze_opt.graph.layer import BorderTensor, LayerGraph
from phaze_opt.graph.operator import (
    BufferUse,
    CoreType,
    Operator,
    OperatorGraph,
    OperatorKind,
    Phase,
    PhaseBorder,
    VectorKind,
    VectorWork,
)
from phaze_opt.graph.program import Node, Program, Tensor, TensorRole
from phaze_opt.graph.residency import buffer_uses, find_border, find_holds
from phaze_opt.workload.sparsity import SparseWeights
from phaze_opt.workload.training import Optimizer

_NO_TRAFFIC = (OperatorKind.COLLECTIVE, OperatorKind.VIEW)


def lower(program: Program, *, optimizer: Optimizer, sparsity: SparseWeights | None = None) -> LayerGraph:
    """The layer graph of a program, fused or not; ``sparsity`` is that of its products with weights."""
    nodes = program.nodes if sparsity is None else [_thinned(node, sparsity) for node in program.nodes]
    forward = [node for node in nodes if node.phase is Phase.FORWARD]
    backward = [node for node in nodes if node.phase is Phase.BACKWARD]
    kept = kept_bytes(backward)
    thinned = [] if sparsity is None else [tensor for node in forward for tensor in _weights(node)]
    stash_bytes = sum(kept.values())
    leaving = {tensor.name for tensor in program.outputs}
    return LayerGraph(
        name=program.name,
        forward=_graph(forward, _stash_by_node(forward, kept), leaving | kept.keys()),
        backward=_graph(backward, {}, leaving),
        update=_update_graph(program.num_parameters, optimizer=optimizer, choosing=_choosing(thinned, sparsity)),
        num_parameters=program.num_parameters,
        num_tied_parameters=program.num_tied_parameters,
        num_expert_parameters=program.num_expert_parameters,
        stash_bytes=float(stash_bytes),
        selective_bytes=float(stash_bytes - sum(kept[name] for name in core_tensors(forward, backward) & kept.keys())),
        input_bytes=float(program.input.num_bytes),
        working_set_bytes=float(stash_bytes + peak_gradient_bytes(backward)),
        output_bytes=float(program.output_bytes),
        kept_input_bytes=_kept_of(program.input, kept),
        kept_output_bytes=_kept_output(program, kept),
        kept_passing_bytes=sum((_kept_of(tensor, kept) for tensor in program.passing), start=0.0),
        compressed_weights=_compressed(thinned, sparsity),
        compressed_expert_weights=_compressed([each for each in thinned if each.is_of_experts], sparsity),
        reads=tuple(BorderTensor(float(each.num_bytes), _kept_of(each, kept)) for each in program.reads),
        makes=tuple(BorderTensor(float(each.num_bytes), _kept_of(each, kept)) for each in program.makes),
        forward_border=_forward_border(program, forward),
        backward_border=_backward_border(program, backward),
    )


def _thinned(node: Node, sparsity: SparseWeights) -> Node:
    """The node with its product's weights sparse: forward, and in backward where masks are transposable.

    Groups of a convolution stay dense: few of their inputs share a filter.
    """
    if not _weights(node) or not (node.phase is Phase.FORWARD or sparsity.is_transposable):
        return node
    return replace(node, matmuls=tuple(replace(each, pattern=sparsity.pattern) for each in node.matmuls))


def _weights(node: Node) -> list[Tensor]:
    """The weights that are the right operand of the node's product and may be thinned out."""
    if node.kind is not OperatorKind.MATMUL or any(each.is_grouped for each in node.matmuls):
        return []
    return [tensor for tensor in node.right if tensor.role is TensorRole.WEIGHT]


def _choosing(thinned: Sequence[Tensor], sparsity: SparseWeights | None) -> tuple[int, int]:
    """Lane operations of choosing which weights a step keeps, and bytes of the copies that its products read."""
    if sparsity is None:
        return 0, 0
    elements = sum(tensor.elements for tensor in thinned)
    return (
        math.ceil(elements * sparsity.choosing_operations),
        math.ceil(elements * sparsity.copied_share * Optimizer.ADAM.weight_bytes),
    )


def _compressed(thinned: Sequence[Tensor], sparsity: SparseWeights | None) -> float:
    """`LayerGraph.compressed_weights` of some weights."""
    if sparsity is None:
        return 0.0
    return float(sum(tensor.elements for tensor in thinned) * sparsity.copied_share)


def _forward_border(program: Program, nodes: Sequence[Node]) -> PhaseBorder:
    """In forward the layer's input comes and its output goes."""
    sent = [tensor for tensor in program.outputs if tensor.role is TensorRole.ACTIVATION]
    return find_border(nodes, [program.input], sent)


def _backward_border(program: Program, nodes: Sequence[Node]) -> PhaseBorder:
    """In backward the gradient of the output comes, which no node makes, and that of the input goes."""
    made = {tensor.name for node in nodes for tensor in node.outputs}
    read = {each.name: each for node in nodes for each in node.inputs if each.role is TensorRole.GRADIENT}
    came = [tensor for name, tensor in read.items() if name not in made]
    return find_border(nodes, came, [each for each in program.outputs if each.role is TensorRole.GRADIENT])


def _kept_of(tensor: Tensor, kept: Mapping[str, int]) -> float:
    """Kept bytes of a tensor, or of what is kept in its place."""
    return float(kept.get(tensor.kept_as or tensor.name, 0))


def _kept_output(program: Program, kept: Mapping[str, int]) -> float:
    """Kept bytes of the tensor that goes to the next layer; 0 of several, as neighbours may keep different ones."""
    sent = [tensor for tensor in program.outputs if tensor.role is TensorRole.ACTIVATION]
    return _kept_of(sent[0], kept) if len(sent) == 1 else 0.0


def kept_bytes(backward: Sequence[Node]) -> dict[str, int]:
    """Bytes of each tensor that forward must keep for backward; views and gathered tensors count as their origin."""
    kept: dict[str, int] = {}
    for node in backward:
        for tensor in node.inputs:
            if tensor.role is TensorRole.ACTIVATION:
                name = tensor.kept_as or tensor.name
                kept[name] = tensor.kept_bytes if tensor.kept_as else tensor.num_bytes
    return kept


def core_tensors(forward: Sequence[Node], backward: Sequence[Node]) -> set[str]:
    """Tensors that only the attention core writes and reads: selective recomputation makes them again."""
    inside = {tensor.name for node in forward if is_attention_core(node.name) for tensor in node.outputs}
    outside = {
        tensor.kept_as or tensor.name for node in backward if not is_attention_core(node.name) for tensor in node.inputs
    }
    return inside - outside


def peak_gradient_bytes(backward: Sequence[Node]) -> int:
    """Largest sum of activation gradients alive at once when the backward nodes run in their order."""
    last_use = {tensor.name: i for i, node in enumerate(backward) for tensor in node.inputs}
    alive: dict[str, int] = {}
    peak = 0
    for index, node in enumerate(backward):
        for tensor in (*node.inputs, *node.outputs):
            if tensor.role is TensorRole.GRADIENT:
                alive[tensor.name] = tensor.num_bytes
        peak = max(peak, sum(alive.values()))
        for tensor in node.inputs:
            if last_use[tensor.name] == index:
                alive.pop(tensor.name, None)
    return peak


def _stash_by_node(forward: Sequence[Node], kept: Mapping[str, int]) -> dict[str, int]:
    """Kept bytes by the node that produces them; the layer's own input counts at its first reader."""
    owner: dict[str, str] = {}
    for node in forward:
        for tensor in (*node.inputs, *node.outputs):
            owner.setdefault(tensor.name, node.name)
    stash: dict[str, int] = {}
    for name, num_bytes in kept.items():
        stash[owner[name]] = stash.get(owner[name], 0) + num_bytes
    return stash


def _graph(nodes: Sequence[Node], stash: Mapping[str, int], needed: set[str]) -> OperatorGraph:
    """Operators in the nodes' order; edges from each tensor's producer to its readers.

    ``needed`` names the tensors that must be in memory afterwards.
    """
    producer = {tensor.name: index for index, node in enumerate(nodes) for tensor in node.outputs}
    edges = {
        (producer[tensor.name], index)
        for index, node in enumerate(nodes)
        for tensor in node.inputs
        if tensor.name in producer
    }
    holds, on_core = find_holds(nodes, needed), [node.kind not in _NO_TRAFFIC for node in nodes]
    uses = buffer_uses(holds, on_core, [_operand_bytes(node) for node in nodes])
    operators = tuple(_operator(node, stash.get(node.name, 0), use) for node, use in zip(nodes, uses, strict=True))
    return OperatorGraph(operators, tuple(sorted(edges)), holds)


def _operator(node: Node, stash_bytes: int, use: BufferUse) -> Operator:
    has_traffic = node.kind not in _NO_TRAFFIC
    return Operator(
        name=node.name,
        phase=node.phase,
        kind=node.kind,
        core_type=_core_type(node),
        matmuls=node.matmuls,
        vector_works=node.vector_works,
        bytes_read=_total_bytes(node.inputs) if has_traffic else 0.0,
        bytes_written=_total_bytes(node.outputs) if has_traffic else 0.0,
        parameter_bytes=float(sum(t.num_bytes for t in node.inputs if t.role is TensorRole.WEIGHT)),
        stash_bytes=float(stash_bytes),
        collective=node.collective,
        buffer=use,
        serial_steps=node.serial_steps,
    )


def _operand_bytes(node: Node) -> tuple[int, int]:
    """Bytes of the operands of the node's product."""
    return sum(tensor.num_bytes for tensor in node.left), sum(tensor.num_bytes for tensor in node.right)


def _total_bytes(tensors: Sequence[Tensor]) -> float:
    return float(sum({tensor.name: tensor.num_bytes for tensor in tensors}.values()))


def _core_type(node: Node) -> CoreType:
    if node.kind is OperatorKind.COLLECTIVE:
        return CoreType.NETWORK
    if node.kind is OperatorKind.VIEW:
        return CoreType.NONE
    if not node.matmuls:
        return CoreType.VC
    may_use_lanes = any(matmul.is_grouped for matmul in node.matmuls)
    return CoreType.TC_AND_VC if node.vector_works or may_use_lanes else CoreType.TC


_KINDS = {Optimizer.ADAM: VectorKind.ADAM, Optimizer.SGD: VectorKind.SGD}


def _update_graph(num_parameters: int, *, optimizer: Optimizer, choosing: tuple[int, int] = (0, 0)) -> OperatorGraph:
    """Update every parameter once.

    Adam in mixed precision reads gradient, master weight and both moments and writes the latter three and the working
    weight: 14 bytes each way. SGD reads weight and gradient and writes the weight. Where weights are sparse it chooses
    which are kept and writes those too: ``choosing`` are lane operations and bytes.
    """
    state = optimizer.state_bytes
    read = optimizer.gradient_bytes + (state if state else optimizer.weight_bytes)
    written = optimizer.weight_bytes + state
    operator = Operator(
        name="update",
        phase=Phase.UPDATE,
        kind=OperatorKind.VECTOR,
        core_type=CoreType.VC,
        vector_works=(
            VectorWork(_KINDS[optimizer], num_parameters),
            *((VectorWork(VectorKind.ADD, choosing[0]),) if choosing[0] else ()),
        ),
        bytes_read=float(read * num_parameters),
        bytes_written=float(written * num_parameters + choosing[1]),
        parameter_bytes=float(optimizer.weight_bytes * num_parameters),
    )
    return OperatorGraph((operator,), ())
