"""Sizes as polynomials: the same model exported at several sizes, whose graphs differ in numbers only.

One way for every model, where symbolic shapes of an export hold for some: a number is one of the forms c, c*m and
c0 + c1*m for a monomial m of micro-batch b and sequence s, and the simplest form that all exports obey is it. Two
unknowns meet four exports (three without a sequence), so that a form that does not hold is seen.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain

from phaze_opt.errors import InputError
from phaze_opt.extract.recorded_graph import RecordedGraph
from phaze_opt.graph.traced.polynomial import Monomial, Polynomial
from phaze_opt.graph.traced.traced_model import BATCH, SEQUENCE, Argument, TensorRef, TracedNode, TracedTensor

MONOMIALS: tuple[Monomial, ...] = (
    (BATCH,),
    (SEQUENCE,),
    (BATCH, SEQUENCE),
    (SEQUENCE, SEQUENCE),
    (BATCH, SEQUENCE, SEQUENCE),
)
_SHORT, _LONG = 24, 40
"""Sequences of the small exports."""


def sample_sizes(symbols: Mapping[str, int], *, max_sequence_length: int = 0) -> Iterator[tuple[dict[str, int], ...]]:
    """Values of the symbols at which a model may be exported, one choice after the other.

    Short sequences cost least. Where what a model does depends on its sequence (chunks, windows), sequences of its own
    order do; the last export is at the default sequence in both.

    Args:
        symbols: with their defaults.
        max_sequence_length: longest sequence of the model; 0 if any.
    """
    if SEQUENCE not in symbols:
        yield tuple({BATCH: size} for size in (2, 3, 5))
        return
    last = symbols[SEQUENCE]
    longest = max_sequence_length or max(4 * _LONG, last)
    short = (_SHORT, _LONG) if longest > 2 * _LONG else (max(2, longest // 3), max(3, longest // 2))
    for first, second in (short, (last // 2, last - last // 4)):
        if last not in (first, second) and 1 < first < second:
            pairs = ((2, first), (3, first), (2, second), (5, last))
            yield tuple({BATCH: batch, SEQUENCE: sequence} for batch, sequence in pairs)


def fit_sizes(
    graphs: Sequence[RecordedGraph], values: Sequence[Mapping[str, int]]
) -> tuple[tuple[TracedTensor, ...], tuple[TracedNode, ...]]:
    """Tensors and operations of a model, from its graphs at several sizes.

    Args:
        graphs: one an export; the first gives the names.
        values: of the symbols, one an export.

    Raises:
        InputError: the graphs differ in more than numbers, or a number obeys no form.
    """
    fit = _Fit(graphs, values)
    nodes = tuple(fit.node(rows) for rows in zip(*(graph.nodes for graph in graphs), strict=True))
    return tuple(fit.tensors()), nodes


class _Fit:
    """Names of the first graph for those of the others, and forms that were found."""

    def __init__(self, graphs: Sequence[RecordedGraph], values: Sequence[Mapping[str, int]]) -> None:
        self._graphs = graphs
        self._values = values
        self._found: dict[tuple[int, ...], Polynomial] = {}
        lengths = sorted({len(graph.nodes) for graph in graphs})
        if len(lengths) > 1:
            sentence = f"{lengths[0]} operations at some sizes, {lengths[-1]} at others"
            raise self._differ(sentence)
        self._names = [self._matching(graph) for graph in graphs]

    def _matching(self, graph: RecordedGraph) -> dict[str, str]:
        """Ids of the first graph by those of another: placeholders by name, results by their operation."""
        names = {name: name for name in graph.tensors}
        for ours, theirs in zip(self._graphs[0].nodes, graph.nodes, strict=True):
            if (ours.op, len(ours.outputs)) != (theirs.op, len(theirs.outputs)):
                sentence = f"{ours.op} in module '{ours.module}' at some sizes, {theirs.op} at others"
                raise self._differ(sentence)
            names |= dict(zip(theirs.outputs, ours.outputs, strict=True))
            names |= dict(zip(theirs.tensor_ids(), ours.tensor_ids(), strict=False))
        return names

    def tensors(self) -> Iterator[TracedTensor]:
        """Tensors of the first graph, with their sizes as polynomials."""
        inverse = [{ours: theirs for theirs, ours in names.items()} for names in self._names]
        for name, first in self._graphs[0].tensors.items():
            rows = [graph.tensors[back[name]].shape for graph, back in zip(self._graphs, inverse, strict=True)]
            if len({len(shape) for shape in rows}) > 1:
                sentence = f"tensor {name} of {len(rows[0])} axes at some sizes, of others at others"
                raise self._differ(sentence)
            shape = tuple(self.size(numbers) for numbers in zip(*rows, strict=True))
            yield TracedTensor(name, shape, first.dtype, first.role, first.fqn)

    def node(self, rows: Sequence[TracedNode]) -> TracedNode:
        """An operation, from the same one of every graph."""
        first = rows[0]
        place = f"{first.op} in module '{first.module}'"
        inputs = self._arguments([row.inputs for row in rows], place)
        attrs = self._arguments([tuple(chain.from_iterable(row.attrs)) for row in rows], place)
        named = tuple((str(attrs[index]), attrs[index + 1]) for index in range(0, len(attrs), 2))
        return TracedNode(first.op, inputs, first.outputs, named, first.module)

    def _arguments(self, rows: Sequence[tuple[Argument, ...]], place: str) -> tuple[Argument, ...]:
        if len({len(row) for row in rows}) > 1:
            sentence = f"{place} with another number of arguments"
            raise self._differ(sentence)
        return tuple(self._argument(values, place) for values in zip(*rows, strict=True))

    def _argument(self, values: Sequence[Argument], place: str) -> Argument:
        first = values[0]
        if isinstance(first, TensorRef):
            ids = {
                names.get(each.id)
                for each, names in zip(values, self._names, strict=True)
                if isinstance(each, TensorRef)
            }
            if ids != {first.id} or not all(isinstance(each, TensorRef) for each in values):
                sentence = f"{place} with other tensors"
                raise self._differ(sentence)
            return first
        if isinstance(first, tuple):
            return self._arguments([each if isinstance(each, tuple) else (each,) for each in values], place)
        if all(each == first for each in values):
            return first
        if all(isinstance(each, int) and not isinstance(each, bool) for each in values):
            return self.size(tuple(each for each in values if isinstance(each, int)))
        sentence = f"{place} with {first!r} at some sizes, with {values[-1]!r} at others"
        raise self._differ(sentence)

    def size(self, numbers: tuple[int, ...]) -> Polynomial:
        """The simplest form of a number that every export obeys."""
        if numbers not in self._found:
            self._found[numbers] = self._form(numbers)
        return self._found[numbers]

    def _form(self, numbers: tuple[int, ...]) -> Polynomial:
        if len(set(numbers)) == 1:
            return Polynomial.constant(numbers[0])
        for solve in (_multiple, _affine):
            for monomial in MONOMIALS:
                powers = [_value(monomial, values) for values in self._values]
                found = solve(monomial, powers, numbers) if 0 not in powers and len(set(powers)) > 1 else None
                if found is not None:
                    return found
        sizes = " and ".join(str(dict(values)) for values in self._values)
        message = f"a size of the model is {', '.join(map(str, numbers))} at {sizes}, which is no polynomial in them"
        sentence = f"{message}; give the sequence a fixed length (--input with numbers alone)"
        raise InputError(sentence)

    def _differ(self, what: str) -> InputError:
        message = f"the model runs other operations at other sizes: {what}"
        return InputError(f"{message}; give the sequence a fixed length (--input with numbers alone)")


def _value(monomial: Monomial, values: Mapping[str, int]) -> int:
    product = 1
    for symbol in monomial:
        product *= values.get(symbol, 0)
    return product


def _multiple(monomial: Monomial, powers: Sequence[int], numbers: Sequence[int]) -> Polynomial | None:
    """``c * m``, if all numbers are that."""
    factor = Fraction(numbers[0], powers[0])
    holds = all(factor * power == number for power, number in zip(powers, numbers, strict=True))
    return Polynomial.of({monomial: factor}) if holds else None


def _affine(monomial: Monomial, powers: Sequence[int], numbers: Sequence[int]) -> Polynomial | None:
    """``c0 + c1 * m``, if all numbers are that."""
    other = next(index for index, power in enumerate(powers) if power != powers[0])
    slope = Fraction(numbers[other] - numbers[0], powers[other] - powers[0])
    start = numbers[0] - slope * powers[0]
    holds = all(start + slope * power == number for power, number in zip(powers, numbers, strict=True))
    return Polynomial.of({(): start, monomial: slope}) if holds else None
