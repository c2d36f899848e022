"""Moves: views that cost nothing, parts and splits, joins and gathers that copy, rows of tables."""

from collections.abc import Sequence
from math import prod

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import OperatorKind, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Tape, Tensor, TensorRole
from phaze_opt.graph.traced.normalise.views import PART, SPLIT
from phaze_opt.graph.traced.normalise.vocabulary import SHAPES
from phaze_opt.graph.traced.operator_rule import OperatorCall


class ViewRule:
    """Another shape of the same elements, or the same elements for many: nothing is done."""

    operators = tuple(sorted(SHAPES))

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The tensor itself."""
        del tape
        return (call.tensor(0),)


class PartRule:
    """A part of a tensor at no cost: backward is a part of its gradient."""

    operators = (PART,)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The part."""
        return (ops.view(tape, call.name, call.tensor(0), elements=call.elements, adjoint=None),)


class SplitRule:
    """Parts that cover a tensor once."""

    operators = (SPLIT,)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The parts, each kept on its own."""
        return tuple(split(tape, call.name, call.tensor(0), [prod(shape) for shape in call.results]))


class JoinRule:
    """Tensors copied side by side; their gradients are parts of the result's."""

    operators = ("aten.cat", "aten.stack", "aten.hstack", "aten.vstack")

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The joined tensor."""
        parts = [operand.tensor for operand in call.varying if operand.tensor is not None]
        parts += [
            tape.weight(f"{call.name}.part{number}", operand.parameter_elements)
            for number, operand in enumerate(call.parameters)
        ]
        return (join(tape, call.name, parts, elements=call.elements),)


class CopyRule:
    """Elements picked, repeated, padded or moved: a lane operation for each of the result, and back."""

    operators = (
        "aten.index",
        "aten.index_select",
        "aten.gather",
        "aten.take",
        "aten.roll",
        "aten.flip",
        "aten.pad",
        "aten.constant_pad_nd",
        "aten.reflection_pad1d",
        "aten.reflection_pad2d",
        "aten.replication_pad2d",
        "aten.repeat",
        "aten.repeat_interleave",
        "aten.tile",
        "aten.masked_select",
        "aten.upsample_nearest2d",
        "aten.upsample_bilinear2d",
        "aten._upsample_bilinear2d_aa",
        "aten.pixel_shuffle",
        "aten.channel_shuffle",
        "aten.tril",
        "aten.triu",
        "aten.im2col",
        "aten.cumsum",
        "aten.unfold",
        "aten.as_strided",
        "aten.col2im",
        "aten.grid_sampler",
        "aten.pixel_unshuffle",
        "aten.reflection_pad3d",
        "aten.replication_pad1d",
        "aten.replication_pad3d",
        "aten.upsample_bicubic2d",
        "aten.upsample_linear1d",
        "aten.upsample_nearest1d",
        "aten.upsample_nearest3d",
        "aten.upsample_trilinear3d",
    )

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The copy; of a parameter, a lookup."""
        if call.operand(0).is_parameter:
            return (self._looked_up(tape, call),)
        return (ops.elementwise(tape, call.name, (call.tensor(0),), ops.COPY, elements=call.elements),)

    def _looked_up(self, tape: Tape, call: OperatorCall) -> Tensor:
        size = call.operand(0).parameter_elements
        places = [each.tensor for each in call.varying if each.tensor is not None]
        num_read = call.elements if places else min(size, call.elements)
        table = tape.weight(f"{call.name}.table", size, num_read=num_read)
        return ops.elementwise(
            tape, call.name, places, ops.LOOKUP, elements=call.elements, weights=(table,), is_differentiable=False
        )


