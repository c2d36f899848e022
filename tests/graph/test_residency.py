"""What may be held between operators: no two tensors on one another, a replay, and the most that can be saved."""

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kits.graphs import graph_of
from kits.residency import most_saved_bytes, needed_after, replay, saved_bytes, value_of

from phaze_opt.graph.build import build_programs
from phaze_opt.graph.fusion import fuse
from phaze_opt.graph.lowering import lower
from phaze_opt.graph.operator import (
    Collective,
    CollectiveKind,
    CoreType,
    Hold,
    Matmul,
    Operand,
    OperatorGraph,
    OperatorKind,
    Phase,
    Saving,
)
from phaze_opt.graph.program import Fusibility, Node, Program, Tensor, TensorRole
from phaze_opt.graph.residency import (
    FIRST_BYTES,
    find_holds,
    is_on_core,
    place_holds,
    run_again,
    tile_rooms,
    with_reserve,
)
from phaze_opt.hardware.constants import load_constants
from phaze_opt.workload.config import load_model
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import AttentionForm, Optimizer, TrainingSpec

CAPACITIES = (0, 1, 100, 4 << 10, 300 << 10, 1 << 20, 5_000_001, 1 << 40)


def tensor(name: str, num_bytes: int) -> Tensor:
    return Tensor(name, num_bytes, 1, TensorRole.GRADIENT)


