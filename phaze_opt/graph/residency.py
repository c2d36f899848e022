"""Where tensors that the chip's buffer may hold lie in it (docs/decisions/0268).

Holds get addresses in a buffer without end, once a graph and from sizes alone: those first that save most bytes of HBM
traffic for a byte held for one operator, each as low as it fits. Rooms that tiles can use (`graph.residency`) are
placed among them, so that holds leave free what saves more there. A chip with R bytes for them has what lies below R:
more bytes never take one away.

Which tensors the chip's buffer may hold between operators, and which room their tiles can use (decision 0268).

A tensor that is made and used up within a phase may be held from the operator that writes it to the last that reads it:
neither the write nor the reads go to HBM. Of a tensor that is in memory besides (kept for backward, sent to other
devices, a phase's result, an input) every read but the first touch may be spared: it may be held between two operators
that touch it one after the other. All is in the order in which the program lists its nodes.

Tiles of a matmul, w columns and h rows, double-buffered, move each operand once for every strip of the other: with
w = h = the root of the room about 2 mnk / w elements. Where an operand or the result fits, each is moved once. Of a
convolution's left operand what lies in memory counts; that strips of rows share some of it is left out.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isqrt

from phaze_opt.graph.operator import (
    NO_BUFFER_USE,
    BufferUse,
    CoreType,
    HeldOperand,
    Hold,
    Matmul,
    Operand,
    Operator,
    OperatorGraph,
    OperatorKind,
    PhaseBorder,
    Saving,
)
from phaze_opt.graph.program import Node, Tensor, TensorRole


@dataclass(frozen=True, slots=True)
class _Touch:
    """One operator on a core reads (a view of) a tensor, or writes it."""

    operator: int
    num_bytes: int
    operand: Operand


class _Touches:
    """Who touches which tensor of a phase's nodes; views count as the tensor they are of."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Walk the nodes once."""
        self.size: dict[str, int] = {}
        self.made_by: dict[str, _Touch] = {}
        self.reads: dict[str, list[_Touch]] = {}
        self.sent: set[str] = set()
        self._origin: dict[str, str] = {}
        for number, node in enumerate(nodes):
            if node.kind is OperatorKind.VIEW:
                self._origin.update({result.name: self.origin(node.inputs[0].name) for result in node.outputs})
                self.size.setdefault(self.origin(node.inputs[0].name), node.inputs[0].num_bytes)
            elif node.kind is OperatorKind.COLLECTIVE:
                self.sent.update(self.origin(tensor.name) for tensor in node.inputs)
            else:
                self._touch(number, node)

    def origin(self, name: str) -> str:
        """The tensor that a view is of; itself if it is none."""
        return self._origin.get(name, name)

    def _touch(self, number: int, node: Node) -> None:
        for tensor in {each.name: each for each in node.inputs}.values():
            name = self.origin(tensor.name)
            self.size.setdefault(name, tensor.num_bytes)
            self.reads.setdefault(name, []).append(_Touch(number, tensor.num_bytes, _operand(tensor, node)))
        for tensor in node.outputs:
            self.size[tensor.name] = tensor.num_bytes
            self.made_by[tensor.name] = _Touch(number, tensor.num_bytes, Operand.REST)


def _operand(tensor: Tensor, node: Node) -> Operand:
    """What an input is to the node's product."""
    if any(tensor.name == each.name for each in node.left):
        return Operand.LEFT
    return Operand.RIGHT if any(tensor.name == each.name for each in node.right) else Operand.REST


