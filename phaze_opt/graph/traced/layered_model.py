"""A traced model made ready: normalised by passes in their order, cut into layers and folded, once for each file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from phaze_opt.errors import InputError
from phaze_opt.graph.traced.expert_region import absorb_expert_biases, join_expert_sums
from phaze_opt.graph.traced.flat_graph import FlatGraph, flatten
from phaze_opt.graph.traced.folding import CutRule, LayerChain, fold_branches, fold_layers
from phaze_opt.graph.traced.layer_sharding import LayerSharding
from phaze_opt.graph.traced.normalise.attention_core import combine_qkv, join_attention
from phaze_opt.graph.traced.normalise.identities import elide_identities, end_at_losses, plain_names
from phaze_opt.graph.traced.normalise.regions import absorb_norm_weights, collapse_regions, join_gates
from phaze_opt.graph.traced.normalise.views import (
    drop_unused,
    fold_constants,
    join_splits,
    lend_lookups,
    plain_products,
    selecting_weight,
    sink_views,
)
from phaze_opt.graph.traced.normalise.vocabulary import GROUPED_PRODUCTS
from phaze_opt.graph.traced.sharding_by_dataflow import shard_layer, vocabulary_sizes
from phaze_opt.graph.traced.traced_file import parse_traced_model
from phaze_opt.graph.traced.traced_model import SEQUENCE, TensorRef, TracedModel, TracedNode, TracedRole
from phaze_opt.workload.block_spec import ExpertRouting
from phaze_opt.workload.branches import MAX_DOWN_SETS, down_sets
from phaze_opt.workload.chain import ChainCut, CutPlaces, cut_between_layers, cut_branches, cut_chain

MAX_BESIDE = 200
"""Operations of a layer that stand beside one another: schedules of more take minutes."""
_MAX_KEPT = 16
"""Models that are kept ready."""


@dataclass(frozen=True, slots=True)
class ExpertCounts:
    """Experts of a model: how many a layer has, which a token meets, and parameters of all of them."""

    num_experts: int = 1
    routing: ExpertRouting = ExpertRouting(1)
    num_parameters: int = 0


@dataclass(frozen=True, slots=True)
class LayeredModel:
    """A model ready to be recorded.

    Attributes:
        model: as the file says.
        graph: normalised.
        folded: its layers.
        num_parameters: of the whole model, tied ones once.
        experts: its experts.
        shardings: of each kind of layer over a tensor-parallel group.
        cut_of: the rule that cuts its chain.
        selector: path of a weight that chooses by values alone, if there is any (`selecting_weight`).
    """

    model: TracedModel
    graph: FlatGraph
    folded: LayerChain
    num_parameters: int
    experts: ExpertCounts
    shardings: tuple[LayerSharding, ...]
    cut_of: CutRule
    selector: str = ""

    @property
    def cut(self) -> ChainCut:
        """Front, units and back."""
        branches = self.folded.branches
        return self.cut_of(self.folded.chain) if branches is None else cut_branches(self.folded.chain, branches)

    @property
    def has_one_order(self) -> bool:
        """Whether its branches are cut in one order, as there are too many ways to cut them."""
        return self.folded.branches is not None and not down_sets(self.folded.branches, MAX_DOWN_SETS)

    @property
    def idle_parameters(self) -> tuple[int, str]:
        """Elements of parameters that no layer reads, and the name of the largest of them."""
        graph = self.graph
        of_all, of_nodes = (
            {graph.parameter(name) for name in names if graph.role(name) is TracedRole.PARAMETER}
            for names in (graph.tensors, (name for node in graph.nodes for name in node.tensor_ids()))
        )
        idle = {name: _elements(graph, name) for name in of_all - of_nodes}
        largest = max(idle, key=lambda name: idle[name], default="")
        return sum(idle.values()), graph.tensors[largest].fqn if largest else ""

    @property
    def num_recounted_parameters(self) -> int:
        """Elements that units hold though other layers hold them too."""
        return sum(_elements(self.graph, name) for name in self.folded.recounted)

    @property
    def num_unit_parameters(self) -> int:
        """Elements of parameters that units share, which the first layer holds."""
        return sum(_elements(self.graph, name) for name in self.folded.of_units)

    @property
    def has_sequence(self) -> bool:
        """Whether sizes depend on a sequence length."""
        return SEQUENCE in self.model.symbols


@lru_cache(maxsize=_MAX_KEPT)
def layered_model_of(
    text: str, source: str, *, has_combined_qkv: bool = False, cuts: CutPlaces = CutPlaces.UNITS
) -> LayeredModel:
    """The model of a file's text, as it was traced or with query, key and value from one product.

    Args:
        text: of the file.
        source: where it is from.
        has_combined_qkv: whether query, key and value are from one product.
        cuts: where pipelines are cut.

    Raises:
        InputError: as `parse_traced_model`.
    """
    model = parse_traced_model(text, source=source)
    flat = flatten(model)
    graph = normalised(flat, has_combined_qkv=has_combined_qkv)
    cut_of = cut_chain if cuts is CutPlaces.UNITS else cut_between_layers
    folded = fold_branches(graph) if cuts is CutPlaces.BRANCHES else None
    folded = folded or fold_layers(graph, cut_of=cut_of)
    widest = max(layer.most_beside for layer in folded.layers)
    if widest > MAX_BESIDE:
        message = (
            f"a layer of {model.name} has {widest:,} operations beside one another; at most {MAX_BESIDE} are priced"
        )
        raise InputError(message, source=source)
    try:
        shardings = tuple(_shardings(graph, folded))
        experts = _with_groups(_experts(graph, model), flat)
    except OF_OTHER_FORM as error:
        raise form_fault(error, "sharding") from error
    selector = selecting_weight(flat, graph)
    return LayeredModel(model, graph, folded, _num_parameters(flat), experts, shardings, cut_of, selector)


def _shardings(graph: FlatGraph, folded: LayerChain) -> Iterator[LayerSharding]:
    """That of each kind of layer, in the order of their first places in the chain."""
    sizes, apart = vocabulary_sizes(graph), set[str]()
    for layer in folded.layers:
        sharding = shard_layer(graph, layer, vocabularies=sizes, apart=apart)
        apart |= sharding.patches
        yield sharding


def _num_parameters(flat: FlatGraph) -> int:
    """Elements of all parameters, tied ones once; those that the loss does not depend on too."""
    names = {flat.parameter(name) for name, tensor in flat.tensors.items() if tensor.role is TracedRole.PARAMETER}
    return sum(_elements(flat, name) for name in names)


def _elements(graph: FlatGraph, name: str) -> int:
    """Elements of a parameter."""
    return prod(size.evaluate({}) for size in graph.tensors[name].shape)


def _experts(graph: FlatGraph, model: TracedModel) -> ExpertCounts:
    """What products with the weights of experts say."""
    found, parameters = ExpertCounts(), 0
    for node in graph.nodes:
        weights = [name for name in node.tensor_ids() if graph.role(name) is TracedRole.PARAMETER]
        if node.op not in GROUPED_PRODUCTS or not weights:
            continue
        parameters += sum(_elements(graph, name) for name in weights)
        experts = graph.tensors[weights[0]].shape[0].evaluate({})
        active = max(found.routing.num_active, _active(graph, node, model))
        found = ExpertCounts(experts, ExpertRouting(active), parameters)
    return found


def _with_groups(counts: ExpertCounts, flat: FlatGraph) -> ExpertCounts:
    """The same with the groups of experts that a router chooses first: the largest of a number for each group.

    Such a number is made of those of the group's experts, which lie side by side in a view of all experts.
    """
    producers = flat.producers()

    def size(name: str, axis: int) -> int:
        shape = flat.tensors[name].shape
        return shape[axis].evaluate({}) if len(shape) >= -axis and not shape[axis].symbols else 0

    for node in flat.nodes:
        if _operation(node) != "aten.topk" or not isinstance(chosen := node.inputs[1], int):
            continue
        name = next(node.tensor_ids())
        groups, reduction = size(name, -1), producers.get(name)
        if not 1 < groups < counts.num_experts or not chosen < groups or reduction is None:
            continue
        source: TracedNode | None = reduction
        while source is not None and _operation(source) in _OF_GROUPS:
            given = next(source.tensor_ids())
            if (size(given, -2), size(given, -1) * groups) == (groups, counts.num_experts):
                routing = replace(counts.routing, num_groups=groups, num_active_groups=chosen)
                return replace(counts, routing=routing)
            source = producers.get(given)
    return counts


_OF_GROUPS = {"aten.sum", "aten.max", "aten.amax", "aten.mean", "aten.topk"}
"""What makes one number of a group of those of its experts."""


def _operation(node: TracedNode) -> str:
    """Its name without overload."""
    return ".".join(node.op.split(".")[:2])


def _active(graph: FlatGraph, node: TracedNode, model: TracedModel) -> int:
    """Experts of a token: rows of the product for each token."""
    rows = node.inputs[0]
    if not isinstance(rows, TensorRef):
        return 1
    values = dict(model.symbols)
    tokens = prod(values.values()) * (1 if SEQUENCE in values else model.num_positions)
    return max(1, graph.tensors[rows.id].shape[0].evaluate(values) // tokens)


OF_OTHER_FORM = (IndexError, KeyError, StopIteration, RuntimeError, TypeError, ValueError, AttributeError)
"""What a pass may raise of operations without the arguments that their names need; a generator that wants the next of
nothing raises a `RuntimeError`.
"""
PASSES: tuple[Callable[[FlatGraph], FlatGraph], ...] = (
    plain_names,
    drop_unused,
    elide_identities,
    fold_constants,
    plain_products,
    end_at_losses,
    join_attention,
    absorb_expert_biases,
    join_expert_sums,
    collapse_regions,
    absorb_norm_weights,
    join_gates,
    join_splits,
    drop_unused,
)


def normalised(graph: FlatGraph, *, has_combined_qkv: bool = False) -> FlatGraph:
    """The graph in the form that operator rules know.

    Args:
        graph: as it was traced.
        has_combined_qkv: whether query, key and value of an attention are made by one product.

    Raises:
        InputError: operations have not the arguments that their names need, or nothing is left of them.
    """
    for each in (*PASSES, *(combine_qkv,) * has_combined_qkv, sink_views, lend_lookups):
        try:
            graph = each(graph)
        except OF_OTHER_FORM as error:
            raise form_fault(error, each.__name__) from error
    if not graph.nodes:
        message = "the traced model has no operation that its loss and its parameters depend on; extract it again"
        raise InputError(message)
    return graph


def form_fault(error: Exception, step: str) -> InputError:
    """The error of a file whose operations are not what their names say."""
    message = (
        f"the traced model has operations without the arguments that their names need ({step}: "
        f"{type(error).__name__}: {error}); extract it again"
    )
    return InputError(message)