def node(number: int, kind: OperatorKind, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Node:
    collective = Collective(CollectiveKind.ALL_REDUCE, 1.0) if kind is OperatorKind.COLLECTIVE else None
    parts = (tuple(inputs), tuple(outputs), (), (), collective)
    return Node(f"n{number}", Phase.BACKWARD, kind, Fusibility.OPAQUE, *parts)


@st.composite
def phases(draw: st.DrawFn) -> tuple[tuple[Node, ...], set[str]]:
    """Some nodes on cores, views and collectives, and the tensors that are needed afterwards."""
    pool = [tensor(f"in{number}", draw(st.integers(0, 60))) for number in range(draw(st.integers(1, 2)))]
    nodes: list[Node] = []
    for number in range(draw(st.integers(2, 9))):
        kind = draw(st.sampled_from((*[OperatorKind.VECTOR] * 5, OperatorKind.VIEW, OperatorKind.COLLECTIVE)))
        most = 1 if kind is OperatorKind.VIEW else 3
        inputs = draw(st.lists(st.sampled_from(pool[-5:]), min_size=1, max_size=most, unique_by=lambda each: each.name))
        largest = inputs[0].num_bytes if kind is OperatorKind.VIEW else 60
        made = [tensor(f"t{number}", draw(st.sampled_from((largest, largest // 2))))]
        if kind is OperatorKind.VECTOR:
            made = [tensor(f"t{number}.{part}", draw(st.integers(0, 60))) for part in range(draw(st.integers(1, 2)))]
        nodes.append(node(number, kind, inputs, made))
        pool.extend(made)
    needed = draw(st.sets(st.sampled_from([each.name for each in pool]), max_size=3))
    return tuple(nodes), needed


def on_core(nodes: Sequence[Node]) -> list[bool]:
    return [each.kind not in (OperatorKind.VIEW, OperatorKind.COLLECTIVE) for each in nodes]


def compulsory(each: Node) -> int:
    return sum({one.name: one.num_bytes for one in (*each.inputs, *each.outputs)}.values())


@given(phases(), st.integers(0, 250))
def test_a_replay_moves_what_is_not_saved(phase: tuple[tuple[Node, ...], set[str]], capacity: int) -> None:
    nodes, needed = phase
    holds = find_holds(nodes, needed)
    addresses = place_holds(holds, on_core(nodes))
    found = replay(nodes, needed, holds, addresses, capacity)
    saved = [0.0] * len(nodes)
    for hold, address in zip(holds, addresses, strict=True):
        share = min(max(capacity - address, 0), hold.num_bytes) / hold.num_bytes
        for saving in hold.savings:
            saved[saving.operator] += saving.num_bytes * share
    for each, moved, spared, counts in zip(nodes, found, saved, on_core(nodes), strict=True):
        assert moved.occupied <= capacity
        assert moved.total == pytest.approx(compulsory(each) - spared if counts else 0.0, abs=1e-9)


@given(phases())
def test_everything_that_can_be_found_in_a_large_buffer_is(phase: tuple[tuple[Node, ...], set[str]]) -> None:
    """With room for all, a tensor made and used up here never reaches memory, and no other is read twice."""
    nodes, needed = phase
    holds = find_holds(nodes, needed)
    found = replay(nodes, needed, holds, place_holds(holds, on_core(nodes)), 1 << 40)
    views = {out.name: each.inputs[0] for each in nodes if each.kind is OperatorKind.VIEW for out in each.outputs}
    sent = {one.name for each in nodes if each.kind is OperatorKind.COLLECTIVE for one in each.inputs}
    tied = {name for pair in views.items() for name in (pair[0], pair[1].name)}
    seen: set[str] = set()
    for each, moved in zip(nodes, found, strict=True):
        if each.kind in (OperatorKind.VIEW, OperatorKind.COLLECTIVE):
            continue
        plain = {one.name for one in each.inputs} - tied
        assert all(moved.reads[name] == 0 for name in plain & seen)
        seen |= plain
        for one in each.outputs:
            is_read = any(one.name in {given.name for given in other.inputs} for other in nodes)
            stays = one.name not in needed | sent and is_read
            assert one.name in tied or moved.writes[one.name] == (0 if stays else one.num_bytes)
            seen.add(one.name)


@given(phases(), st.integers(0, 250))
def test_no_plan_saves_more_than_the_linear_program(phase: tuple[tuple[Node, ...], set[str]], capacity: int) -> None:
    nodes, needed = phase
    holds = find_holds(nodes, needed)
    saved = saved_bytes(holds, place_holds(holds, on_core(nodes)), capacity)
    most = most_saved_bytes(holds, capacity)
    assert saved <= most + 1e-6
    total = sum(map(value_of, holds))
    if capacity >= sum(hold.num_bytes for hold in holds):
        assert saved == pytest.approx(total)
        assert most == pytest.approx(total)


@given(phases(), st.integers(0, 250))
def test_plans_in_any_order_save_no_more_than_the_linear_program(
    phase: tuple[tuple[Node, ...], set[str]], capacity: int
) -> None:
    """Of few holds every order of placing: the program is above the best of them, which is above the package's."""
    nodes, needed = phase
    holds = find_holds(nodes, needed)[:5]
    best = max(saved_bytes(holds, placed_in(order, holds), capacity) for order in permutations(range(len(holds))))
    assert saved_bytes(holds, place_holds(holds, on_core(nodes)), capacity) <= best + 1e-9
    assert best <= most_saved_bytes(holds, capacity) + 1e-6


def placed_in(order: Sequence[int], holds: Sequence[Hold]) -> list[int]:
    """Addresses of holds that are placed in an order, each at the lowest address, by trying one after the other."""
    addresses: dict[int, int] = {}
    for number in order:
        hold = holds[number]
        barred = {
            byte
            for other, start in addresses.items()
            if holds[other].tensor != hold.tensor
            and max(hold.first, holds[other].first) <= min(hold.last, holds[other].last)
            for byte in range(start, start + holds[other].num_bytes)
        }
        address = 0
        while any(byte in barred for byte in range(address, address + hold.num_bytes)):
            address += 1
        addresses[number] = address
    return [addresses[number] for number in range(len(holds))]


def test_the_denser_hold_lies_lower_and_gaps_are_used() -> None:
    def hold(name: str, first: int, last: int, size: int, saved: int) -> Hold:
        return Hold(name, first, last, size, (Saving(last, saved, Operand.REST),))

    holds = (hold("long", 0, 3, 10, 25), hold("short", 1, 2, 10, 10), hold("late", 3, 4, 5, 1), hold("far", 4, 5, 9, 1))
    # A byte of "long" saves 25/40 an operator that it is held for, one of "short" 10/20.
    assert place_holds(holds, [True] * 6) == (0, 10, 10, 0)
    # Views and collectives take no time: now "short" saves 10/10 and "long" 25/30, "late" 1/5 and "far" 1/9.
    assert place_holds(holds, [True, False, True, True, False, True]) == (10, 0, 0, 5)


def test_holds_of_a_chain_of_a_kept_tensor_share_their_bytes() -> None:
    made, kept = tensor("x", 8), [tensor(f"y{number}", 1) for number in range(3)]
    nodes = (
        node(0, OperatorKind.VECTOR, (tensor("in", 2),), (made,)),
        *(node(number + 1, OperatorKind.VECTOR, (made,), (kept[number],)) for number in range(3)),
    )
    holds = [hold for hold in find_holds(nodes, {"x"}) if hold.tensor == "x"]
    assert [(hold.first, hold.last, value_of(hold)) for hold in holds] == [(0, 1, 8), (1, 2, 8), (2, 3, 8)]
    assert place_holds(holds, [True] * 4) == (0, 0, 0)
    alone = [hold for hold in find_holds(nodes, set()) if hold.tensor == "x"]
    assert [(hold.first, hold.last, value_of(hold)) for hold in alone] == [(0, 3, 32)]


REAL = [
    ("bert-large", 1, FusionLevel.EPILOGUE, AttentionForm.FUSED),
    ("bert-large", 1, FusionLevel.NONE, AttentionForm.UNFUSED),
    ("gpt2-xl", 1, FusionLevel.ELEMENTWISE, AttentionForm.UNFUSED),
    ("llama-3-8b", 8, FusionLevel.EPILOGUE, AttentionForm.FUSED),
    ("mixtral-8x7b", 2, FusionLevel.EPILOGUE, AttentionForm.UNFUSED),
    ("opt-350m", 4, FusionLevel.NONE, AttentionForm.FUSED),
]


def programs_of(name: str, t: int, fusion: FusionLevel, form: AttentionForm) -> list[Program]:
    training = TrainingSpec(2, 256, 8, attention=form)
    return [fuse(program, fusion) for program in build_programs(load_model(name), training, tensor_parallel=t)]


@pytest.mark.parametrize(("name", "t", "fusion", "form"), REAL)
def test_layers_of_models_replay(name: str, t: int, fusion: FusionLevel, form: AttentionForm) -> None:
    """What operators say they need not move, and which addresses are taken, is what a replay finds."""
    for program in programs_of(name, t, fusion, form):
        layer = lower(program, optimizer=Optimizer.ADAM)
        for graph, phase in ((layer.forward, Phase.FORWARD), (layer.backward, Phase.BACKWARD)):
            nodes = [each for each in program.nodes if each.phase is phase]
            addresses = place_holds(graph.holds, on_core(nodes))
            for capacity in CAPACITIES:
                found = replay(nodes, needed_after(program, nodes), graph.holds, addresses, capacity)
                for operator, moved in zip(graph.operators, found, strict=True):
                    spared = sum(
                        one.num_bytes * min(max(capacity - one.address, 0), one.size) / one.size
                        for one in operator.buffer.held
                    )
                    assert moved.total == pytest.approx(operator.traffic_bytes - spared, rel=1e-12, abs=1e-6)
                    if operator.core_type not in (CoreType.NETWORK, CoreType.NONE):
                        taken = sum(max(0, min(stop, capacity) - start) for start, stop in operator.buffer.taken)
                        assert taken == moved.occupied


def test_operands_of_products_are_told_apart() -> None:
    block = graph_of("bert-large", 1).layers[1]
    roles = {
        operator.name.split("+")[0]: {one.operand for one in operator.buffer.held}
        for operator in (*block.forward.operators, *block.backward.operators)
        if operator.kind is OperatorKind.MATMUL
    }
    assert Operand.LEFT in roles["mlp_down"]
    assert Operand.LEFT in roles["mlp_down.input_gradient"]
    assert Operand.RIGHT in roles["mlp_down.weight_gradient"]
    assert Operand.RIGHT not in roles["mlp_up"]
    operator = next(each for each in block.forward.operators if each.name.startswith("mlp_up"))
    product = operator.matmuls[0]
    assert operator.buffer.left_bytes == 2 * product.m * product.k
    assert operator.buffer.right_bytes == 2 * product.k * product.n


def test_what_runs_again_finds_what_runs_again_alone() -> None:
    forward = graph_of("llama-3-8b", 1, attention=AttentionForm.UNFUSED).layers[1].forward
    everything = {number for number, each in enumerate(forward.operators) if each.core_type is not CoreType.NONE}
    assert run_again(forward, everything) == forward
    assert run_again(forward, set(range(len(forward.operators)))) == forward
    cores = {number for number in everything if forward.operators[number].name in ("scores", "softmax", "context")}
    again = run_again(forward, cores)
    by_name = {each.name: each for each in again.operators}
    assert {one.operand for one in by_name["context"].buffer.held} == {Operand.LEFT}
    assert not any(one.operand is Operand.LEFT for one in by_name["scores"].buffer.held)
    assert all(each.core_type is CoreType.NONE for number, each in enumerate(again.operators) if number not in cores)
    assert all(hold.first in cores and hold.last in cores for hold in again.holds)
    assert run_again(forward, set()).holds == ()


def test_an_update_holds_nothing() -> None:
    update = graph_of("tiny").layers[1].update
    assert not update.holds
    assert run_again(update, {0}) == update == OperatorGraph(update.operators, update.edges)


def moved_elements(m: int, n: int, k: int, room: int) -> int:
    """Least of all strips, by trying each number of columns."""
    if min(m * k, k * n, m * n) <= room:
        return m * k + k * n + m * n
    widths = [width for width in range(1, n + 1) if width <= room]
    return min(-(-n // width) * m * k + -(-m // min(m, room // width)) * k * n + m * n for width in widths)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(4096, 8192, 4096), (20_000, 6000, 3000), (900, 60_000, 9000), (8192, 8192, 256)]
)
def test_rooms_of_tiles_save_about_what_more_room_saves(m: int, n: int, k: int) -> None:
    """Doubling steps, the best first, up to where the least of the three matrices fits."""
    left, right, out = (
        Tensor(name, size, 2, TensorRole.GRADIENT) for name, size in (("a", m * k), ("b", k * n), ("c", m * n))
    )
    shape, kind = (Matmul(1, m, n, k),), OperatorKind.MATMUL
    product = Node(
        "x", Phase.FORWARD, kind, Fusibility.MATMUL, (left, right), (out,), shape, left=(left,), right=(right,)
    )
    rooms = tile_rooms(3, product)
    enough = 4 * min(m * k, k * n, m * n)
    assert sum(room.num_bytes for room in rooms) == max(0, enough - FIRST_BYTES)
    assert all(room.is_room and (room.first, room.last) == (3, 3) for room in rooms)
    worth = [value_of(room) / room.num_bytes for room in rooms]
    assert worth == sorted(worth, reverse=True)
    size = FIRST_BYTES
    saved = 0
    for room in rooms:
        size, saved = size + room.num_bytes, saved + value_of(room)
        exact = 2 * (moved_elements(m, n, k, FIRST_BYTES // 4) - moved_elements(m, n, k, size // 4))
        assert saved == pytest.approx(exact, rel=0.35)


def test_tiles_begin_with_the_nominal_room() -> None:
    assert load_constants().value("glb.tile_bytes") == FIRST_BYTES


def test_a_product_whose_operand_fits_wants_no_room() -> None:
    rooms = [
        hold for layer in graph_of("tiny").layers for graph in layer.phases for hold in graph.holds if hold.is_room
    ]
    assert not rooms


@pytest.mark.parametrize(("name", "t", "fusion", "form"), REAL)
def test_layers_save_what_they_can(name: str, t: int, fusion: FusionLevel, form: AttentionForm) -> None:
    """Rooms of tiles among them: below the linear program, and not far."""
    for program in programs_of(name, t, fusion, form):
        layer = lower(program, optimizer=Optimizer.ADAM)
        for graph in (layer.forward, layer.backward):
            addresses = place_holds(graph.holds, [is_on_core(each) for each in graph.operators])
            for capacity in (300 << 10, 5_000_001, 48 << 20):
                most = most_saved_bytes(graph.holds, capacity)
                saved = saved_bytes(graph.holds, addresses, capacity)
                assert saved <= most * (1 + 1e-9) + 1e-6
                assert saved >= 0.45 * most


@pytest.mark.parametrize("name", ["bert-large", "llama-2-7b", "gpt2-xl"])
def test_a_reserve_spares_border_tensors_whole_and_once(name: str) -> None:
    """In a large buffer a block moves what it takes, gives and keeps; less its border tensors, and its weights."""
    model, spec = load_model(name), TrainingSpec(micro_batch=1, sequence_length=128, global_batch=1)
    program = fuse(build_programs(model, spec, tensor_parallel=1)[1], FusionLevel.EPILOGUE)
    layer = lower(program, optimizer=Optimizer.ADAM)
    border = 128 * model.hidden_size * 2
    weights = sum(node_.num_bytes for node_ in distinct_weights(program, Phase.FORWARD))
    for graph, own in ((layer.forward, layer.forward_border), (layer.backward, layer.backward_border)):
        moved = moved_bytes(graph)

        def left(has_input: bool, spares: bool, has_weights: bool, graph=graph, own=own) -> float:
            given_ = {"has_input": has_input, "spares_output": spares, "has_weights": has_weights}
            return moved_bytes(with_reserve(graph, own, **given_))

        assert left(False, False, False) == moved
        assert moved - left(True, False, False) == border
        assert moved - left(False, True, False) == border
        assert moved - left(True, True, False) == 2 * border
    assert (
        moved_bytes(layer.forward)
        - moved_bytes(
            with_reserve(layer.forward, layer.forward_border, has_input=False, spares_output=False, has_weights=True)
        )
        == weights
    )


def distinct_weights(program: Program, phase: Phase) -> list[Tensor]:
    nodes = [each for each in program.nodes if each.phase is phase]
    found = {one.name: one for each in nodes for one in each.inputs if one.role is TensorRole.WEIGHT}
    return list(found.values())


def moved_bytes(graph: OperatorGraph) -> float:
    """What operators move to and from memory where everything that may be held is."""
    return sum(
        each.traffic_bytes - sum(one.num_bytes for one in each.buffer.held)
        for each in graph.operators
        if is_on_core(each)
    )
