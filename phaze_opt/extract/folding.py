"""Runs of a recorded model as one body and a count, where what was recorded of every unit is alike and wired alike.

Two units are alike if their operations, arguments, shapes and the names of their parameters within the unit are the
same one by one, and so is what each takes from the unit before it; all else that they take must be one tensor for all.
A run that is not so stays written out.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from phaze_opt.errors import InputError
from phaze_opt.extract.depth import Run
from phaze_opt.extract.recorded_graph import renamed
from phaze_opt.graph.traced.traced_model import (
    ITERATION,
    TracedBody,
    TracedModel,
    TracedNode,
    TracedRepeat,
    TracedRole,
    TracedTensor,
)

LEAST_OPERATIONS = 4
"""Operations of a unit from which on folding it is worth a body."""
OWN_ROLES = (TracedRole.PARAMETER, TracedRole.BUFFER)


@dataclass(frozen=True, slots=True)
class _Unit:
    """What was recorded of one unit.

    Attributes:
        start: place of its first operation.
        nodes: its operations.
        inputs: tensors of elsewhere that they take, in the order of use.
        own: its parameters and buffers, in the order of their names within it, and constants of its own.
        form: all of it but the names that differ from unit to unit.
    """

    start: int
    nodes: tuple[TracedNode, ...]
    inputs: tuple[str, ...]
    own: tuple[str, ...]
    form: tuple[object, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Tensors that its operations give."""
        return tuple(name for node in self.nodes for name in node.outputs)


def fold(model: TracedModel, runs: Sequence[Run]) -> TracedModel:
    """The model with every run folded that can be.

    Args:
        model: without bodies; of a run, the units that were exported.
        runs: as the modules tell them.

    Raises:
        InputError: a run of which units were left out cannot be folded: the model must be exported whole.
    """
    for run in runs:
        folded = _Folding(model, run).folded()
        if folded is None and len(run.units) < run.count:
            message = f"modules of {run.path} are alike and run different operations; export the model whole"
            raise InputError(message)
        model = folded or model
    return model


