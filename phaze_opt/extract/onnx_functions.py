"""Functions that an ONNX file defines for itself: counted before they are put in the places of their calls."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import shorten

MAX_NODES = 20_000
"""Operators of a graph with all functions in place."""
MAX_BYTES = 512 << 20
"""Of the operators of functions, in place."""
MAX_CALLS = 100
"""Functions that call one another in a row."""
Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def put_in_place(proto: Any, *, source: str) -> Any:
    """The model with its functions in the places of their calls.

    Args:
        proto: of the file.
        source: the file, for errors.

    Raises:
        InputError: too many operators, functions that call themselves, or what the library does not take.
    """
    functions = {(each.domain, each.name, each.overload): each for each in proto.functions}
    load = _Counted(functions, source).load(proto.graph.node, ())
    if load.operators > MAX_NODES or load.num_bytes > MAX_BYTES:
        message = f"holds {load.operators:,} operators and {load.num_bytes >> 20:,} MiB with its functions in place"
        sentence = f"{message}; at most {MAX_NODES:,} and {MAX_BYTES >> 20} MiB can be read"
        raise InputError(sentence, source=source)
    if not functions:
        return proto
    from onnx import inliner

    try:
        return inliner.inline_local_functions(proto)
    except Exception as error:  # noqa: BLE001 - the library's own errors
        message = f"has functions that cannot be put in place ({' '.join(str(error).split())[:150]})"
        sentence = f"{message}; give a model that checks"
        raise InputError(sentence, source=source) from error


@dataclass(frozen=True, slots=True)
class _Load:
    """Operators, and bytes of those of functions, each as often as it is called."""

    operators: int = 0
    num_bytes: int = 0


class _Counted:
    """Operators of every function, those of the functions that it calls included; nothing is put in place for it."""

    def __init__(self, functions: Mapping[Key, Any], source: str) -> None:
        self._functions = functions
        self._source = source
        self._loads: dict[Key, _Load] = {}

    def load(self, nodes: Any, above: tuple[Key, ...]) -> _Load:
        """That of some nodes, of which the functions ``above`` are being counted."""
        operators = num_bytes = 0
        for node in _all_nodes(nodes):
            key = (node.domain, node.op_type, getattr(node, "overload", ""))
            own = self._of(key, above) if key in self._functions else _Load(1, node.ByteSize() if above else 0)
            operators, num_bytes = operators + own.operators, num_bytes + own.num_bytes
        return _Load(operators, num_bytes)

    def _of(self, key: Key, above: tuple[Key, ...]) -> _Load:
        if key in above:
            message = f"function {shorten(key[1])} calls itself; give a model that checks"
            raise InputError(message, source=self._source)
        if len(above) >= MAX_CALLS:
            message = f"has more than {MAX_CALLS} functions that call one another in a row; give a flatter model"
            raise InputError(message, source=self._source)
        if key not in self._loads:
            self._loads[key] = self.load(self._functions[key].node, (*above, key))
        return self._loads[key]


def _all_nodes(nodes: Any) -> Iterator[Any]:
    """Nodes, and those of graphs that they hold."""
    waiting = [nodes]
    while waiting:
        for node in waiting.pop():
            yield node
            for attribute in node.attribute:
                waiting += [attribute.g.node] if attribute.HasField("g") else []
                waiting += [graph.node for graph in attribute.graphs]
