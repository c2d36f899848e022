"""The problem of a certificate: its digests, its models sharded (semantics 4 and 5), its throughput and goal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from phaze_opt.certify.certificate import CERTIFICATE_FILE, Certificate
from phaze_opt.certify.check.report import refuse
from phaze_opt.errors import PluginError
from phaze_opt.estimate.collectives import collective_s, group_dimensions
from phaze_opt.estimate.protocol import CompilingEstimator, Estimates, Estimator, load_estimator
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import PUBLISHED_SHARDING, CoreType, Operator, OperatorGraph, Phase
from phaze_opt.graph.sharding import model_flops
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.economics.device_cost import chip_cost
from phaze_opt.hardware.economics.ownership import usd_of_a_second
from phaze_opt.hardware.economics.prices import prices_with
from phaze_opt.hardware.network import MAX_DEVICES, MeasuredDimension, Network
from phaze_opt.objective.goals import FrontAxis, Goal, problem_digest
from phaze_opt.objective.scenario import CommonMean, Scenario
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.workload.sparsity import SparseWeights
from phaze_opt.workload.training import TrainingSpec

CORES_USED = {
    CoreType.TC: (True, False),
    CoreType.VC: (False, True),
    CoreType.TC_AND_VC: (True, True),
    CoreType.NETWORK: (False, False),
    CoreType.NONE: (False, False),
}
"""Whether an operator uses tensor and vector cores."""
PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)


@dataclass(frozen=True, slots=True)
class PhaseGraph:
    """One scheduling problem.

    Attributes:
        core_types: as the scheduler sees them: NETWORK is NONE.
        edges: precedence.
        first: position of its first operator among the model's.
        collective_s: its tensor-parallel collectives, one after the other, s.
    """

    core_types: tuple[CoreType, ...]
    edges: tuple[tuple[int, int], ...]
    first: int
    collective_s: float

    @property
    def columns(self) -> slice:
        """Its operators among the model's."""
        return slice(*self.span)

    @property
    def span(self) -> tuple[int, int]:
        """Where they begin, and where they end."""
        return self.first, self.first + len(self.core_types)


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Sizes of every distinct layer, bytes, each of shape (num_distinct_layers,); names as in `LayerCosts`."""

    state: Floats
    gradient: Floats
    stash: Floats
    inputs: Floats
    working_set: Floats
    output: Floats


@dataclass(frozen=True, slots=True)
class Sharded:
    """One tensor degree of a model at one micro-batch.

    Attributes:
        degree: t.
        chain: distinct layer of every position of the chain, shape (num_layers,).
        sizes: of the distinct layers.
        tied_state, tied_gradient: bytes of the last layer's copy of the first one's weights, of no use in one stage.
        tied_share: share of the last layer's update that this copy takes.
        phases: ``phases[layer][phase]`` in the order of `PHASES`.
    """

    degree: int
    chain: Ints
    sizes: LayerSizes
    tied_state: float
    tied_gradient: float
    tied_share: float
    phases: tuple[tuple[PhaseGraph, ...], ...]

    @property
    def collective_s(self) -> Floats:
        """Collectives of every distinct layer and phase, shape (num_distinct_layers, 3), s."""
        return np.array([[phase.collective_s for phase in layer] for layer in self.phases])


@dataclass(frozen=True, slots=True)
class ModelData:
    """A model at one micro-batch: all its tensor degrees, and their operators in one list."""

    operators: tuple[Operator, ...]
    options: tuple[Sharded, ...]


def build_model_data(scenario: Scenario, model: int, *, micro_batch: int) -> ModelData:
    """The graphs of one model of the scenario at one micro-batch."""
    spec = scenario.models[model]
    training = scenario.training_of(spec, micro_batch)
    operators: list[Operator] = []
    options = []
    for degree in scenario.tensor_degrees_of(spec):
        graph = build_model_graph(spec, training, tensor_parallel=degree, options=PUBLISHED_SHARDING)
        options.append(_shard(graph, scenario.cluster.network, training, operators))
    return ModelData(tuple(operators), tuple(options))


def _shard(graph: ModelGraph, network: Network, training: TrainingSpec, operators: list[Operator]) -> Sharded:
    """One degree, appending its operators to the shared list."""
    phases = []
    for layer in graph.layers:
        of_layer = []
        for phase in layer.phases:
            of_layer.append(_phase(phase, graph.tensor_parallel, network, first=len(operators)))
            operators.extend(phase.operators)
        phases.append(tuple(of_layer))
    last, optimizer = graph.layers[graph.chain[-1]], training.optimizer
    tied = last.num_tied_parameters if len(graph.chain) > 1 else 0
    return Sharded(
        degree=graph.tensor_parallel,
        chain=np.array(graph.chain, dtype=np.int64),
        sizes=_sizes(graph.layers, training),
        tied_state=float(tied * optimizer.bytes_per_parameter),
        tied_gradient=float(tied * optimizer.gradient_bytes),
        tied_share=tied / last.num_parameters if tied else 0.0,
        phases=tuple(phases),
    )


def copied_bytes(layer: LayerGraph, sparsity: SparseWeights | None) -> float:
    """What a layer holds of its sparse weights a second time, and for both passes a third (decision 0309).

    By the shapes of its products: kept weights of 16 bits, each with its place within its block.
    """
    if sparsity is None:
        return 0.0
    products = [each for operator in layer.forward.operators for each in operator.matmuls if each.pattern is not None]
    weights, pattern = sum(each.batch * each.k * each.n for each in products), sparsity.pattern
    bits_of_block = pattern.kept * (16 + math.ceil(math.log2(pattern.of)))
    return (2 if sparsity.is_transposable else 1) * weights * bits_of_block / (8 * pattern.of)


def _sizes(layers: tuple[LayerGraph, ...], training: TrainingSpec) -> LayerSizes:
    """State is weight, gradient and optimizer state of every parameter, and copies of sparse weights."""
    optimizer, copied = training.optimizer, [copied_bytes(layer, training.sparsity) for layer in layers]
    parameters = np.array([layer.num_parameters for layer in layers], dtype=np.float64)
    return LayerSizes(
        state=parameters * optimizer.bytes_per_parameter + np.array(copied),
        gradient=parameters * optimizer.gradient_bytes,
        stash=np.array([layer.stash_bytes for layer in layers], dtype=np.float64),
        inputs=np.array([layer.input_bytes for layer in layers], dtype=np.float64),
        working_set=np.array([layer.working_set_bytes for layer in layers], dtype=np.float64),
        output=np.array([layer.output_bytes for layer in layers], dtype=np.float64),
    )


def _phase(graph: OperatorGraph, degree: int, network: Network, *, first: int) -> PhaseGraph:
    """One problem with the time of its collectives over the innermost ``degree`` devices."""
    dimensions = group_dimensions(network, size=degree, stride=1)
    collectives = [operator.collective for operator in graph.operators if operator.collective is not None]
    seconds = [collective_s(c.kind, c.payload_bytes, dimensions) for c in collectives] if degree > 1 else []
    kinds = (operator.core_type for operator in graph.operators)
    return PhaseGraph(
        core_types=tuple(CoreType.NONE if kind is CoreType.NETWORK else kind for kind in kinds),
        edges=graph.edges,
        first=first,
        collective_s=float(sum(seconds)),
    )


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model at one micro-batch, its operators as the estimator likes them, and its columns of the multipliers."""

    data: ModelData
    operators: Sequence[Operator]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckedProblem:
    """A problem whose digests are right.

    Attributes:
        certificate: the claim, scenario, space and goal.
        constants: of this package.
        estimator: the scenario's.
    """

    certificate: Certificate
    constants: Constants
    estimator: Estimator
    _models: dict[int, tuple[PreparedModel, ...]] = field(default_factory=dict, repr=False)
    _at_links: dict[float, "CheckedProblem"] = field(default_factory=dict, repr=False)

    def at_links(self, link_bytes_per_s: float) -> "CheckedProblem":
        """The problem of chips with links of their own, made once: the same on a network that is so fast."""
        scenario = self.certificate.scenario
        if link_bytes_per_s in (0.0, links_of(scenario.cluster.network)):
            return self
        if link_bytes_per_s not in self._at_links:
            network = on_links(scenario.cluster.network, link_bytes_per_s)
            faster = replace(scenario, cluster=replace(scenario.cluster, network=network))
            certificate = replace(self.certificate, scenario=faster)
            self._at_links[link_bytes_per_s] = CheckedProblem(certificate, self.constants, self.estimator)
        return self._at_links[link_bytes_per_s]

    def models(self, micro_batch: int) -> tuple[PreparedModel, ...]:
        """All models at one micro-batch, made once."""
        if micro_batch not in self._models:
            numbers = range(len(self.certificate.scenario.models))
            self._models[micro_batch] = tuple(self._prepare(number, micro_batch) for number in numbers)
        return self._models[micro_batch]

    def _prepare(self, model: int, micro_batch: int) -> PreparedModel:
        data = build_model_data(self.certificate.scenario, model, micro_batch=micro_batch)
        operators: Sequence[Operator] = data.operators
        if isinstance(self.estimator, CompilingEstimator):
            operators = self.estimator.compile(operators)
        slots = tuple(number for number, slot in enumerate(self.certificate.slots) if slot.model == model)
        return PreparedModel(data, operators, slots)

    def estimate(self, model: PreparedModel, chips: AcceleratorTable) -> Estimates:
        """Latencies of all operators of a model on all chips."""
        return self.estimator.estimate(model.operators, chips)