class _Folding:
    """One run of a model."""

    def __init__(self, model: TracedModel, run: Run) -> None:
        self._model = model
        self._run = run
        self._tensors = {tensor.id: tensor for tensor in model.tensors}
        self._num_users = Counter(
            name for step in model.steps if isinstance(step, TracedNode) for name in set(step.tensor_ids())
        )

    def folded(self) -> TracedModel | None:
        """The model with the run as a body; nothing if units are not alike."""
        units = self._units()
        is_whole = len(self._run.units) == self._run.count
        if is_whole and sum(len(unit.nodes) for unit in units) < LEAST_OPERATIONS * len(units):
            return None
        if len(units) < 2 or len({unit.form for unit in units}) > 1:
            return None
        carried = self._carried(units)
        if carried is None or not self._is_closed(units, carried):
            return None
        return self._model_with(units, carried)

    def _units(self) -> list[_Unit]:
        """The units, if the operations of each are in a row and follow those of the one before."""
        steps = self._model.steps
        places: list[list[int]] = [[] for _ in self._run.units]
        of_module = {f"{self._run.path}.{name}": index for index, unit in enumerate(self._run.units) for name in unit}
        depth = self._run.path.count(".") + 2
        for place, step in enumerate(steps):
            if isinstance(step, TracedNode):
                index = of_module.get(".".join(step.module.split(".")[:depth]))
                if index is not None:
                    places[index].append(place)
        if not all(places) or sum(places, []) != list(range(places[0][0], places[0][0] + sum(map(len, places)))):
            return []
        return [self._unit(found, index) for index, found in enumerate(places)]

    def _unit(self, places: Sequence[int], index: int) -> _Unit:
        nodes = tuple(step for place in places if isinstance(step := self._model.steps[place], TracedNode))
        own = sorted(self._own(index), key=lambda name: self._within(self._tensors[name].fqn, index))
        own += self._own_constants(nodes)
        given = [name for node in nodes for name in node.outputs]
        known = {*own, *given}
        inputs = tuple(dict.fromkeys(name for node in nodes for name in node.tensor_ids() if name not in known))
        plain = {
            name: f"{kind}{at}"
            for kind, names in (("w", own), ("t", given), ("x", inputs))
            for at, name in enumerate(names)
        }
        form = (
            *(self._form(node, index, plain) for node in nodes),
            *((self._within(self._tensors[name].fqn, index), self._kind(name)) for name in own),
            *(self._kind(name) for name in (*given, *inputs)),
        )
        return _Unit(places[0], nodes, inputs, tuple(own), form)

    def _own(self, index: int) -> list[str]:
        """Parameters and buffers of the modules of a unit."""
        prefixes = tuple(f"{self._run.path}.{name}." for name in self._run.units[index])
        return [each.id for each in self._model.tensors if each.role in OWN_ROLES and each.fqn.startswith(prefixes)]

    def _own_constants(self, nodes: Sequence[TracedNode]) -> list[str]:
        """Constants that no other operations take, in the order of use."""
        used = Counter(name for node in nodes for name in dict.fromkeys(node.tensor_ids()))
        return [
            name
            for name, users in used.items()
            if self._tensors[name].role is TracedRole.CONSTANT and users == self._num_users[name]
        ]

    def _kind(self, name: str) -> tuple[object, ...]:
        tensor = self._tensors[name]
        return tensor.shape, tensor.dtype

    def _form(self, node: TracedNode, index: int, plain: Mapping[str, str]) -> tuple[object, ...]:
        inputs = tuple(renamed(each, plain) for each in node.inputs)
        attrs = tuple((key, renamed(each, plain)) for key, each in node.attrs)
        outputs = tuple(plain[name] for name in node.outputs)
        return node.op, inputs, attrs, outputs, self._within(node.module, index)

    def _within(self, name: str, index: int) -> str:
        """A name of a module of a unit as it is in the body."""
        below = name.removeprefix(f"{self._run.path}.")
        own, dot, rest = below.partition(".")
        unit = self._run.units[index]
        if below == name or own not in unit:
            return name
        place = f":{unit.index(own)}" if self._run.period > 1 else ""
        return f"{self._run.path}.{ITERATION}{place}{dot}{rest}"

    def _carried(self, units: Sequence[_Unit]) -> dict[int, int] | None:
        """Input by the position of the result of the unit before that it takes; all other inputs must stay."""
        carried: dict[int, int] = {}
        for before, unit in zip(units, units[1:], strict=False):
            given = before.outputs
            now = {at: given.index(name) for at, name in enumerate(unit.inputs) if name in given}
            stays = all(name == before.inputs[at] for at, name in enumerate(unit.inputs) if at not in now)
            if not stays or (carried and now != carried):
                return None
            carried = now
        return carried or None

    def _is_closed(self, units: Sequence[_Unit], carried: Mapping[int, int]) -> bool:
        """Whether what a unit gives goes to the next one only; the last one's goes anywhere, as what runs give."""
        del carried
        homes = {name: index for index, unit in enumerate(units) for name in unit.outputs}
        last = len(units) - 1
        users = [(index, name) for index, unit in enumerate(units) for name in unit.inputs]
        if any(name in homes and homes[name] != index - 1 for index, name in users):
            return False
        outside = {*self._model.outputs, self._model.loss}
        inside = {id(node) for unit in units for node in unit.nodes}
        for step in self._model.steps:
            if id(step) not in inside:
                outside.update(step.inputs if isinstance(step, TracedRepeat) else step.tensor_ids())
        own = {name for unit in units for name in unit.own}
        return not any(homes.get(name, last) != last or name in own for name in outside)

    def _model_with(self, units: Sequence[_Unit], carried: Mapping[int, int]) -> TracedModel:
        first, last = units[0], units[-1]
        used = set(self._used_after(last))
        results = [at for at, name in enumerate(last.outputs) if name in used or at in carried.values()]
        body = self._body(first, results)
        pairs = tuple((results.index(source), target) for target, source in sorted(carried.items()))
        outputs = tuple(last.outputs[at] for at in results)
        number = self._run.first // self._run.period
        repeat = TracedRepeat(body.name, self._run.count, first.inputs, outputs, pairs, number)
        gone = {name for unit in units for name in (*unit.outputs, *unit.own)} - set(outputs)
        steps = self._model.steps
        end = last.start + len(last.nodes)
        return TracedModel(
            name=self._model.name,
            producer=self._model.producer,
            symbols=self._model.symbols,
            tensors=tuple(each for each in self._model.tensors if each.id not in gone),
            steps=(*steps[: first.start], repeat, *steps[end:]),
            outputs=self._model.outputs,
            bodies=(*self._model.bodies, body),
            loss=self._model.loss,
            num_positions=self._model.num_positions,
            max_sequence_length=self._model.max_sequence_length,
            notes=self._model.notes,
        )

    def _used_after(self, last: _Unit) -> Iterator[str]:
        yield from (*self._model.outputs, self._model.loss)
        for step in self._model.steps[last.start + len(last.nodes) :]:
            yield from step.inputs if isinstance(step, TracedRepeat) else step.tensor_ids()

    def _body(self, unit: _Unit, results: Sequence[int]) -> TracedBody:
        inputs = tuple(
            TracedTensor(name, self._tensors[name].shape, self._tensors[name].dtype, TracedRole.INPUT)
            for name in unit.inputs
        )
        own = tuple(self._renamed(self._tensors[name]) for name in unit.own)
        given = tuple(self._tensors[name] for name in unit.outputs)
        nodes = tuple(
            TracedNode(node.op, node.inputs, node.outputs, node.attrs, self._within(node.module, 0))
            for node in unit.nodes
        )
        name = f"{self._run.path}.{self._run.first}".replace("/", "_")
        return TracedBody(name, unit.inputs, tuple(unit.outputs[at] for at in results), (*inputs, *own, *given), nodes)

    def _renamed(self, tensor: TracedTensor) -> TracedTensor:
        return TracedTensor(tensor.id, tensor.shape, tensor.dtype, tensor.role, self._within(tensor.fqn, 0))