class ScatterRule:
    """Elements, the last of the tensors, written into, or added to, a tensor at given places."""

    operators = (
        "aten.index_add",
        "aten.index_put",
        "aten.scatter",
        "aten.scatter_add",
        "aten.index_copy",
        "aten.slice_scatter",
        "aten.select_scatter",
    )

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The tensor with what was written; both get their part of the gradient."""
        given = [operand for operand in call.varying if not operand.is_data]
        tensors = [operand.tensor for operand in given if operand.tensor is not None]
        # What is written may be one tensor many times, as a key that all heads share.
        work = given[-1].elements
        return (ops.elementwise(tape, call.name, tensors, ops.COPY, elements=call.elements, work_elements=work),)


def split(tape: Tape, name: str, tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Parts side by side at no cost; backward their gradients lie side by side."""
    parts = [Tensor(f"{name}.{number}", size, tensor.element_bytes, tensor.role) for number, size in enumerate(sizes)]
    tape.emit(name, OperatorKind.VIEW, Fusibility.OPAQUE, (tensor,), tuple(parts))

    def differentiate() -> None:
        given = [tape.gradient(part) for part in parts]
        whole = tape.add_gradient(tensor, name)
        tape.emit(f"{name}.gradient", OperatorKind.VIEW, Fusibility.OPAQUE, given, (whole,))

    tape.on_backward(differentiate)
    return parts


def join(tape: Tape, name: str, parts: Sequence[Tensor], *, elements: int) -> Tensor:
    """Tensors copied side by side; backward takes parts of the gradient at no cost."""
    result = tape.tensor(name, elements)
    works = (VectorWork(VectorKind.ADD, elements),)
    tape.emit(name, OperatorKind.VECTOR, Fusibility.OPAQUE, parts, (result,), vector_works=works)

    def differentiate() -> None:
        gradient = tape.gradient(result)
        for number, part in enumerate(parts):
            role = TensorRole.WEIGHT_GRADIENT if part.role is TensorRole.WEIGHT else TensorRole.GRADIENT
            piece = Tensor(f"d_{name}.{number}", part.elements, part.element_bytes, role)
            back = f"{name}.gradient{number}"
            tape.emit(back, OperatorKind.VIEW, Fusibility.OPAQUE, (gradient,), (piece,))
            tape.pass_gradient(part, piece)

    tape.on_backward(differentiate)
    return result


class EmbeddingRule:
    """A row of a table for each id."""

    operators = ("aten.embedding",)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """What is read of the table is what is looked up, of a share of its rows that share."""
        table = call.operand(0)
        num_read = -(-call.elements * table.parameter_elements // table.elements)
        ids = [each.tensor for each in call.varying if each.tensor is not None]
        # Places that are constant are looked up again and again: the table is read once.
        num_read = num_read if ids else min(num_read, table.parameter_elements)
        weight = tape.weight(f"{call.name}.table", table.parameter_elements, num_read=num_read)
        result = ops.elementwise(
            tape, call.name, ids, ops.LOOKUP, elements=call.elements, weights=(weight,), is_differentiable=False
        )
        return (result,)


class EmbeddingBagRule:
    """The sum, or mean, of the rows of each bag."""

    operators = ("aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only")

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The bags; counts that the operation gives besides cost nothing."""
        table = call.operand(0)
        rows, width = table.shape[-2], table.shape[-1]
        bags = call.elements // width
        result = embedding_bag(tape, call.name, call.tensor(1), rows=rows, width=width, bags=bags)
        others = [tape.tensor(f"{call.name}.count{number}", 0) for number in range(1, len(call.results))]
        return (result, *others)


def embedding_bag(tape: Tape, name: str, ids: Tensor, *, rows: int, width: int, bags: int) -> Tensor:
    """The sum of the rows that each bag names, [bags, width].

    Backward keeps the ids and writes a gradient for each row that was read, not for the whole table.

    Args:
        tape: what records it.
        name: of the operation and of its result.
        ids: rows to look up, all bags together.
        rows: of the table.
        width: elements of a row.
        bags: results.
    """
    looked_up = ids.elements * width
    table = tape.weight(f"{name}.table", rows * width, num_read=looked_up)
    result = tape.tensor(name, bags * width)
    works = (VectorWork(VectorKind.ADD, looked_up),)
    kind, fusibility = OperatorKind.VECTOR, Fusibility.OPAQUE
    tape.emit(name, kind, fusibility, (ids, table), (result,), vector_works=works)

    def differentiate() -> None:
        given = (ids, tape.gradient(result))
        target = (tape.add_gradient(table, name),)
        tape.emit(f"{name}.gradient", kind, fusibility, given, target, vector_works=works)

    tape.on_backward(differentiate)
    return result
