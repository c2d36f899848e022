"""Embedding bags on a `Tape`: rows of a table looked up and summed, a bag of them for each result."""

from phaze_opt.graph.operator import OperatorKind, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Tape, Tensor


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