def links_of(network: Network) -> float:
    """What a device sends one way over all levels together, bytes/s."""
    return sum(level.bandwidth_bytes_per_s for level in network.dimensions)


def on_links(network: Network, link_bytes_per_s: float) -> Network:
    """The network of chips whose links send so much: every bandwidth times one factor, measured ones too."""
    factor, levels = link_bytes_per_s / links_of(network), []
    for level in network.dimensions:
        faster = replace(level, bandwidth_bytes_per_s=level.bandwidth_bytes_per_s * factor)
        if isinstance(faster, MeasuredDimension):
            reached = faster.curve.bandwidth_bytes_per_s * factor
            faster = replace(faster, curve=replace(faster.curve, bandwidth_bytes_per_s=reached))
        levels.append(faster)
    return replace(network, dimensions=tuple(levels))


def own_constants(scenario: Scenario, *, file: str) -> Constants:
    """This package's constants, with the dies of a scenario.

    Raises:
        CertificateError: its dies have others.
    """
    if scenario.silicon is not None and scenario.silicon.values:
        refuse("its dies have other constants than this package's", file=file)
    return scenario.constants_of()


def check_problem(certificate: Certificate, constants: Constants | None = None) -> CheckedProblem:
    """Constants and digests are those of this package, or of the world given, and of what the certificate states.

    Raises:
        CertificateError: one is not.
    """
    if constants is None:
        constants = own_constants(certificate.scenario, file=CERTIFICATE_FILE)
    if certificate.constants_digest != constants.digest:
        refuse("constants_digest is not that of this package's constants", file=CERTIFICATE_FILE)
    _check_axes(certificate)
    scenario, space = certificate.scenario, certificate.space
    if space.silicon != scenario.silicon or space.frontier is not None:
        refuse("its space has other silicon than its scenario, or is a part of one", file=CERTIFICATE_FILE)
    if scenario.silicon is not None and scenario.silicon.link_bytes_per_s != links_of(scenario.cluster.network):
        refuse("its dies have other links than its network", file=CERTIFICATE_FILE)
    if scenario.cluster.num_devices > MAX_DEVICES:
        refuse(f"{scenario.cluster.num_devices} devices are more than {MAX_DEVICES}", file=CERTIFICATE_FILE)
    try:
        estimator = load_estimator(scenario.estimator)
    except PluginError as error:
        refuse(f"its estimator cannot be had: {error}", file=CERTIFICATE_FILE, cause=error)
    # What an estimator was fitted with counts in the digest, so it is loaded first.
    digest = problem_digest(scenario, constants, space=space, goal=certificate.goal, axes=certificate.axes)
    if certificate.problem_digest != digest:
        rule = (
            "problem_digest is not that of its scenario, space, goal and constants: it was changed, or made by a "
            f"phaze-opt (version {certificate.provenance.package_version}) whose estimator was fitted otherwise"
        )
        refuse(rule, file=CERTIFICATE_FILE)
    return CheckedProblem(certificate, constants, estimator.with_constants(constants))


