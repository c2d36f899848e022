"""`TracedWorkload`: a model that an export traced, as rooms above ask of it."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from math import gcd, prod

from phaze_opt.graph.operator import Matmul, Phase, ShardingOptions
from phaze_opt.graph.program import Program
from phaze_opt.graph.sharding import ExpertSizes, Sharding, division_obstacle, expert_obstacle
from phaze_opt.graph.traced.device_sizes import DeviceSizes, WeightShare, weight_shares
from phaze_opt.graph.traced.layered_model import LayeredModel, layered_model_of
from phaze_opt.graph.traced.layers import TracedLayer, count_blocks
from phaze_opt.graph.traced.normalise.attention_core import ATTENTION, UNMASKED
from phaze_opt.graph.traced.operator_rule import operator_rules
from phaze_opt.graph.traced.record import LayerSettings, record_layer
from phaze_opt.graph.traced.traced_model import BATCH, SEQUENCE
from phaze_opt.workload.block_spec import ExpertRouting
from phaze_opt.workload.branches import MAX_DOWN_SETS
from phaze_opt.workload.chain import ChainCut, CutPlaces
from phaze_opt.workload.training import AttentionForm, TrainingSpec

_TOLD_SHARE = 0.01
"""Share of parameters without work from which on it is said."""


@dataclass(frozen=True, slots=True)
class TracedWorkload:
    """A traced model to train. It holds the text of its file, so that a record of a scenario holds the model.

    Attributes:
        name: of the model.
        text: of the traced-model file.
        source: where the file is from.
        allow_unknown: whether operations without a rule are counted by their bytes.
        has_combined_qkv: whether query, key and value of an attention are made by one product where three were traced.
        is_cut_by_layers: whether pipelines are cut between any two of its layers.
        is_cut_by_branches: whether towers of it that stand beside one another are cut as well.
    """

    name: str
    text: str
    source: str = ""
    allow_unknown: bool = False
    has_combined_qkv: bool = False
    is_cut_by_layers: bool = False
    is_cut_by_branches: bool = False

    @property
    def layered(self) -> LayeredModel:
        """The model ready to be recorded.

        Raises:
            InputError: the text is no traced model.
        """
        return layered_model_of(
            self.text, self.source or self.name, has_combined_qkv=self.has_combined_qkv, cuts=self.cuts
        )

    @property
    def cuts(self) -> CutPlaces:
        """Where pipelines are cut."""
        if self.is_cut_by_branches:
            return CutPlaces.BRANCHES
        return CutPlaces.LAYERS if self.is_cut_by_layers else CutPlaces.UNITS

    @property
    def unknown_operators(self) -> tuple[str, ...]:
        """Operations that no rule knows, by name."""
        rules = operator_rules()
        return tuple(sorted({node.op for node in self.layered.graph.nodes} - rules.keys()))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the export wants to be told, and what of the model counts otherwise than it runs, a sentence each."""
        return (*self._own_notes(), *self.layered.model.notes)

    @property
    def sparse_note(self) -> str:
        """That selectors and what they leave out are not priced; empty without any."""
        found = self.layered.selector
        if not found:
            return ""
        return (
            f"selectors of {self.name} without a gradient ('{found[:80]}') are priced as free, and sparse attention as "
            "dense"
        )

    @property
    def unmasked_share(self) -> float:
        """Share of the products of attention that no mask halves, of those that were traced as one operation."""
        graph, total, unmasked = self.layered.graph, 0, 0
        for node in (each for each in graph.nodes if each.op == ATTENTION):
            query, key = (graph.tensors[name].shape for name in list(node.tensor_ids())[:2])
            macs = prod(size.evaluate(graph.values) for size in (*query, key[-2]))
            total, unmasked = total + macs, unmasked + macs * (UNMASKED in dict(node.attrs))
        return unmasked / max(1, total)

    def _own_notes(self) -> Iterator[str]:
        once, extra = self.layered.num_unit_parameters, self.layered.num_recounted_parameters
        if once:
            yield (
                f"Repeated layers of {self.name} share {once:,} parameters, which the first of its stages is counted "
                "to hold: of a pipeline every stage would hold them, and all would add up their gradients."
            )
        idle, example = self.layered.idle_parameters
        if idle > _TOLD_SHARE * self.num_parameters:
            yield (
                f"{idle:,} of the {self.num_parameters:,} parameters of {self.name} are read by nothing that its loss "
                f"depends on ('{example[:80]}'): they cost neither time nor memory here."
            )
        if self.layered.has_one_order:
            yield (
                f"Blocks of {self.name} that stand beside one another can be taken in more than {MAX_DOWN_SETS} ways: "
                "pipelines are cut in one order of them, in which few tensors cross."
            )
        if extra:
            yield (
                f"Repeated layers of {self.name} share parameters, which each of them is counted to hold: layers "
                f"together have {extra:,} parameters more than the model's {self.num_parameters:,}, and memory, "
                "gradients and updates are too large by as much."
            )

    @property
    def cut(self) -> ChainCut:
        """Its chain of layers as front, equal units and back."""
        return self.layered.cut

    @property
    def num_units(self) -> int:
        """Units that pipeline stages share out."""
        return self.cut.num_units

    @property
    def num_layers(self) -> int:
        """Numbered modules with products, such as the blocks of a list; without any, layers of all units."""
        blocks = count_blocks(self.layered.graph)
        of_units = sum(len(self.cut.units[kind]) for kind in self.cut.order)
        # One block that runs again and again is as many.
        return max(blocks, self.num_units) if blocks else of_units

    @property
    def num_parameters(self) -> int:
        """Parameters, exact to the unit; tied ones once."""
        return self.layered.num_parameters

    @property
    def num_active_parameters(self) -> int:
        """Parameters that one token meets: all but those of experts that it is not sent to."""
        experts = self.layered.experts
        idle = experts.num_parameters * (experts.num_experts - experts.routing.num_active) // experts.num_experts
        return self.num_parameters - idle

    @property
    def num_experts(self) -> int:
        """Experts of a layer that has some; 1 without any."""
        return self.layered.experts.num_experts

    @property
    def num_active_experts(self) -> int:
        """Experts that a token meets; 1 without any."""
        return self.layered.experts.routing.num_active

    @property
    def expert_routing(self) -> ExpertRouting | None:
        """Which experts of a layer a token meets; None without any."""
        return self.layered.experts.routing if self.has_experts else None

    @property
    def has_experts(self) -> bool:
        """Whether some layer is a mixture of experts."""
        return self.num_experts > 1

    @property
    def has_attention(self) -> bool:
        """Whether some operation is attention, as in every transformer."""
        return any(node.op == ATTENTION for node in self.layered.graph.nodes)

    @property
    def own_sequence_length(self) -> int:
        """The sequence that it was traced for; positions of a sample where sizes do not depend on one."""
        model = self.layered.model
        return model.symbols.get(SEQUENCE, model.num_positions)

    @property
    def sizes_sentence(self) -> str:
        """Its layers and operations in words."""
        chain, operations = self.layered.folded.chain, len(self.layered.graph.nodes)
        return f"traced: {len(chain)} layers of {len(set(chain))} kinds, {operations:,} operations"

    @property
    def layers_key(self) -> Hashable:
        """Equal for equal files."""
        return (type(self).__name__, self.text, self.allow_unknown, self.has_combined_qkv, self.cuts)

    def length_obstacle(self, length: int) -> str | None:
        """Why it cannot be run on a sequence of ``length``, and what to give; None if it can."""
        model = self.layered.model
        if not self.layered.has_sequence and length != model.num_positions:
            return (
                f"sequence length {length} is not that of {self.name}, whose sizes are fixed at {model.num_positions} "
                "positions a sample; leave it out"
            )
        if model.max_sequence_length and length > model.max_sequence_length:
            return (
                f"sequence length {length} exceeds the {model.max_sequence_length} positions of {self.name}; give at "
                "most that"
            )
        return None

    def with_combined_qkv(self) -> "TracedWorkload":
        """The same with query, key and value from one product, where three were traced."""
        return replace(self, has_combined_qkv=True)

    def cut_by_layers(self) -> "TracedWorkload":
        """The same with pipelines cut between any two layers."""
        return replace(self, is_cut_by_layers=True)

    def cut_by_branches(self) -> "TracedWorkload":
        """The same with pipelines cut between any two sets of blocks, where some stand beside others."""
        return replace(self, is_cut_by_branches=True)

    def sharding_obstacle(self, tensor_parallel: int, options: ShardingOptions) -> str | None:
        """Why it cannot be sharded so, as a sentence; None if it can."""
        if options.context > 1:
            return f"{self.name}: sequences of traced models are not sharded; give context parallel degree 1"
        shardings = self.layered.shardings
        if tensor_parallel > 1:
            if not any(each.products for each in shardings):
                return f"{self.name}: no product of it can be split over a group; give tensor parallel degree 1"
            obstacle = division_obstacle(self.name, self._divided(tensor_parallel, options), tensor_parallel)
            if obstacle is not None:
                return obstacle
        return expert_obstacle(self._expert_sizes, tensor_parallel, options)

    @property
    def _expert_sizes(self) -> ExpertSizes:
        """Experts that tokens are sent to; those whose routing is of another form run on every device."""
        layered = self.layered
        regions = [(sharding, region) for sharding in layered.shardings for region in sharding.experts]
        counts = [layered.graph.tensors[region.weight].shape[0].evaluate({}) for _, region in regions]
        widths = [sharding.width_of(region) for sharding, region in regions]
        return ExpertSizes(self.name, bool(regions), gcd(*counts) or 1, gcd(*widths))

    def _divided(self, tensor_parallel: int, options: ShardingOptions) -> Iterator[tuple[str, int]]:
        """What must divide by a tensor-parallel degree."""
        for sharding in self.layered.shardings:
            for queries, keys in sharding.heads:
                yield "attention heads", queries
                if not (options.has_kv_replicas and tensor_parallel % keys == 0):
                    yield "key-value heads", keys
            for count in sharding.normed_channels:
                yield "normalised channels", count
            for count in sharding.channels:
                yield "channels", count
        experts = self._expert_sizes
        if experts.has_experts and options.expert is None:
            yield "experts", experts.num_experts
        elif experts.has_experts and options.expert_tensor is None:
            yield "channels of an expert", experts.width

    def weight_shares(self, degree: int) -> tuple[WeightShare, ...]:
        """Every product with a weight, and lookup in a table, of every kind of layer: what a device of a group has."""
        layered, length = self.layered, self.own_sequence_length
        group = Sharding(TrainingSpec(1, length, 1), degree, ShardingOptions(has_kv_replicas=True))
        values, layers = {BATCH: 1, SEQUENCE: length}, layered.folded.layers
        return tuple(
            share
            for name, layer, sharding in zip(_layer_names(layers), layers, layered.shardings, strict=True)
            for share in weight_shares(DeviceSizes(layered.graph, values, group, sharding, True), layer, name)
        )

    def model_flops(self, sequence_length: int) -> float:
        """Matmul FLOPs of forward and backward of one sample, whatever the sharding and fusion."""
        training = TrainingSpec(1, sequence_length, 1, attention=AttentionForm.UNFUSED)
        programs = self.record_layers(training, tensor_parallel=1, options=ShardingOptions())
        return float(sum(2 * _macs(programs[kind]) for kind in self.cut.chain))

    def record_layers(
        self, training: TrainingSpec, *, tensor_parallel: int, options: ShardingOptions
    ) -> tuple[Program, ...]:
        """An unfused program of each kind of layer, in the order of the kinds of its ``cut``.

        Raises:
            InputError: an operation has no rule, or the sizes cannot be had.
        """
        layered = self.layered
        recording = LayerSettings(training, operator_rules(), self.allow_unknown, tensor_parallel, options)
        layers = layered.folded.layers
        recorded = [
            record_layer(layered.graph, layer, recording, name=name, sharding=sharding, shared=shared)
            for name, layer, sharding, shared in zip(
                _layer_names(layers), layers, layered.shardings, layered.folded.parameters, strict=True
            )
        ]
        first, *others = (each.program for each in recorded)
        shared_elements = sum(
            max(each.parameters.get(name, 0) for each in recorded) for name in layered.folded.of_units
        )
        return (replace(first, num_parameters=first.num_parameters + shared_elements), *others)


def _macs(program: Program) -> int:
    """Multiply-accumulates of both phases."""

    def of(matmuls: tuple[Matmul, ...]) -> int:
        return sum(matmul.macs for matmul in matmuls)

    return sum(of(node.matmuls) * node.serial_steps for node in program.nodes if node.phase is not Phase.UPDATE)


def _layer_names(layers: tuple[TracedLayer, ...]) -> list[str]:
    """Names of layers: the words that the paths of their modules have in common, with a number where one is taken."""
    taken: dict[str, int] = {}
    names = []
    for layer in layers:
        paths = [node.module.split(".") for node in layer.nodes if node.module]
        shared = [parts[0] for parts in zip(*paths, strict=False) if len(set(parts)) == 1]
        words = [word for word in shared if not word.isdigit()]
        name = words[-1] if words else "layer"
        count = taken[name] = taken.get(name, 0) + 1
        names.append(name if count == 1 else f"{name} {count}")
    return names
