"""One transformer block: its attentions and its MLP, normalised wherever its kind does."""

from collections.abc import Callable
from dataclasses import dataclass

from phaze_opt.graph import operations as ops
from phaze_opt.graph.attention import record_attention
from phaze_opt.graph.mlp import record_experts, record_mlp
from phaze_opt.graph.program import Program, Tape, Tensor, TensorRole
from phaze_opt.graph.sharding import Sharding
from phaze_opt.workload.block_spec import AttentionSpec, BlockSpec, ExpertsSpec, MlpSpec, NormPlacement, NormSpec


def record_block(sharding: Sharding, spec: BlockSpec, *, name: str, hands_on: bool = True) -> Program:
    """Forward and backward of one block on one device.

    Args:
        sharding: what a device has of it.
        spec: the block.
        name: of the program.
        hands_on: whether a block behind it reads the encoder's output too.
    """
    tape = Tape(dtype_bytes=sharding.training.dtype_bytes)
    start = tape.tensor("block_input", sharding.outside_tokens * spec.hidden_size)
    recorder = _Recorder(tape, sharding, spec)
    source, entered = recorder.encoder_output() if spec.cross_attention is not None else (None, None)
    if source is not None and hands_on:
        later = Tensor(f"d_{source.name}_later", source.elements, source.element_bytes, TensorRole.GRADIENT)
        tape.pass_gradient(source, later)
    end = recorder.side_by_side(start) if spec.placement.is_parallel else recorder.one_by_one(start, entered)
    tape.run_backward(end)
    # What the next block needs besides passes through: the encoder's output, and its gradient back.
    passing = () if source is None else (source,)
    # Sums of gradients are nodes, so they come before the nodes are read.
    gradients = [tape.gradient(tensor) for tensor in (start, *passing)]
    return Program(
        name=name,
        nodes=tape.nodes,
        input=start,
        outputs=(end, *gradients),
        output_bytes=end.num_bytes + sum(tensor.num_bytes for tensor in passing if hands_on),
        num_parameters=tape.num_parameters,
        num_tied_parameters=0,
        num_expert_parameters=tape.num_expert_parameters,
        passing=passing,
    )


def record_norm(tape: Tape, name: str, tensor: Tensor, spec: NormSpec) -> Tensor:
    """Normalise over the hidden size."""
    weights = (tape.weight(f"{name}.weight", spec.num_parameters),) if spec.num_parameters else ()
    return ops.elementwise(tape, name, (tensor,), ops.NORM, weights=weights)


@dataclass(frozen=True, slots=True)
class _Recorder:
    """Records the parts of one kind of block on a tape."""

    tape: Tape
    sharding: Sharding
    spec: BlockSpec

    def encoder_output(self) -> tuple[Tensor, Tensor]:
        """The encoder's output as one device holds it between regions, and gathered for this block's products."""
        held = self.tape.tensor("encoder_output", self.sharding.outside_source_tokens * self.spec.hidden_size)
        length = self.sharding.at_source()
        return held, length.enter(self.tape, "encoder_enter", held, channels=self.spec.hidden_size)

    def one_by_one(self, start: Tensor, source: Tensor | None) -> Tensor:
        """Attention, cross-attention and MLP, each with a residual."""
        end = self._half(start, "attention", lambda inner: self._attention(self.spec.attention, "attention", inner))
        cross = self.spec.cross_attention
        if cross is not None:
            end = self._half(end, "cross_attention", lambda inner: self._attention(cross, "cross", inner, source))
        return self._half(end, "mlp", self._mlp)

    def _half(self, start: Tensor, half: str, record: Callable[[Tensor], Tensor]) -> Tensor:
        """One of them between its norms."""
        tape, spec, norm = self.tape, self.spec, f"{half}_norm"
        inner = record_norm(tape, norm, start, spec.norm) if spec.placement.has_first else start
        inner = record(inner)
        if spec.placement.has_branch_end:
            inner = record_norm(tape, f"{half}_end_norm", inner, spec.norm)
        end = self._residual(half, inner, start)
        return record_norm(tape, norm, end, spec.norm) if spec.placement is NormPlacement.AFTER else end

    def _residual(self, half: str, inner: Tensor, start: Tensor) -> Tensor:
        """Drop and scale what was made, and add it."""
        if self.spec.has_dropout:
            inner = ops.dropout(self.tape, f"{half}_dropout", inner)
        if self.spec.has_branch_scale:
            inner = ops.elementwise(self.tape, f"{half}_scale", (inner,), ops.SCALE)
        return ops.add(self.tape, f"{half}_residual", inner, start)

    def side_by_side(self, start: Tensor) -> Tensor:
        """Attention and MLP of the same input: their partial sums are added before one reduction over the group."""
        tape, sharding, spec, hidden = self.tape, self.sharding, self.spec, self.spec.hidden_size
        names = ("norm",) if spec.placement is NormPlacement.SHARED else ("attention_norm", "mlp_norm")
        normed = [record_norm(tape, name, start, spec.norm) for name in names]
        entered = [
            sharding.enter(tape, f"{name.removesuffix('norm')}enter", each, channels=hidden)
            for name, each in zip(names, normed, strict=True)
        ]
        attended, mlp = record_attention(tape, sharding, spec.attention, entered[0]), spec.dense_mlps[0]
        given = entered[-1]
        inner = ops.add(tape, "branches_sum", record_mlp(tape, sharding, mlp, given), attended)
        inner = sharding.leave(tape, "branches_leave", inner, channels=hidden)
        for name, has_bias in (("attention", spec.attention.has_output_bias), ("mlp", mlp.has_bias)):
            if has_bias:
                inner = ops.bias(tape, f"{name}_output_bias", (inner,), size=hidden)[0]
        return self._residual("branches", inner, start)

    def _attention(self, spec: AttentionSpec, half: str, inner: Tensor, source: Tensor | None = None) -> Tensor:
        """An attention, reduced over the group, with the bias of its output."""
        if spec.latent is None:
            inner = self.sharding.enter(self.tape, f"{half}_enter", inner, channels=spec.hidden_size)
        inner = record_attention(self.tape, self.sharding, spec, inner, source=source)
        return self._reduced(half, inner, has_bias=spec.has_output_bias)

    def _reduced(self, half: str, inner: Tensor, *, has_bias: bool) -> Tensor:
        """The sum over the group, and the bias, which comes after it, else every device would add it."""
        hidden = self.spec.hidden_size
        inner = self.sharding.leave(self.tape, f"{half}_leave", inner, channels=hidden)
        return ops.bias(self.tape, f"{half}_output_bias", (inner,), size=hidden)[0] if has_bias else inner

    def _mlp(self, inner: Tensor) -> Tensor:
        """The MLP, dense or experts, as one device holds its output between regions."""
        spec = self.spec.mlp
        if isinstance(spec, ExpertsSpec):
            return record_experts(self.tape, self.sharding, spec, inner)
        return self._dense(spec, inner)

    def _dense(self, spec: MlpSpec, inner: Tensor) -> Tensor:
        inner = self.sharding.enter(self.tape, "mlp_enter", inner, channels=self.spec.hidden_size)
        inner = record_mlp(self.tape, self.sharding, spec, inner)
        return self._reduced("mlp", inner, has_bias=spec.has_bias)
