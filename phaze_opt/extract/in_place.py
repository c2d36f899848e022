"""Operations that change a tensor in place, as operations that give a new one, which is read in place of the old.

A change of a slice of a tensor makes a new tensor of the whole. A tensor that was changed through another view of it
has no value that can be written down; it may only not be read again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from phaze_opt.errors import InputError
from phaze_opt.graph.traced.traced_model import Argument, TensorRef

VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        *("alias", "chunk", "detach", "expand", "flatten", "narrow", "permute", "reshape", "select", "slice", "split"),
        *("split_with_sizes", "squeeze", "t", "transpose", "unbind", "unflatten", "unsqueeze", "view"),
    )
)
"""Operations whose results may share memory with their first argument."""
SCATTERS = {"aten.slice.Tensor": "aten.slice_scatter.default", "aten.select.int": "aten.select_scatter.default"}
"""What puts a part back where a view took it from."""


@dataclass(frozen=True, slots=True)
class SharedView:
    """How a tensor was taken from another: the operation and its arguments but the first."""

    of: str
    op: str
    arguments: tuple[Argument, ...]


@dataclass(slots=True)
class Storage:
    """What tensors have become.

    Attributes:
        put_back: records an operation that puts a changed part into a whole: takes its name, the whole, the part and
            the arguments of the view, and gives the new whole.
        depends: whether a tensor comes of a parameter or an input; the values of others do not count.
    """

    put_back: Callable[[str, str, str, tuple[Argument, ...]], str]
    depends: Callable[[str], bool]
    _views: dict[str, SharedView] = field(default_factory=dict)
    _changed: dict[str, str] = field(default_factory=dict)
    _stale: dict[str, str] = field(default_factory=dict)

    def see(self, op: str, inputs: Sequence[Argument], outputs: Sequence[str]) -> None:
        """Remember an operation whose results may be views."""
        if op.rpartition(".")[0] in VIEWS and isinstance(inputs[0], TensorRef):
            view = SharedView(inputs[0].id, op, tuple(inputs[1:]))
            self._views |= dict.fromkeys(outputs, view)

    def change(self, old: str, new: str, *, place: str) -> None:
        """A tensor was changed in place: ``new`` is what it is now; ``place`` is named if that cannot be followed."""
        self._changed[old] = new
        for name, view in self._views.items():
            if view.of == old and name not in self._changed and self.depends(name):
                self._stale[name] = place
        view_of_old = self._views.get(old)
        if view_of_old is None:
            return
        whole = self.latest(view_of_old.of)
        scatter = SCATTERS.get(view_of_old.op)
        if scatter is not None:
            self.change(whole, self.put_back(scatter, whole, new, view_of_old.arguments), place=place)
        elif self.depends(whole) or self.depends(new):
            self._stale[whole] = place

    def latest(self, name: str) -> str:
        """The tensor that now is what another was.

        Raises:
            InputError: it was changed through a view.
        """
        while name in self._changed:
            name = self._changed[name]
        if name in self._stale:
            message = f"{self._stale[name]} changes a tensor in place through another shape of it, and it is read again"
            sentence = f"{message}; write that part of the model so that it makes a new tensor"
            raise InputError(sentence)
        return name