def find_holds(nodes: Sequence[Node], needed: Collection[str]) -> tuple[Hold, ...]:
    """What may be held between the operators of a phase, and what their tiles can use, if anything may.

    Args:
        nodes: of the phase, in order; an operator each.
        needed: names of tensors that must be in memory after it.
    """
    touches = _Touches(nodes)
    in_memory = touches.sent | {touches.origin(name) for name in needed}
    holds: list[Hold] = []
    for name, reads in touches.reads.items():
        size, made_by = touches.size[name], touches.made_by.get(name)
        if made_by is not None and name not in in_memory:
            holds.append(_hold(name, size, made_by.operator, [made_by, *reads]))
        elif all(read.num_bytes == size for read in reads):
            chain = sorted({each.operator for each in (reads if made_by is None else [made_by, *reads])})
            holds.extend(
                _hold(name, size, before, [read for read in reads if read.operator == after])
                for before, after in pairwise(chain)
            )
    held = tuple(hold for hold in holds if hold.num_bytes and hold.first < hold.last)
    return (*held, *(room for number, node in enumerate(nodes) for room in tile_rooms(number, node))) if held else ()


def find_border(nodes: Sequence[Node], entering: Collection[Tensor], leaving: Collection[Tensor]) -> PhaseBorder:
    """What the operators of a phase move at the borders of its layer.

    A tensor that collectives send is in memory for them, and one of which operators touch a part, or of which another
    is a view, cannot be told whole: none of these stays on chip.

    Args:
        nodes: of the phase, in order; an operator each.
        entering: tensors that come from the layer run before.
        leaving: tensors that go to the layer run after.
    """
    touches = _Touches(nodes)
    weights = {each.name: each for node in nodes for each in node.inputs if each.role is TensorRole.WEIGHT}
    firsts = [(touches.reads[name][0], name) for name in weights if name in touches.reads]
    return PhaseBorder(
        _border(touches, entering, is_read=True),
        _border(touches, leaving, is_read=False),
        tuple(Saving(each.operator, each.num_bytes, each.operand) for each, _ in firsts),
    )


def _border(touches: _Touches, tensors: Collection[Tensor], *, is_read: bool) -> Hold | None:
    """Touches of the one tensor of a border, if there is one and all of them are of the whole of it."""
    if len(tensors) != 1:
        return None
    tensor = next(iter(tensors))
    name = touches.origin(tensor.name)
    made_by = touches.made_by.get(name)
    found = touches.reads.get(name, []) if is_read else [] if made_by is None else [made_by]
    if not found or name in touches.sent or any(each.num_bytes != tensor.num_bytes for each in found):
        return None
    return _hold(name, tensor.num_bytes, found[0].operator, found)


def _hold(name: str, size: int, first: int, spared: Sequence[_Touch]) -> Hold:
    savings = tuple(Saving(each.operator, each.num_bytes, each.operand) for each in spared)
    return Hold(name, first, max(each.operator for each in savings), size, savings)


def running_holds(holds: Sequence[Hold], running: Collection[int]) -> tuple[Hold, ...]:
    """Holds that are left where so many operators run: those whose first one does, to the last reader that does."""
    left: list[Hold] = []
    for hold in holds:
        savings = tuple(saving for saving in hold.savings if saving.operator in running)
        last = max((saving.operator for saving in savings), default=hold.first)
        if hold.first in running and (last > hold.first or hold.is_room):
            left.append(replace(hold, last=last, savings=savings))
    return tuple(left) if any(not hold.is_room for hold in left) else ()


FIRST_BYTES = 8 << 20
"""Room that tiles have before they compete with tensors: the nominal value of the constant for it."""


