"""Table lookups: a row for each id, or the sum of the rows of a bag."""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.embedding_bag import embedding_bag
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.operator_rule import OperatorCall


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
