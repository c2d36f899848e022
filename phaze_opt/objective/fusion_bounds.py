"""What layers take at least in any groups: every operator as fast as in the best place it could have in one.

A group may keep the layer's input, its output where nobody needs it later, and its weights in a reserve, and run in
parts (`objective.layer_fusion`). Each such way of a layer is a graph of the same shape. For each number of parts, and
for weights that stay or do not, an operator is taken at the least of its latency and of its traffic over all ways for
which the chip has room, each with the buffer that the layer's own tensors leave: a group's reserve holds these at
least, and more buffer slows nothing down. Makespans never fall when an operator takes longer, and parts one after the
other take no less than one schedule of operators as long as all parts together. So the least of what bounds these
problems bounds every layer in every group (decision 0312).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from phaze_opt.cost.compiled_step import BACKWARD, FORWARD, CompiledStep
from phaze_opt.errors import InputError
from phaze_opt.estimate.protocol import Estimates, Estimator
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.operator import Operator, OperatorGraph
from phaze_opt.graph.residency import with_reserve
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.objective.compile import CompiledModel, CompiledPhase, Prepare
from phaze_opt.objective.layer_fusion import is_kept, layers_in_parts, parts_of
from phaze_opt.objective.scenario import OWN_ESTIMATORS, Scenario
from phaze_opt.record.arrays import Floats, Ints

_ALWAYS = -1
_Choice = tuple[tuple[tuple[int, int], ...], int]
"""Places of operators in the order of their first use, and how often each would run; and the choice that stands in on
chips with room for none of them, `_ALWAYS` where there is room."""
_Alternatives = tuple[tuple[tuple[float, list[int]], ...], ...]
"""What a phase may be: shares, and choices of all its operators whose makespans these are of."""
_Known = dict[tuple[Operator, int], int]
"""Those places, by operator and bytes of the buffer that are reserved while it runs."""


def check_has_bounds(scenario: Scenario) -> None:
    """Refuse fused layers where nothing bounds them: that takes an estimator by which more buffer slows nothing down.

    Raises:
        InputError: the estimator is not known to be one.
    """
    if scenario.layer_fusion and scenario.estimator not in OWN_ESTIMATORS:
        message = (
            f"fused layers are bounded where more buffer slows nothing down, which is not known of the estimator "
            f"'{scenario.estimator}'; give {' or '.join(sorted(OWN_ESTIMATORS))}, or leave it out"
        )
        raise InputError(message, source="--layer-fusion")


@dataclass(frozen=True, slots=True, eq=False)
class FreedModel:
    """A model whose layers of units are as fast as any group lets their operators be.

    Attributes:
        compiled: the same scheduling problems; columns of the units' forward and backward passes lie behind those of
            its operators, one for each choice of ways.
        reserved: operators as they run in groups, by the bytes of the buffer that are reserved then.
        columns: operators that a choice is among, one choice after the other, shape (ways,): those of ``compiled``,
            then those of ``reserved``.
        times: how often each of them runs, shape (ways,).
        starts: where each choice begins in ``columns``, shape (choices,).
        otherwise: the choice that stands in for each on chips without room for any of its operators, shape (choices,).
    """

    compiled: CompiledModel
    reserved: tuple[tuple[int, Sequence[Operator]], ...]
    columns: Ints
    times: Floats
    starts: Ints
    otherwise: Ints

    def estimates(self, estimator: Estimator, chips: AcceleratorTable) -> Estimates:
        """With the least of every choice behind the estimates of the operators; least energy bounds nothing."""
        known = estimator.estimate(self.compiled.operators, chips)
        if not len(self.starts):
            return known
        grouped = [_estimate_left(estimator, operators, chips, reserve) for reserve, operators in self.reserved]
        least = []
        for name in Estimates.__slots__:
            values = np.concatenate([getattr(each, name) for each in (known, *grouped)], axis=1)
            of_choices = np.minimum.reduceat(values[:, self.columns] * self.times, self.starts, axis=1)
            of_choices = np.where(np.isinf(of_choices), of_choices[:, self.otherwise], of_choices)
            least.append(np.ascontiguousarray(np.concatenate([getattr(known, name), of_choices], axis=1)))
        return Estimates(*least)


def _estimate_left(
    estimator: Estimator, operators: Sequence[Operator], chips: AcceleratorTable, reserve_bytes: int
) -> Estimates:
    """Estimates where so much of the buffer is reserved; infinite on chips that have no more than that."""
    has_room = chips.glb_bytes > reserve_bytes
    left = replace(chips, glb_bytes=np.where(has_room, chips.glb_bytes - reserve_bytes, chips.glb_bytes))
    found = estimator.estimate(operators, left)
    rows = has_room[:, None]
    return Estimates(*(np.where(rows, getattr(found, name), np.inf) for name in Estimates.__slots__))


def free_model(compiled: CompiledModel, steps: Sequence[CompiledStep], *, prepare: Prepare) -> FreedModel:
    """A model of full plans as groups of its layers could run at best.

    Args:
        compiled: of ``steps``.
        steps: one for each of its options.
        prepare: what the estimator does to operators once.
    """
    num_known = len(compiled.operators)
    known: _Known = {(operator, 0): place for place, operator in enumerate(compiled.operators)}
    choices: dict[_Choice, int] = {}
    chosen = [_choose(step, known, choices) for step in steps]
    options = tuple(
        replace(option, phases=_with_columns(option.phases, own, num_known))
        for option, own in zip(compiled.options, chosen, strict=True)
    )
    grouped: dict[int, list[Operator]] = {}
    places: list[tuple[int, int]] = []
    for operator, reserve in list(known)[num_known:]:
        own = grouped.setdefault(reserve, [])
        places.append((reserve, len(own)))
        own.append(operator)
    firsts = dict(zip(grouped, np.cumsum([num_known, *map(len, grouped.values())]).tolist(), strict=False))
    column_of = [*range(num_known), *(firsts[reserve] + place for reserve, place in places)]
    ways = [way for among, _ in choices for way in among]
    return FreedModel(
        replace(compiled, options=options),
        tuple((reserve, prepare(own)) for reserve, own in grouped.items()),
        np.array([column_of[place] for place, _ in ways], dtype=np.int64),
        np.array([times for _, times in ways], dtype=np.float64),
        np.cumsum([0, *(len(among) for among, _ in choices)], dtype=np.int64)[:-1],
        np.array([own if other == _ALWAYS else other for own, (_, other) in enumerate(choices)], dtype=np.int64),
    )


def _choose(step: CompiledStep, known: _Known, choices: dict[_Choice, int]) -> dict[tuple[int, int], _Alternatives]:
    """By layer of a unit and phase its alternatives as choices of its operators; new operators and choices are added.

    So many parts read the weights once each; or the first reads them for all, and takes no less than one that does.
    """
    places = sorted({kind for unit in step.graph.cut.units for kind in unit})
    found: dict[tuple[int, int], _Alternatives] = {}
    for place, phase in product(places, (FORWARD, BACKWARD)):
        alternatives: list[tuple[tuple[float, list[int]], ...]] = []
        for num_parts in parts_of(step, step.graph.layers[place : place + 1], phase):
            layer = layers_in_parts(step, num_parts)[place]
            reading = _choices_of(_ways(layer, phase, num_parts, has_weights=False), known, choices)
            alternatives.append(((1.0, reading),))
            if num_parts > 1:
                held = _choices_of(_ways(layer, phase, num_parts, has_weights=True), known, choices, reading)
                alternatives.append(((1.0 / num_parts, reading), (1.0 - 1.0 / num_parts, held)))
        found[place, phase] = tuple(alternatives)
    return found


@dataclass(frozen=True, slots=True)
class _Way:
    """How a layer may run a phase in a group: in so many parts, each with this graph, and what it reserves itself."""

    num_parts: int
    graph: OperatorGraph
    reserve_bytes: int


def _ways(layer: LayerGraph, phase: int, num_parts: int, *, has_weights: bool) -> Iterator[_Way]:
    """All of them, with weights on chip or read; the first without has nothing on chip."""
    graph, border = (layer.forward, layer.forward_border)
    if phase == BACKWARD:
        graph, border = layer.backward, layer.backward_border
    spares = (False, True) if phase == BACKWARD or not is_kept(layer) else (False,)
    for has_input, spares_output in product((False, True), spares):
        kept = {"has_input": has_input, "spares_output": spares_output, "has_weights": has_weights}
        tensors = [border.entering] * has_input + [border.leaving] * spares_output
        reserve_bytes = sum(each.num_bytes for each in tensors if each is not None)
        reserve_bytes += has_weights * sum(each.num_bytes for each in border.weights)
        yield _Way(num_parts, with_reserve(graph, border, **kept) if any(kept.values()) else graph, reserve_bytes)


def _choices_of(
    ways: Iterator[_Way], known: _Known, choices: dict[_Choice, int], otherwise: Sequence[int] = ()
) -> list[int]:
    """Of each operator its choice among ways; ``otherwise`` where a chip has room for none."""
    listed = tuple(ways)
    found = []
    for number, operators in enumerate(zip(*(way.graph.operators for way in listed), strict=True)):
        among = {
            (known.setdefault((operator, way.reserve_bytes), len(known)), way.num_parts)
            for operator, way in zip(operators, listed, strict=True)
        }
        key = tuple(sorted(among)), otherwise[number] if otherwise else _ALWAYS
        found.append(choices.setdefault(key, len(choices)))
    return found


def _with_columns(
    phases: tuple[tuple[CompiledPhase, ...], ...], chosen: dict[tuple[int, int], _Alternatives], first: int
) -> tuple[tuple[CompiledPhase, ...], ...]:
    """Phases whose operators are choices, which have the columns from ``first`` on; others stay."""

    def freed(phase: CompiledPhase, alternatives: _Alternatives) -> CompiledPhase:
        in_columns = tuple(
            tuple((share, first + np.array(own, dtype=np.int64)) for share, own in each) for each in alternatives
        )
        return replace(phase, columns=in_columns[0][0][1], alternatives=in_columns if len(in_columns) > 1 else ())

    return tuple(
        tuple(
            freed(each, chosen[row, column]) if (row, column) in chosen else each for column, each in enumerate(layer)
        )
        for row, layer in enumerate(phases)
    )
