"""Wide scheduling problems: blocks with experts or heads as operators of their own, and random graphs of 60 operators.

Every instance is drawn from its own seed, so that it stays the same whatever else is drawn.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorGraph, VectorWork
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem
from phaze_opt.units import GIBI, MEBI
from phaze_opt.workload.config import load_model
from phaze_opt.workload.training import AttentionForm, TrainingSpec

NUM_RANDOM_OPERATORS = 60
HEAD_PARTS = frozenset({"scores", "softmax", "softmax_dropout", "context"})
EXPERT_PARTS = frozenset({"mlp_gate", "mlp_up", "mlp_down"})
HEADS = (("gpt3-175b", 8, 12), ("bert-large", 1, 16), ("gpt2-xl", 1, 25), ("llama-2-7b", 1, 32))
"""Model, tensor degree, heads on a device."""
MIXTRAL = "mixtral-8x7b"
NUM_EXPERTS = 8
MAX_CORES = 4
NUM_MEASURED_DESIGNS = 40
SEED = 20261121
Graph = tuple[tuple[tuple[int, int], ...], list[CoreType], Floats]
"""Edges, core types and one-core latencies."""


@dataclass(frozen=True, slots=True)
class WideInstance:
    """A problem and what it was drawn as."""

    family: str
    name: str
    problem: ScheduleProblem


def all_instances() -> list[WideInstance]:
    """Every instance of the record, family after family; neighbours alternate in exclusivity, then in cores."""
    families = (
        [mixtral_instance(seed, degree=(1, 2, 4, 8)[seed // 2 % 4]) for seed in range(32)],
        [experts_instance(seed) for seed in range(48)],
        [heads_instance(seed) for seed in range(64)],
        [random_instance(seed) for seed in range(96)],
        [measured_instance(seed) for seed in range(96)],
    )
    return [instance for family in families for instance in family]


def mixtral_instance(seed: int, *, degree: int) -> WideInstance:
    """One phase of a Mixtral block as the zoo has it, all experts of a device in one operator."""
    generator = np.random.default_rng((SEED, 0, seed))
    phase = seed // 8 % 2
    graph = layer_phase(MIXTRAL, phase=phase, degree=degree)
    problem = priced(graph, small_design(generator), drawn_exclusivity(seed))
    return WideInstance("mixtral", f"mixtral-{seed}-{phase}-t{degree}", problem)


def experts_instance(seed: int) -> WideInstance:
    """The same on one device with every expert an operator of its own; every other pair with uneven loads."""
    generator = np.random.default_rng((SEED, 1, seed))
    phase = seed // 4 % 2
    is_even = seed // 2 % 2 == 0
    loads = np.ones(NUM_EXPERTS) if is_even else np.exp(generator.normal(0.0, 0.5, size=NUM_EXPERTS))
    graph = split_operators(layer_phase(MIXTRAL, phase=phase, degree=1), EXPERT_PARTS, loads / loads.sum())
    problem = priced(graph, small_design(generator), drawn_exclusivity(seed))
    return WideInstance("experts", f"experts-{seed}-{phase}-{'even' if is_even else 'uneven'}", problem)


def heads_instance(seed: int) -> WideInstance:
    """Unfused attention with every head's products and softmax operators of their own."""
    generator = np.random.default_rng((SEED, 2, seed))
    model, degree, heads = HEADS[seed // 2 % len(HEADS)]
    phase = seed // 8 % 2
    graph = split_operators(layer_phase(model, phase=phase, degree=degree), HEAD_PARTS, np.full(heads, 1.0 / heads))
    problem = priced(graph, small_design(generator), drawn_exclusivity(seed))
    return WideInstance("heads", f"heads-{seed}-{model}-{phase}", problem)


def random_instance(seed: int) -> WideInstance:
    """60 operators in layers of a drawn width, L log-uniform over two decades, I between L / cores and L.

    I = L / cores^u with u uniform in [0, 1]: harsher than any real layer, whose operators gain nearly all that their
    cores can give (`measured_instance`).
    """
    generator = np.random.default_rng((SEED, 3, seed))
    cores = generator.integers(1, MAX_CORES + 1, size=2)
    graph = drawn_graph(generator, seed)
    _, types, one_core = graph
    most = np.array([{CoreType.TC: cores[0], CoreType.VC: cores[1]}.get(kind, cores.max()) for kind in types])
    spread = one_core / most ** generator.uniform(0.0, 1.0, size=NUM_RANDOM_OPERATORS)
    return random_problem("random", seed, cores, graph, spread)


def measured_instance(seed: int) -> WideInstance:
    """The same graphs, where I / L of every operator is that of a real one of its type on a design drawn for it."""
    generator = np.random.default_rng((SEED, 3, seed))
    cores = generator.integers(1, MAX_CORES + 1, size=2)
    graph = drawn_graph(generator, seed)
    _, types, one_core = graph
    ratios = np.random.default_rng((SEED, 4, seed))
    known = spread_ratios(int(cores[0]), int(cores[1]))
    spread = one_core * np.array([ratios.choice(known[kind]) for kind in types])
    return random_problem("measured", seed, cores, graph, spread)


def drawn_graph(generator: np.random.Generator, seed: int) -> Graph:
    """Edges, core types and one-core latencies of a random instance."""
    width = (2, 4, 8, 15)[seed // 2 % 4]
    density = (0.15, 0.4, 0.8)[seed // 8 % 3]
    edges = layered_edges(generator, width=width, density=density)
    types = [(CoreType.TC, CoreType.VC, CoreType.TC_AND_VC)[k] for k in generator.choice(3, 60, p=(0.45, 0.4, 0.15))]
    one_core = np.exp(generator.uniform(0.0, np.log(100.0), size=NUM_RANDOM_OPERATORS))
    return edges, types, one_core


def random_problem(family: str, seed: int, cores: Ints, graph: Graph, spread: Floats) -> WideInstance:
    """The instance of a random graph."""
    edges, types, one_core = graph
    problem = ScheduleProblem(
        core_types=tuple(types),
        one_core_s=tuple(one_core.tolist()),
        spread_s=tuple(spread.tolist()),
        edges=edges,
        cores=Cores(int(cores[0]), int(cores[1])),
        exclusivity=drawn_exclusivity(seed),
    )
    width, density = (2, 4, 8, 15)[seed // 2 % 4], (0.15, 0.4, 0.8)[seed // 8 % 3]
    return WideInstance(family, f"{family}-{seed}-w{width}-d{density}", problem)


@cache
def spread_ratios(num_tc: int, num_vc: int) -> dict[CoreType, Floats]:
    """I / L by core type: every operator of the layers, heads apart, of four models on 40 designs of these cores."""
    generator = np.random.default_rng((SEED, 5, num_tc, num_vc))
    designs = AcceleratorTable.from_accelerators(
        [drawn_design(generator, num_tc, num_vc) for _ in range(NUM_MEASURED_DESIGNS)]
    )
    found: dict[CoreType, list[Floats]] = {}
    for model, degree, heads in HEADS:
        for phase in range(2):
            whole = layer_phase(model, phase=phase, degree=degree)
            graph = split_operators(whole, HEAD_PARTS, np.full(heads, 1.0 / heads))
            # One of the heads stands for all: they are alike.
            operators = tuple(o for o in graph.operators if "#" not in o.name or o.name.endswith("#0"))
            estimates = AnalyticEstimator().estimate(operators, designs)
            for i, operator in enumerate(operators):
                one_core, spread = estimates.one_core_s[:, i], estimates.spread_s[:, i]
                has_length = one_core > 0
                if has_length.all():
                    found.setdefault(operator.core_type, []).append(spread / one_core)
    return {kind: np.concatenate(parts) for kind, parts in found.items()}


def layered_edges(generator: np.random.Generator, *, width: int, density: float) -> tuple[tuple[int, int], ...]:
    """Each operator follows one or more of the layer before it, and with little chance one of any layer before that."""
    edges: set[tuple[int, int]] = set()
    for target in range(width, NUM_RANDOM_OPERATORS):
        first = (target // width - 1) * width
        chosen = first + np.flatnonzero(generator.random(width) < density)
        if not len(chosen):
            chosen = first + generator.integers(0, width, size=1)
        edges.update((int(source), target) for source in chosen)
        if generator.random() < 0.1:
            edges.add((int(generator.integers(0, first + width)), target))
    return tuple(sorted(edges))


def drawn_exclusivity(seed: int) -> Exclusivity:
    """Rules in turn."""
    return Exclusivity.CHIP if seed % 2 == 0 else Exclusivity.TYPE


def small_design(generator: np.random.Generator) -> Accelerator:
    """A design with one to four cores of each type."""
    num_tc, num_vc = (int(count) for count in generator.integers(1, MAX_CORES + 1, size=2))
    return drawn_design(generator, num_tc, num_vc)


def drawn_design(generator: np.random.Generator, num_tc: int, num_vc: int) -> Accelerator:
    """A design of these cores and drawn sizes."""
    width, depth = (int(generator.choice((32, 64, 128, 256))) for _ in range(2))
    glb_bytes = int(generator.choice((8, 32, 128))) * MEBI
    hbm_bytes = int(generator.choice((32, 64, 80))) * GIBI
    point = DesignPoint(num_tc, num_vc, width, depth, width, glb_bytes, hbm_bytes, 1)
    return build_accelerator(point, constants=load_constants())


def layer_phase(model: str, *, phase: int, degree: int) -> OperatorGraph:
    """Forward (0) or backward (1) problem of the layer that a model repeats."""
    spec = load_model(model)
    length = min(2048, spec.max_sequence_length)
    training = TrainingSpec(micro_batch=2, sequence_length=length, global_batch=1024, attention=AttentionForm.UNFUSED)
    graph = build_model_graph(spec, training, tensor_parallel=degree)
    layer = max(graph.layers, key=lambda entry: graph.chain.count(graph.layers.index(entry)))
    return layer.phases[phase]


def split_operators(graph: OperatorGraph, parts: frozenset[str], shares: Floats) -> OperatorGraph:
    """Split operators whose first part is named in ``parts``: share k of each feeds only share k of the others."""
    is_split = [operator.name.split("+")[0].split(".")[0] in parts for operator in graph.operators]
    operators: list[Operator] = []
    places: list[list[int]] = []
    for operator, has_shares in zip(graph.operators, is_split, strict=True):
        pieces = [operator_share(operator, k, shares) for k in range(len(shares))] if has_shares else [operator]
        places.append(list(range(len(operators), len(operators) + len(pieces))))
        operators.extend(pieces)
    edges: list[tuple[int, int]] = []
    for before, after in graph.edges:
        if is_split[before] and is_split[after]:
            edges.extend(zip(places[before], places[after], strict=True))
        else:
            edges.extend((source, target) for source in places[before] for target in places[after])
    return OperatorGraph(tuple(operators), tuple(edges))


def operator_share(operator: Operator, index: int, shares: Floats) -> Operator:
    """One head's or expert's share: an equal share of the batch, rows in proportion to the share."""
    count, share = len(shares), float(shares[index])
    return replace(
        operator,
        name=f"{operator.name}#{index}",
        matmuls=tuple(
            Matmul(max(1, shape.batch // count), m=max(1, round(shape.m * share * count)), n=shape.n, k=shape.k)
            for shape in operator.matmuls
        ),
        vector_works=tuple(VectorWork(work.kind, round(work.elements * share)) for work in operator.vector_works),
        bytes_read=operator.bytes_read * share,
        bytes_written=operator.bytes_written * share,
        parameter_bytes=operator.parameter_bytes / count,
        stash_bytes=operator.stash_bytes * share,
    )


def priced(graph: OperatorGraph, design: Accelerator, exclusivity: Exclusivity) -> ScheduleProblem:
    """The scheduling problem of a graph on a design, without the HBM floor: it would hide gaps of the schedule."""
    estimates = AnalyticEstimator().estimate(graph.operators, AcceleratorTable.from_accelerators([design]))
    return ScheduleProblem(
        core_types=tuple(operator.core_type for operator in graph.operators),
        one_core_s=tuple(estimates.one_core_s[0].tolist()),
        spread_s=tuple(estimates.spread_s[0].tolist()),
        edges=graph.edges,
        cores=Cores.of(design),
        exclusivity=exclusivity,
    )
