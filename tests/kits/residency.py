"""Residency by other means than the package's: a replay of what lies in the buffer, and the most that can be saved."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import lil_matrix

from phaze_opt.graph.operator import Hold, OperatorKind
from phaze_opt.graph.program import Node, Program, TensorRole

Spans = set[tuple[int, int]]


@dataclass(slots=True)
class ReplayedOperator:
    """What one operator moves to and from HBM, its product apart, bytes.

    Attributes:
        reads, writes: by tensor, of what is not in the buffer.
        occupied: bytes of the buffer that are in use while it runs.
    """

    reads: dict[str, float] = field(default_factory=dict)
    writes: dict[str, float] = field(default_factory=dict)
    occupied: int = 0

    @property
    def total(self) -> float:
        """Reads and writes."""
        return sum(self.reads.values()) + sum(self.writes.values())


def needed_after(program: Program, nodes: Sequence[Node]) -> set[str]:
    """Tensors of a phase that somebody reads after it: backward, the next layer, or the optimizer."""
    names = {tensor.name for tensor in program.outputs}
    own = {id(node) for node in nodes}
    for node in program.nodes:
        if id(node) in own:
            names |= {tensor.name for tensor in node.outputs if tensor.role is TensorRole.WEIGHT_GRADIENT}
        else:
            names |= {tensor.kept_as or tensor.name for tensor in node.inputs}
            names |= {tensor.name for tensor in node.inputs}
    return names


def replay(
    nodes: Sequence[Node], needed: Collection[str], holds: Sequence[Hold], addresses: Sequence[int], capacity: int
) -> list[ReplayedOperator]:
    """Walk the nodes with the buffer's contents by address.

    A hold stores what its first operator touches, and is dropped after its last. Bytes that an operator finds in the
    buffer, put there before, are not read; a tensor that nobody reads afterwards is not written where it is in the
    buffer. Rooms of tiles hold nothing. Fails where two tensors lie on one another.
    """
    alias: dict[str, str] = {}
    size: dict[str, int] = {}
    in_memory = set(needed)
    for node in nodes:
        for tensor in node.inputs:
            size.setdefault(tensor.name, tensor.num_bytes)
        if node.kind is OperatorKind.VIEW:
            alias |= {tensor.name: alias.get(node.inputs[0].name, node.inputs[0].name) for tensor in node.outputs}
        size |= {tensor.name: tensor.num_bytes for tensor in node.outputs}
    for node in nodes:
        if node.kind is OperatorKind.COLLECTIVE:
            in_memory |= {tensor.name for tensor in node.inputs}
    in_memory |= {alias.get(name, name) for name in in_memory}
    moved: list[ReplayedOperator] = []
    for number, node in enumerate(nodes):
        present = [
            (hold, (address, min(address + hold.num_bytes, capacity)))
            for hold, address in zip(holds, addresses, strict=True)
            if hold.first <= number <= hold.last and address < capacity and not hold.is_room
        ]
        found = ReplayedOperator(occupied=_check_apart(present))
        moved.append(found)
        if node.kind in (OperatorKind.VIEW, OperatorKind.COLLECTIVE):
            continue
        for tensor in {each.name: each for each in node.inputs}.values():
            origin = alias.get(tensor.name, tensor.name)
            here = _length({span for hold, span in present if hold.tensor == origin and hold.first < number})
            found.reads[tensor.name] = tensor.num_bytes * (1 - here / size[origin]) if size[origin] else 0.0
        for tensor in node.outputs:
            here = _length({span for hold, span in present if hold.tensor == tensor.name and hold.first == number})
            found.writes[tensor.name] = float(tensor.num_bytes - (0 if tensor.name in in_memory else here))
    return moved


def _check_apart(present: Sequence[tuple[Hold, tuple[int, int]]]) -> int:
    """Bytes in use; fails where two tensors have addresses in common."""
    tensors = {hold.tensor for hold, _ in present}
    lengths = [_length({span for hold, span in present if hold.tensor == tensor}) for tensor in tensors]
    together = _length({span for _, span in present})
    assert together == sum(lengths), present
    return together


def _length(spans: Spans) -> int:
    """Bytes that spans cover."""
    total, reached = 0, 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    return total


def saved_bytes(holds: Sequence[Hold], addresses: Sequence[int], capacity: int) -> float:
    """What a plan saves with so many bytes."""
    return sum(
        value_of(hold) * min(max(capacity - address, 0), hold.num_bytes) / hold.num_bytes
        for hold, address in zip(holds, addresses, strict=True)
    )


def value_of(hold: Hold) -> int:
    """Bytes that holding all of a tensor saves."""
    return sum(saving.num_bytes for saving in hold.savings)


def saved_alone(holds: Sequence[Hold], capacity: int) -> float:
    """What each hold alone would save."""
    return sum(value_of(hold) * min(1.0, capacity / hold.num_bytes) for hold in holds)


def most_saved_bytes(holds: Sequence[Hold], capacity: int) -> float:
    """The most that any shares of the holds save: bytes held at an operator, of a tensor once, are within the capacity.

    Shares may be any, addresses are not asked for: a linear program, above whatever a plan of addresses attains.
    """
    if not holds:
        return 0.0
    rows: list[tuple[dict[int, float], float]] = []
    num_variables = len(holds)
    for number in range(max(hold.last for hold in holds) + 1):
        there: dict[str, list[int]] = {}
        for place, hold in enumerate(holds):
            if hold.first <= number <= hold.last:
                there.setdefault(hold.tensor, []).append(place)
        total: dict[int, float] = {}
        for places in there.values():
            column = places[0]
            if len(places) > 1:
                column, num_variables = num_variables, num_variables + 1
                rows.extend(({place: 1.0, column: -1.0}, 0.0) for place in places)
            total[column] = 1.0
        rows.append((total, float(capacity)))
    matrix = lil_matrix((len(rows), num_variables))
    for row, (terms, _) in enumerate(rows):
        for column, factor in terms.items():
            matrix[row, column] = factor
    costs = np.zeros(num_variables)
    costs[: len(holds)] = [-value_of(hold) / hold.num_bytes for hold in holds]
    limits = [(0.0, float(hold.num_bytes)) for hold in holds] + [(0.0, None)] * (num_variables - len(holds))
    found = linprog(costs, A_ub=matrix.tocsr(), b_ub=[limit for _, limit in rows], bounds=limits, method="highs")
    assert found.status == 0, found.message
    return float(-found.fun)
