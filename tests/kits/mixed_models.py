"""Models whose layers differ, and models that state their own layers.

The name of a mixed model is its chain, such as ``mixed 0 3 1 3 1 2``: the embedding is of kind 0, the model's own block
of kind 1, the head of kind 2, a smaller block of kind 3 and a copy of the own block, under another name, of kind 4.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import pytest

from phaze_opt.graph import build
from phaze_opt.graph import operations as ops
from phaze_opt.graph.block import record_block
from phaze_opt.graph.build import record_front, record_head
from phaze_opt.graph.operator import ShardingOptions
from phaze_opt.graph.program import Program, Tape
from phaze_opt.graph.sharding import Sharding, model_flops, sharding_obstacle
from phaze_opt.workload.block_spec import MlpSpec
from phaze_opt.workload.chain import ChainCut, cut_between_layers, cut_chain
from phaze_opt.workload.config import load_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.transformer import TransformerSpec

EMBEDDING, OWN, HEAD, SMALLER, TWIN = range(5)


def mixed_model(chain: Sequence[int], base: str = "tiny", **changes: object) -> ModelSpec:
    """A model of a chain of kinds; ``understand_mixed_models`` gives its name a meaning."""
    name = " ".join(("mixed", *map(str, chain)))
    return replace(load_model(base), name=name, num_layers=len(chain) - 2, **changes)


def understand_mixed_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the names of mixed models are their chains."""
    plain_chain, plain_record = TransformerSpec.chain, build._record_transformer

    def chain(model: TransformerSpec) -> tuple[int, ...]:
        kinds = model.name.split()
        return tuple(map(int, kinds[1:])) if kinds[0] == "mixed" else plain_chain.__get__(model)

    def record(
        model: TransformerSpec, training: TrainingSpec, tensor_parallel: int, options: ShardingOptions
    ) -> tuple[Program, ...]:
        if not model.name.startswith("mixed"):
            return plain_record(model, training, tensor_parallel, options)
        return record_kinds(model, training, tensor_parallel, options)

    monkeypatch.setattr(TransformerSpec, "chain", property(chain))
    monkeypatch.setattr(build, "_record_transformer", record)


def record_kinds(
    model: TransformerSpec, training: TrainingSpec, tensor_parallel: int, options: ShardingOptions
) -> tuple[Program, ...]:
    """A program of each kind, as many as the chain has; smaller blocks of a model with experts have none."""
    own, (block,) = Sharding(training, tensor_parallel, options), model.stack.kinds
    mlp = block.mlp if isinstance(block.mlp, MlpSpec) else block.mlp.expert
    small = replace(block, mlp=replace(mlp, width=mlp.width // 2))
    programs = (
        *record_plain(model, own),
        record_block(own, small, name="smaller"),
        record_block(own, block, name="twin"),
    )
    return programs[: model.cut.num_kinds]


def record_plain(model: TransformerSpec, own: Sharding) -> tuple[Program, Program, Program]:
    """Embedding, block and head."""
    (block,) = model.stack.kinds
    front = record_front(own, model.stack.front, name="embedding")
    return front, record_block(own, block, name="block"), record_head(own, model.head)


@dataclass(frozen=True)
class VisionLike:
    """A model of a fixed length that states its layers: those of a transformer, under a name of their own."""

    spec: ModelSpec
    length: int
    chain: tuple[int, ...]
    name: str = "vision-like"
    source: str = "kits"
    is_cut_by_layers: bool = False

    @property
    def num_layers(self) -> int:
        return len(self.chain) - 2

    @property
    def cut(self) -> ChainCut:
        return cut_between_layers(self.chain) if self.is_cut_by_layers else cut_chain(self.chain)

    @property
    def num_units(self) -> int:
        return self.cut.num_units

    @property
    def num_parameters(self) -> int:
        return self.spec.num_parameters

    num_active_parameters = num_parameters
    num_experts = num_active_experts = 1
    expert_routing = None
    has_experts = False

    @property
    def own_sequence_length(self) -> int:
        return self.length

    @property
    def sizes_sentence(self) -> str:
        return f"{self.num_layers} layers"

    @property
    def layers_key(self) -> Hashable:
        return self

    def length_obstacle(self, length: int) -> str | None:
        return None if length == self.length else f"{length} is not the {self.length} patches of {self.name}"

    def cut_by_layers(self) -> "VisionLike":
        return replace(self, is_cut_by_layers=True)

    def cut_by_branches(self) -> "VisionLike":
        return self.cut_by_layers()

    def with_combined_qkv(self) -> "VisionLike":
        return self

    def sharding_obstacle(self, tensor_parallel: int, options: ShardingOptions) -> str | None:
        return sharding_obstacle(self.spec, tensor_parallel, options=options)

    def model_flops(self, sequence_length: int) -> float:
        return model_flops(self.spec, sequence_length)

    def record_layers(
        self, training: TrainingSpec, *, tensor_parallel: int, options: ShardingOptions
    ) -> tuple[Program, ...]:
        return record_plain(self.spec.transformer, Sharding(training, tensor_parallel, options))


@dataclass(frozen=True)
class ReluChain(VisionLike):
    """Products and ReLUs that keep their output, which the next layer keeps as its input; no tensor parallelism."""

    name: str = "relu-chain"
    width: int = 256

    def sharding_obstacle(self, tensor_parallel: int, options: ShardingOptions) -> str | None:
        return None if tensor_parallel == 1 else f"{self.name} runs on one device"

    def record_layers(
        self, training: TrainingSpec, *, tensor_parallel: int, options: ShardingOptions
    ) -> tuple[Program, ...]:
        rows = training.micro_batch * training.sequence_length
        return tuple(self._record(kind, rows) for kind in range(self.cut.num_kinds))

    def _record(self, kind: int, rows: int) -> Program:
        """A product and a ReLU, or a product and the loss; the second kind has two products."""
        tape = Tape(dtype_bytes=2)
        start = middle = tape.tensor("start", rows * self.width)
        for number in range(2 if kind == 1 else 1):
            middle = ops.linear(tape, f"linear{number}", middle, rows=rows, inner=self.width, width=self.width)
        if kind == max(self.chain):
            ops.loss(tape, "loss", middle)
            tape.run_backward(None)
            return Program(f"kind{kind}", tape.nodes, start, (tape.gradient(start),), 0, tape.num_parameters, 0)
        end = ops.elementwise(tape, "relu", (middle,), ops.RELU)
        tape.run_backward(end)
        outputs = (end, tape.gradient(start))
        return Program(f"kind{kind}", tape.nodes, start, outputs, end.num_bytes, tape.num_parameters, 0)
