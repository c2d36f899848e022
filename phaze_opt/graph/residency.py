"""Which tensors the chip's buffer may hold between operators, and where they lie (docs/decisions/0268).

Everything is decided once a graph, from sizes alone, in the order in which its operators are listed. A tensor that is
made and used up within a phase may be held from the operator that writes it to the last that reads it: neither the
write nor the reads go to HBM. Of a tensor that is in memory besides (kept for backward, sent to other devices, a
phase's result, an input) every read but the first touch may be spared: it may be held between two operators that touch
it one after the other.

Holds get addresses in a buffer without end, those first that save most bytes of HBM traffic for a byte held for one
operator; each lies as low as it fits. A chip with R bytes for them has what lies below R: more bytes never take one
away.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from phaze_opt.graph.buffer_use import BufferUse, HeldOperand, Hold, Operand, Saving
from phaze_opt.graph.operator import CoreType, Operator, OperatorGraph, OperatorKind
from phaze_opt.graph.program import Node, Tensor


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
    """What may be held between the operators of a phase.

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
    return tuple(hold for hold in holds if hold.num_bytes and hold.first < hold.last)


def _hold(name: str, size: int, first: int, spared: Sequence[_Touch]) -> Hold:
    savings = tuple(Saving(each.operator, each.num_bytes, each.operand) for each in spared)
    return Hold(name, first, max(each.operator for each in savings), size, savings)


def run_again(graph: OperatorGraph, running: Collection[int]) -> OperatorGraph:
    """The graph where recomputation runs some of its operators only: on cores, the others are results that are there.

    Args:
        graph: of a phase.
        running: operators on cores that run.
    """
    operators = tuple(
        Operator(each.name, each.phase, OperatorKind.VIEW, CoreType.NONE)
        if is_on_core(each) and number not in running
        else each
        for number, each in enumerate(graph.operators)
    )
    return with_buffer_use(OperatorGraph(operators, graph.edges, _running_holds(graph.holds, running)))


def _running_holds(holds: Sequence[Hold], running: Collection[int]) -> tuple[Hold, ...]:
    """Holds that are left where so many operators run: those whose first one does, to the last reader that does."""
    left: list[Hold] = []
    for hold in holds:
        savings = tuple(saving for saving in hold.savings if saving.operator in running)
        last = max((saving.operator for saving in savings), default=hold.first)
        if hold.first in running and last > hold.first:
            left.append(replace(hold, last=last, savings=savings))
    return tuple(left)


def with_buffer_use(graph: OperatorGraph) -> OperatorGraph:
    """The graph whose operators know what of its holds they need not move, and what they have to make do without."""
    on_core = [is_on_core(operator) for operator in graph.operators]
    addresses = place_holds(graph.holds, on_core)
    held: list[list[HeldOperand]] = [[] for _ in graph.operators]
    taken: list[list[tuple[int, int]]] = [[] for _ in graph.operators]
    for hold, address in zip(graph.holds, addresses, strict=True):
        for number in range(hold.first, hold.last + 1):
            taken[number].append((address, address + hold.num_bytes))
        for saving in hold.savings:
            piece = HeldOperand(address, hold.num_bytes, saving.num_bytes, saving.operand)
            held[saving.operator].append(piece)
    operators = tuple(
        _with_use(operator, tuple(held[number]), _united(taken[number])) if on_core[number] else operator
        for number, operator in enumerate(graph.operators)
    )
    return replace(graph, operators=operators)


def is_on_core(operator: Operator) -> bool:
    """Whether an operator occupies a core."""
    return operator.core_type not in (CoreType.NETWORK, CoreType.NONE)


def _with_use(operator: Operator, held: tuple[HeldOperand, ...], taken: tuple[tuple[int, int], ...]) -> Operator:
    use = operator.buffer
    if (held, taken) == (use.held, use.taken):
        return operator
    return replace(operator, buffer=BufferUse(use.left_bytes, use.right_bytes, held, taken))


def place_holds(holds: Sequence[Hold], on_core: Sequence[bool]) -> tuple[int, ...]:
    """Address of every hold; two of different tensors that meet at an operator have none in common.

    Holds of one tensor may share addresses, as they hold the same bytes.

    Args:
        holds: of a graph.
        on_core: which of its operators run on cores.
    """
    runs_before = [0]
    for runs in on_core:
        runs_before.append(runs_before[-1] + runs)

    def density(hold: Hold) -> Fraction:
        num_steps = runs_before[hold.last + 1] - runs_before[hold.first]
        return Fraction(sum(saving.num_bytes for saving in hold.savings), hold.num_bytes * num_steps)

    order = sorted(range(len(holds)), key=lambda number: (-density(holds[number]), holds[number].first, number))
    addresses = [-1] * len(holds)
    for place, number in enumerate(order):
        hold = holds[number]
        barred = [(addresses[other], holds[other].num_bytes) for other in order[:place] if _meet(hold, holds[other])]
        addresses[number] = _lowest(hold.num_bytes, sorted(barred))
    return tuple(addresses)


def _meet(one: Hold, other: Hold) -> bool:
    """Whether two holds of different tensors are there while the same operator runs."""
    return one.tensor != other.tensor and one.first <= other.last and other.first <= one.last


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