def _check_axes(certificate: Certificate) -> None:
    """A front has two goals or more, each once and in their order, costs of dies alone; one goal has none."""
    axes = certificate.axes
    if (certificate.goal is Goal.PARETO) != bool(axes) or len(axes) == 1:
        refuse(f"goal '{certificate.goal}' goes with no front of {len(axes)} goals", file=CERTIFICATE_FILE)
    if axes != tuple(axis for axis in FrontAxis if axis in axes):
        refuse("axes names a goal twice or out of order", file=CERTIFICATE_FILE)
    if FrontAxis.COST in axes and certificate.scenario.silicon is None:
        refuse("its front is over cost, which chips of the 22 nm tables have none of", file=CERTIFICATE_FILE)


def throughput(scenario: Scenario, batch_s: Floats) -> Floats:
    """Samples/s of every row, shape (rows,); 0 where any model has no placement.

    Args:
        scenario: global batch, models and their mean.
        batch_s: of every model and row, shape (models, rows), s; infinite where nothing fits.
    """
    rates = scenario.global_batch / batch_s
    if len(rates) == 1:
        return np.asarray(rates[0])
    is_feasible = np.isfinite(batch_s).all(axis=0)
    safe = np.where(is_feasible, rates, 1.0)
    return np.where(is_feasible, _mean(scenario, safe), 0.0)