def tile_rooms(number: int, node: Node) -> tuple[Hold, ...]:
    """Rooms that an operator's tiles can use beyond `FIRST_BYTES`, as holds of this operator alone; the best first.

    Each doubles the room before it, up to where an operand or the result fits; steps that save less a byte than what
    follows them are joined with it.

    Args:
        number: place of the operator in its graph.
        node: what it computes.
    """
    if node.kind is not OperatorKind.MATMUL or len(node.matmuls) != 1:
        return ()
    matmul, element_bytes = node.matmuls[0], node.left[0].element_bytes
    m, n, k = matmul.m, matmul.n, matmul.k
    enough = 2 * element_bytes * min(matmul.distinct_left, k * n, m * n)
    sizes = []
    size = FIRST_BYTES
    while size < enough:
        sizes.append(size)
        size *= 2
    points = [(size, element_bytes * _moved_elements(matmul, size // (2 * element_bytes))) for size in (*sizes, enough)]
    rooms: list[Hold] = []
    for before, after in pairwise(_lower_hull(points) if sizes else ()):
        saved = before[1] - after[1]
        if saved > 0:
            name = f"tiles of {node.name}, {after[0]} bytes"
            rooms.append(Hold(name, number, number, after[0] - before[0], (Saving(number, saved, Operand.REST),)))
    return tuple(rooms)


def _moved_elements(matmul: Matmul, room: int) -> int:
    """Elements that tiles of so many elements move, about: never fewer than each of the three matrices once."""
    m, n, k, left = matmul.m, matmul.n, matmul.k, matmul.distinct_left
    once = left + k * n + m * n
    if min(left, k * n, m * n) <= room:
        return matmul.batch * once
    edge = isqrt(room)
    width, height = (n, room // n) if n < edge else (room // m, m) if m < edge else (edge, edge)
    strips = -(-n // width) * left + -(-m // height) * k * n + m * n
    return matmul.batch * max(once, strips)


def _lower_hull(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of points by rising room the corners of the lower convex hull."""
    hull: list[tuple[int, int]] = []
    for point in points:
        while len(hull) > 1 and _is_above(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _is_above(first: tuple[int, int], middle: tuple[int, int], last: tuple[int, int]) -> bool:
    """Whether the middle point lies on or above the line through the others."""
    rise = (middle[1] - first[1]) * (last[0] - first[0])
    return rise >= (last[1] - first[1]) * (middle[0] - first[0])


def is_on_core(operator: Operator) -> bool:
    """Whether an operator occupies a core."""
    return operator.core_type not in (CoreType.NETWORK, CoreType.NONE)


def run_again(graph: OperatorGraph, running: Collection[int]) -> OperatorGraph:
    """The graph where recomputation runs some of its operators only: on cores, the others are results that are there.

    Args:
        graph: of a phase.
        running: operators that run; those on no core do so anyway.
    """
    operators = [
        Operator(each.name, each.phase, OperatorKind.VIEW, CoreType.NONE)
        if is_on_core(each) and number not in running
        else each
        for number, each in enumerate(graph.operators)
    ]
    again = operators_again(graph, running)
    for number, operator in again.items():
        operators[number] = operator
    return OperatorGraph(tuple(operators), graph.edges, running_holds(graph.holds, again))


def operators_again(graph: OperatorGraph, running: Collection[int]) -> dict[int, Operator]:
    """What recomputation runs of a graph, by place: operators that find in the buffer what was made by these alone.

    Args:
        graph: of a phase.
        running: operators that run; those on no core are left out.
    """
    found = {number: each for number, each in enumerate(graph.operators) if number in running and is_on_core(each)}
    on_core = [number in found for number in range(len(graph.operators))]
    sizes = [(each.buffer.left_bytes, each.buffer.right_bytes) for each in graph.operators]
    uses = buffer_uses(running_holds(graph.holds, found), on_core, sizes)
    return {
        number: operator if operator.buffer == uses[number] else replace(operator, buffer=uses[number])
        for number, operator in found.items()
    }


_IN_RESERVE, _WHOLE = -1, 1
"""Address and size of what lies in a reserve, below the addresses of holds: all of it is on chip on every chip."""


def with_reserve(
    graph: OperatorGraph, border: PhaseBorder, *, has_input: bool, spares_output: bool, has_weights: bool
) -> OperatorGraph:
    """A phase of a layer whose border tensors, or weights, lie in a reserve of the buffer; the holds get the rest.

    Args:
        graph: of the phase.
        border: what it moves at the layer's border.
        has_input: whether the tensor that comes is in the reserve: no read of it goes to HBM.
        spares_output: whether the tensor that goes is there and nowhere else: its write does not go to HBM either.
        has_weights: whether the weights are.
    """
    spared: list[Saving] = list(border.weights) if has_weights else []
    holds = graph.holds
    if has_input and border.entering is not None:
        spared += border.entering.savings
        holds = tuple(each for each in holds if each.tensor != border.entering.tensor)
    if spares_output and border.leaving is not None:
        spared += border.leaving.savings
    on_core = [is_on_core(each) for each in graph.operators]
    sizes = [(each.buffer.left_bytes, each.buffer.right_bytes) for each in graph.operators]
    uses = buffer_uses(holds, on_core, sizes)
    for each in spared:
        use = uses[each.operator]
        held = (*use.held, HeldOperand(_IN_RESERVE, _WHOLE, each.num_bytes, each.operand))
        uses[each.operator] = replace(use, held=held)
    operators = tuple(replace(each, buffer=use) for each, use in zip(graph.operators, uses, strict=True))
    return OperatorGraph(operators, graph.edges, holds)


def buffer_uses(
    holds: Sequence[Hold], on_core: Sequence[bool], operand_bytes: Sequence[tuple[int, int]]
) -> list[BufferUse]:
    """What of its holds every operator of a graph need not move, and what its tiles have to do without.

    Args:
        holds: of the graph.
        on_core: which of its operators run on cores.
        operand_bytes: of every operator's left and right operand.
    """
    held: list[list[HeldOperand]] = [[] for _ in on_core]
    taken: list[list[tuple[int, int]]] = [[] for _ in on_core]
    for hold, address in zip(holds, place_holds(holds, on_core), strict=True):
        if hold.is_room:
            continue
        for number in range(hold.first, hold.last + 1):
            taken[number].append((address, address + hold.num_bytes))
        for saving in hold.savings:
            held[saving.operator].append(HeldOperand(address, hold.num_bytes, saving.num_bytes, saving.operand))
    return [
        BufferUse(*operand_bytes[number], tuple(held[number]), _united(taken[number]))
        if runs and (taken[number] or any(operand_bytes[number]))
        else NO_BUFFER_USE
        for number, runs in enumerate(on_core)
    ]


def place_holds(holds: Sequence[Hold], on_core: Sequence[bool]) -> tuple[int, ...]:
    """Address of every hold; two of different tensors that meet at an operator have none in common.

    Holds of one tensor may share addresses, as they hold the same bytes.

    Args:
        holds: of a graph, rooms of tiles among them.
        on_core: which of its operators run on cores.
    """
    runs_before = [0]
    for runs in on_core:
        runs_before.append(runs_before[-1] + runs)

    # One correctly rounded quotient of whole numbers each: equal ones are equal on every machine.
    densities = [
        sum([saving.num_bytes for saving in hold.savings])
        / (hold.num_bytes * (runs_before[hold.last + 1] - runs_before[hold.first]))
        for hold in holds
    ]
    addresses = [-1] * len(holds)
    there: list[list[int]] = [[] for _ in on_core]
    for number in sorted(range(len(holds)), key=lambda each: (-densities[each], holds[each].first, each)):
        hold = holds[number]
        met = {other for at in range(hold.first, hold.last + 1) for other in there[at]}
        barred = [(addresses[other], holds[other].num_bytes) for other in met if holds[other].tensor != hold.tensor]
        addresses[number] = _lowest(hold.num_bytes, sorted(barred))
        for at in range(hold.first, hold.last + 1):
            there[at].append(number)
    return tuple(addresses)


def _lowest(size: int, barred: Sequence[tuple[int, int]]) -> int:
    """Lowest address with ``size`` free bytes behind it; ``barred`` are (address, bytes) by rising address."""
    address = 0
    for start, num_bytes in barred:
        if start - address >= size:
            break
        address = max(address, start + num_bytes)
    return address


def _united(ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The union of ranges, as ranges that lie apart."""
    united: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(stop, united[-1][1]))
        else:
            united.append((start, stop))
    return tuple(united)
