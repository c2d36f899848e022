"""Where tensors that the chip's buffer may hold lie in it (docs/decisions/0268).

Holds get addresses in a buffer without end, once a graph and from sizes alone: those first that save most bytes of HBM
traffic for a byte held for one operator, each as low as it fits. Rooms that tiles can use (`graph.holds`) are
placed among them, so that holds leave free what saves more there. A chip with R bytes for them has what lies below R:
more bytes never take one away.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from phaze_opt.graph.buffer_use import NO_BUFFER_USE, BufferUse, HeldOperand, Hold, PhaseBorder, Saving
from phaze_opt.graph.holds import running_holds
from phaze_opt.graph.operator import CoreType, Operator, OperatorGraph, OperatorKind


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
