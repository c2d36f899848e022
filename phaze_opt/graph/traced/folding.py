"""Folding: layers with one structure are one layer, and the longest repetition decides what a layer is.

The finest chain of segments is searched for the run of periods that covers most nodes. A period is one layer (a
transformer block), what lies before and behind it is searched likewise, and what is left becomes layers with one heavy
operation each.

The layers of the front are on one stage, and so are those of the back: a parameter that several of either read is held
by the first of them alone. One that several units read is held by the first layer of the model for all of them. Layers
of the front or the back that differ in what they hold are of different kinds; where pipelines are cut between all
layers, so are all layers, and each holds what it reads.

Where they are cut between branches too, towers that do not read one another are layers of their own, or chains of them.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.layer_sharding import PRODUCTS, has_tokens, left_of
from phaze_opt.graph.traced.layers import TracedLayer, layer_of
from phaze_opt.graph.traced.normalise.vocabulary import HEAVY, SHAPES
from phaze_opt.graph.traced.segments import MAX_BLOCK_PRODUCTS, cut_segments, find_towers, losses_of, num_products
from phaze_opt.graph.traced.traced_model import Argument, TensorRef, TracedNode, TracedRole
from phaze_opt.workload.branches import Branches, down_sets, narrowest_order
from phaze_opt.workload.chain import ChainCut, cut_chain

CutRule = Callable[[tuple[int, ...]], ChainCut]
"""Front, units and back of a chain of kinds of layers."""
MAX_PERIOD = 96
"""Segments that a period has at most."""
MAX_RUNS = 64
"""Runs of periods that are looked for."""
MAX_LAYER_NODES = 160
"""Nodes beyond which a period is not made one layer."""


@dataclass(frozen=True, slots=True)
class LayerParameters:
    """Parameters of a layer that others have too.

    Attributes:
        lent: that an earlier layer of the front, or of the back, or for units the first layer, holds for it.
        tied: of a layer behind the front, that it holds and the front too; where units differ, any layer before it.
    """

    lent: frozenset[str] = frozenset()
    tied: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LayerChain:
    """The distinct layers of a model, and which of them stands at each position.

    Attributes:
        layers: one of each kind, the first.
        chain: kind at each position.
        parameters: what each kind holds.
        of_units: ids of parameters that several units read and no layer of the front: the first layer holds them.
        recounted: ids of parameters that layers of units hold though others hold them too, each as often as it is held
            beyond once.
        branches: what the layers read of one another, where some stand beside others.
    """

    layers: tuple[TracedLayer, ...]
    chain: tuple[int, ...]
    parameters: tuple[LayerParameters, ...]
    of_units: frozenset[str]
    recounted: tuple[str, ...]
    branches: Branches | None = None


def fold_layers(graph: FlatGraph, *, cut_of: CutRule = cut_chain) -> LayerChain:
    """The chain of a normalised graph.

    Args:
        graph: normalised.
        cut_of: the rule that says which layers are on one stage.
    """
    layers = _layers(graph, _runs(graph))
    structures = _numbers([structure_of(graph, layer) for layer in layers])
    cut = cut_of(tuple(structures))
    front, back = range(len(cut.front)), range(len(layers) - len(cut.back), len(layers))
    shared = _held_before(layers) if cut.is_joined else _shared(layers, front, back)
    places = [
        _places(layer, each if cut.is_joined or position in front or position in back else LayerParameters())
        for position, (layer, each) in enumerate(zip(layers, shared, strict=True))
    ]
    sent = [_sent(graph, layer) if cut.is_joined else () for layer in layers]
    numbers = _numbers(list(zip(structures, places, sent, strict=True)))
    first = _first_of_each(numbers)
    return LayerChain(
        layers=tuple(_with_passing(layers, position) for position in first),
        chain=tuple(numbers),
        parameters=tuple(shared[position] for position in first),
        of_units=frozenset[str]() if cut.is_joined else _of_units(layers, front, back) - _of(layers, front),
        recounted=_recounted(layers, shared, range(len(layers)) if cut.is_joined else back),
    )


def fold_branches(graph: FlatGraph) -> LayerChain | None:
    """The layers of a normalised graph with its towers apart; none where nothing stands beside anything.

    They are in an order in which few tensors cross, where there are too many down-sets to look at all of them.
    """
    blocks, has_towers = _blocks(graph, graph.nodes, most=0)
    if not has_towers:
        return None
    layers = _apart(graph, blocks)
    if len(set(_numbers([structure_of(graph, layer) for layer in layers[1:-1]]))) == 1:
        return None
    if not down_sets(_branches(layers)):
        order = narrowest_order(_branches(layers))
        layers = _apart(graph, [blocks[0], *(blocks[1 + unit] for unit in order), blocks[-1]])
    shared = _held_before(layers)
    keys = [
        (structure_of(graph, layer), _places(layer, each), _sent(graph, layer))
        for layer, each in zip(layers, shared, strict=True)
    ]
    numbers = _numbers(keys)
    first = _first_of_each(numbers)
    return LayerChain(
        layers=tuple(layers[position] for position in first),
        chain=tuple(numbers),
        parameters=tuple(shared[position] for position in first),
        of_units=frozenset(),
        recounted=_recounted(layers, shared, range(len(layers))),
        branches=_branches(layers),
    )


def _blocks(
    graph: FlatGraph, nodes: tuple[TracedNode, ...], *, most: int = MAX_BLOCK_PRODUCTS
) -> tuple[list[tuple[TracedNode, ...]], bool]:
    """Some nodes as blocks, towers apart, and whether there are towers.

    Args:
        graph: that they are of.
        nodes: in topological order.
        most: products up to which a tower is one block.
    """
    found = find_towers(nodes)
    if found is not None:
        pieces = [piece for piece in (found.head, *found.towers, found.tail) if piece]
        parts = [_blocks(graph, piece)[0] if num_products(piece) > most else [piece] for piece in pieces]
        return [block for blocks in parts for block in blocks], True
    runs = _runs(replace(graph, nodes=nodes))
    inside = [_blocks(graph, run) if find_towers(run) else ([run], False) for run in runs]
    return [block for blocks, _ in inside for block in blocks], any(has_towers for _, has_towers in inside)


def _runs(graph: FlatGraph) -> list[tuple[TracedNode, ...]]:
    """Nodes of every layer of a graph, in their order."""
    segments = cut_segments(graph)
    keys = [structure_of(graph, layer)[:-1] for layer in _layers(graph, segments)]
    groups = _groups(graph, segments, _numbers(keys))
    return [tuple(node for segment in segments[start:stop] for node in segment) for start, stop in groups]


def _apart(graph: FlatGraph, blocks: Sequence[tuple[TracedNode, ...]]) -> list[TracedLayer]:
    """Layers of blocks that nothing passes through unread."""
    return [replace(layer, relayed=(), is_apart=True) for layer in _layers(graph, blocks)]


def _branches(layers: Sequence[TracedLayer]) -> Branches:
    """What layers read of one another."""
    made = [tuple(name for name in layer.outputs if name not in layer.inputs) for layer in layers]
    number = {name: place for place, name in enumerate(name for names in made for name in names)}
    reads, makes = (
        tuple(tuple(number[name] for name in names) for names in each)
        for each in ([layer.inputs for layer in layers], made)
    )
    return Branches(reads, makes)


def _first_of_each(numbers: Sequence[int]) -> list[int]:
    """Where each kind comes first."""
    return [numbers.index(kind) for kind in range(1 + max(numbers))]


def _sent(graph: FlatGraph, layer: TracedLayer) -> tuple[str, ...]:
    """Shapes of the tensors that leave a layer: the last of equal layers may hand on fewer."""
    return tuple(str(list(map(str, graph.tensors[name].shape))) for name in layer.outputs)


def _with_passing(layers: Sequence[TracedLayer], position: int) -> TracedLayer:
    """A layer that knows which of its inputs it has in common with a neighbour, both passing them on.

    The last layer that reads what two before it pass on has it in common with them, although it hands it to nobody.
    """
    layer = layers[position]
    two, before, behind = (
        layers[at].handed_on if 0 <= at < len(layers) else frozenset[str]()
        for at in (position - 2, position - 1, position + 1)
    )
    common = (layer.handed_on & (before | behind)) | (before & two)
    return replace(layer, passing=tuple(name for name in layer.inputs if name in common))


def _shared(layers: Sequence[TracedLayer], front: range, back: range) -> list[LayerParameters]:
    """What each layer has in common with others, where the front and the back are on one stage each."""
    own = [frozenset(layer.parameters) for layer in layers]
    of_front, of_units = _of(layers, front), _of_units(layers, front, back)
    lent = [names & of_units if front.stop <= at < back.start else frozenset[str]() for at, names in enumerate(own)]
    for end in (front, back):
        seen = frozenset[str]()
        for position in end:
            lent[position] = own[position] & seen
            seen |= own[position]
    tied = [frozenset[str]() if at in front else (names & of_front) - lent[at] for at, names in enumerate(own)]
    return [LayerParameters(*each) for each in zip(lent, tied, strict=True)]


def _held_before(layers: Sequence[TracedLayer]) -> list[LayerParameters]:
    """What each layer has in common with any before it, where each of them may be on another stage."""
    seen, found = frozenset[str](), list[LayerParameters]()
    for layer in layers:
        own = frozenset(layer.parameters)
        found.append(LayerParameters(tied=own & seen))
        seen |= own
    return found


def _of(layers: Sequence[TracedLayer], positions: range) -> frozenset[str]:
    """Parameters that any of some layers reads."""
    return frozenset(name for position in positions for name in layers[position].parameters)


def _of_units(layers: Sequence[TracedLayer], front: range, back: range) -> frozenset[str]:
    """Parameters that several layers of units read, where a front can hold them."""
    read = Counter(name for at in range(front.stop, back.start) for name in layers[at].parameters)
    return frozenset(name for name, count in read.items() if count > 1) if front else frozenset()


def _recounted(layers: Sequence[TracedLayer], shared: Sequence[LayerParameters], back: range) -> tuple[str, ...]:
    """Parameters as often as they are held beyond once; the back's tied ones are known to be the front's."""
    held = Counter[str]()
    for position, (layer, each) in enumerate(zip(layers, shared, strict=True)):
        held.update(set(layer.parameters) - each.lent - (each.tied if position in back else frozenset()))
    return tuple(sorted((held - Counter(set(held))).elements()))


def _places(layer: TracedLayer, shared: LayerParameters) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Places of its shared parameters among its own: of lent and of tied ones."""
    lent, tied = (
        tuple(place for place, name in enumerate(layer.parameters) if name in names)
        for names in (shared.lent, shared.tied)
    )
    return lent, tied