def _mean(scenario: Scenario, rates: Floats) -> Floats:
    """The scenario's mean of rates, shape (models, rows) to (rows,).

    WORST is the lowest rate of model FLOPs, turned back into samples/s by the geometric mean of samples per FLOP.
    """
    if scenario.common is CommonMean.ARITHMETIC:
        return np.asarray(rates.mean(axis=0))
    if scenario.common is CommonMean.GEOMETRIC:
        return np.asarray(np.exp(np.log(rates).mean(axis=0)))
    flops = np.array([model_flops(model, scenario.sequence_length_of(model)) for model in scenario.models])
    return np.asarray((rates * flops[:, None]).min(axis=0) * float(np.exp(-np.log(flops).mean())))


def goal_value(certificate: Certificate, rate: Floats, *, tdp_w: Floats, device_usd: Floats) -> Floats:
    """Samples/s, or samples/s/W or samples/USD of all devices given; shape (rows,)."""
    scenario, num_devices = certificate.scenario, certificate.scenario.cluster.num_devices
    if certificate.goal is Goal.THROUGHPUT_PER_TDP:
        return rate / (tdp_w * num_devices)
    if certificate.goal is not Goal.THROUGHPUT_PER_USD:
        return rate
    return rate / usd_of_a_second(device_usd, tdp_w, num_devices=num_devices, known=prices_of(scenario))


def costs_of(chips: AcceleratorTable, scenario: Scenario, constants: Constants) -> Floats:
    """What a device of each chip costs, USD, shape (num_chips,)."""
    links = links_of(scenario.cluster.network)
    return chip_cost(chips, constants, link_bytes_per_s=links, prices=prices_of(scenario)).usd


def prices_of(scenario: Scenario) -> Constants:
    """Prices in force: those of the package, and others that the scenario states."""
    return prices_with(scenario.prices or ())
