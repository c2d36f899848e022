"""Fusion as a pass over programs, by TVM's rule (Chen et al. 2018, section 3) or as Megatron-LM does it.

At the level ``epilogue`` chains of elementwise operations become one, and a matmul takes the elementwise, activation,
norm or dropout operation that is its only consumer as an epilogue. At the level ``elementwise`` chains still become
one, but normalisations stay kernels of their own and a matmul takes nothing but a lone bias, as every matmul library
offers: Megatron's bias + activation and bias + dropout + residual kernels (docs/decisions/0168).

"Only consumer" is meant within a phase: what backward needs besides is still written. Merging a node into its only
consumer never makes a cycle, as every path out of the node leads through that consumer.
"""

from collections import Counter
from dataclasses import replace

from phaze_opt.graph.operator import OperatorKind, Phase, VectorKind
from phaze_opt.graph.program import Fusibility, Node, Program, TensorRole
from phaze_opt.workload.software import FusionLevel

_NORMS = (VectorKind.NORM_FORWARD, VectorKind.NORM_BACKWARD)


def fuse(program: Program, level: FusionLevel = FusionLevel.EPILOGUE) -> Program:
    """The program with fused nodes; parameters, matmuls and vector work are unchanged, traffic never grows."""
    if level is FusionLevel.NONE:
        return program
    kept = {
        tensor.name
        for node in program.nodes
        if node.phase is Phase.BACKWARD
        for tensor in node.inputs
        if tensor.role is TensorRole.ACTIVATION
    }
    leaving = {tensor.name for tensor in program.outputs}
    fused: list[Node] = []
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        nodes = [node for node in program.nodes if node.phase is phase]
        joining = nodes if level is FusionLevel.EPILOGUE else [_without_norms(node) for node in nodes]
        groups = _merge(list(range(len(nodes))), joining, leaving, taker=Fusibility.ELEMENTWISE)
        if level is FusionLevel.ELEMENTWISE:
            joining = _only_lone_biases(groups, joining)
        groups = _merge(groups, joining, leaving, taker=Fusibility.MATMUL)
        fused.extend(_fused_nodes(groups, nodes, kept | leaving))
    return replace(program, nodes=tuple(fused))


def _without_norms(node: Node) -> Node:
    """A node that no kernel joins if it normalises."""
    is_norm = any(work.kind in _NORMS for work in node.vector_works)
    return replace(node, fusibility=Fusibility.OPAQUE) if is_norm else node


def _only_lone_biases(groups: list[int], nodes: list[Node]) -> list[Node]:
    """Nodes of which a matmul may take those alone that add a vector and were not merged into a longer chain."""
    sizes = Counter(groups)
    return [
        replace(node, fusibility=Fusibility.OPAQUE)
        if node.fusibility is Fusibility.ELEMENTWISE and not (sizes[group] == 1 and _is_bias(node))
        else node
        for group, node in zip(groups, nodes, strict=True)
    ]


def _is_bias(node: Node) -> bool:
    """Whether a node adds a parameter vector and does nothing else."""
    is_sum = [work.kind for work in node.vector_works] == [VectorKind.ADD]
    return is_sum and sum(tensor.role is TensorRole.WEIGHT for tensor in node.inputs) == 1


def _merge(groups: list[int], nodes: list[Node], leaving: set[str], *, taker: Fusibility) -> list[int]:
    """Merge each ``taker`` node's group into the elementwise group that alone consumes it, last nodes first.

    ``groups[i]`` is the group of node i, named by its last node; returned likewise.
    """
    consumers = _consumers(nodes)
    groups = list(groups)
    has_matmul = {groups[i] for i, node in enumerate(nodes) if node.fusibility is Fusibility.MATMUL}
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        if node.fusibility is not taker or any(tensor.name in leaving for tensor in node.outputs):
            continue
        users = {groups[user] for tensor in node.outputs for user in consumers.get(tensor.name, ())}
        if len(users) != 1:
            continue
        target = users.pop()
        is_taken = target in has_matmul
        if nodes[target].fusibility is Fusibility.ELEMENTWISE and not is_taken and target != groups[index]:
            groups[index] = target
            if taker is Fusibility.MATMUL:
                has_matmul.add(target)
    return groups


def _consumers(nodes: list[Node]) -> dict[str, list[int]]:
    """Indices of the nodes that read each tensor."""
    found: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        for tensor in node.inputs:
            found.setdefault(tensor.name, []).append(index)
    return found


def _fused_nodes(groups: list[int], nodes: list[Node], needed: set[str]) -> list[Node]:
    """One node for each group, in the order of the groups' last nodes (which is topological)."""
    members: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    consumers = _consumers(nodes)
    fused = []
    for group in sorted(members):
        indices = members[group]
        if len(indices) == 1:
            fused.append(nodes[group])
            continue
        inside = set(indices)
        internal = {
            tensor.name
            for index in indices
            for tensor in nodes[index].outputs
            if tensor.name not in needed
            and tensor.role is not TensorRole.WEIGHT_GRADIENT
            and inside.issuperset(consumers.get(tensor.name, (-1,)))
        }
        fused.append(_fused_node([nodes[index] for index in indices], internal))
    return fused


def _fused_node(parts: list[Node], internal: set[str]) -> Node:
    """Join nodes; ``internal`` tensors never reach memory."""
    produced = {tensor.name for part in parts for tensor in part.outputs}
    inputs = {t.name: t for part in parts for t in part.inputs if t.name not in produced}
    has_matmul = any(part.matmuls for part in parts)
    return Node(
        name="+".join(part.name for part in parts),
        phase=parts[0].phase,
        kind=OperatorKind.MATMUL if has_matmul else OperatorKind.VECTOR,
        fusibility=Fusibility.MATMUL if has_matmul else Fusibility.ELEMENTWISE,
        inputs=tuple(inputs.values()),
        outputs=tuple(t for part in parts for t in part.outputs if t.name not in internal),
        matmuls=tuple(matmul for part in parts for matmul in part.matmuls),
        vector_works=tuple(work for part in parts for work in part.vector_works),
        left=tuple(tensor for part in parts for tensor in part.left),
        right=tuple(tensor for part in parts for tensor in part.right),
    )