def _numbers(keys: Sequence[Hashable]) -> list[int]:
    """Keys as numbers in the order of their first occurrence."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


def _layers(graph: FlatGraph, segments: Sequence[tuple[TracedNode, ...]]) -> list[TracedLayer]:
    """Each run of nodes with what crosses its borders."""
    last: dict[str, int] = {}
    for position, segment in enumerate(segments):
        last.update((name, position) for node in segment for name in node.tensor_ids())
    last.update((name, len(segments)) for name in set(graph.ends) - losses_of(graph))
    made: set[str] = set()
    layers = []
    for position, segment in enumerate(segments):
        own = [name for node in segment for name in node.outputs if graph.role(name) is TracedRole.ACTIVATION]
        alive = frozenset(name for name in (*made, *own) if last.get(name, -1) > position)
        layers.append(layer_of(graph, segment, alive, made))
        made = {name for name in (*made, *own) if last.get(name, -1) > position}
    return layers


def structure_of(graph: FlatGraph, layer: TracedLayer) -> tuple[Hashable, ...]:
    """What layers that are one have alike: operations, shapes and how they are joined; last, what they relay.

    A view stands for the tensor behind it, with the shape that its reader sees. Whether a tensor that the layer reads
    is read again behind it is left out, so that the last of equal blocks is one of them; the first tells what is sent.
    """
    numbers: dict[str, int] = {}
    behind = {node.outputs[0]: next(node.tensor_ids()) for node in layer.nodes if node.op in SHAPES}

    def number(name: str) -> Hashable:
        role, tensor = graph.role(name), graph.tensors[name]
        base = graph.parameter(name) if role is TracedRole.PARAMETER else behind.get(name, name)
        whole = graph.tensors[base].shape if role is TracedRole.PARAMETER else ()
        return (role, numbers.setdefault(base, len(numbers)), tensor.shape, whole, tensor.dtype.is_float)

    def value(argument: Argument) -> Hashable:
        if isinstance(argument, TensorRef):
            return number(argument.id)
        if isinstance(argument, tuple):
            return tuple(value(each) for each in argument)
        return (type(argument).__name__, argument)

    steps = tuple(
        (
            node.op,
            tuple(value(each) for each in node.inputs),
            tuple((key, value(each)) for key, each in node.attrs),
            tuple(number(name) for name in node.outputs),
        )
        for node in layer.nodes
        if node.op not in SHAPES
    )
    relayed = tuple(sorted(str(list(map(str, graph.tensors[name].shape))) for name in layer.relayed))
    made = tuple(numbers.get(name, -1) for name in layer.outputs if name not in layer.inputs)
    return steps, made, relayed


def _groups(
    graph: FlatGraph, segments: Sequence[tuple[TracedNode, ...]], numbers: Sequence[int]
) -> list[tuple[int, int]]:
    """First and last segment of each layer."""
    sizes = np.array([len(segment) for segment in segments])
    waiting, found = [(0, len(segments))], list[tuple[int, int]]()
    budget = MAX_RUNS
    while waiting:
        start, stop = waiting.pop()
        run = _best_run(np.array(numbers[start:stop]), sizes[start:stop], segments[start:stop]) if budget else None
        if run is None:
            is_head = stop == len(segments) and start > 0 and _is_head(graph, segments[start:stop])
            found += [(start, stop)] if is_head else _single(segments, start, stop)
            continue
        budget -= 1
        first, period, repeats = run
        first += start
        end = first + period * repeats
        for begin in range(first, end, period):
            whole = int(sizes[begin : begin + period].sum()) <= MAX_LAYER_NODES
            found += [(begin, begin + period)] if whole else _single(segments, begin, begin + period)
        waiting += [(low, high) for low, high in ((start, first), (end, stop)) if low < high]
    return sorted(found)


def _best_run(
    numbers: np.ndarray, sizes: np.ndarray, segments: Sequence[tuple[TracedNode, ...]]
) -> tuple[int, int, int] | None:
    """First segment, period and repeats of the run that covers most nodes; the shortest period, then the first."""
    best: tuple[int, int, int] | None = None
    most = 0
    total = np.concatenate(([0], np.cumsum(sizes)))
    for period in range(1, min(MAX_PERIOD, len(numbers) // 2) + 1):
        for start, length in _stretches(numbers[:-period] == numbers[period:]):
            repeats = (length + period) // period
            if repeats < 2:
                continue
            covered = int(total[start + repeats * period] - total[start])
            if covered > most:
                most = covered
                spare = (length + period) % period
                best = _aligned(segments, start, period, spare), period, repeats
    return best


def _stretches(flags: np.ndarray) -> list[tuple[int, int]]:
    """Start and length of each stretch of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return [(int(start), int(stop - start)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _aligned(segments: Sequence[tuple[TracedNode, ...]], start: int, period: int, spare: int) -> int:
    """Of the places where the periods may begin the one at which a period is of the deepest module; else the first."""

    def depth(first: int) -> int:
        nodes = [node for segment in segments[first : first + period] for node in segment]
        paths = [node.module.split(".") for node in nodes if node.module]
        return sum(len(set(parts)) == 1 for parts in zip(*paths, strict=False)) if paths else 0

    return max(range(start, start + spare + 1), key=lambda first: (depth(first), -first))


def _is_head(graph: FlatGraph, segments: Sequence[tuple[TracedNode, ...]]) -> bool:
    """Whether what stands behind all repeats is products for every token and what lies between: one layer."""
    heavy = [node for segment in segments for node in segment if node.op in HEAVY]
    return bool(heavy) and all(node.op in PRODUCTS and has_tokens(graph, left_of(node)) for node in heavy)


def _single(segments: Sequence[tuple[TracedNode, ...]], start: int, stop: int) -> list[tuple[int, int]]:
    """Segments that do not repeat: one layer from each heavy one to the next; what comes first joins the first."""
    heavy = [position for position in range(start, stop) if any(node.op in HEAVY for node in segments[position])]
    borders = [start, *heavy[1:], stop]
    return list(pairwise(borders)) if start < stop else []
