"""Rooms of the package that are commands too: `search` is a package, and ``po.search(...)`` searches."""

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class CallableRoom(ModuleType):
    """A package that runs the command of its name when it is called.

    `phaze_opt.search` is one object for all who import it, whatever they imported first; so it is the package that has
    to be called, as no function can stand in its place.
    """

    __command__: str
    """Where the function is, as ``module:name``; it is imported at the first call."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """What the function of `phaze_opt.api` of this name returns."""
        return _function(self)(*given, **named)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """By its name: a callable goes to worker processes."""
        return import_module, (self.__name__,)

    @property
    def __signature__(self) -> inspect.Signature:
        """That of the function, for help and completion."""
        return inspect.signature(_function(self))


def _function(room: CallableRoom) -> Any:
    module, _, name = room.__command__.partition(":")
    return getattr(import_module(module), name)


def make_callable(room: str, command: str) -> None:
    """Make a package callable; said in its ``__init__``.

    Args:
        room: its full name.
        command: the function to call, as ``module:name``.
    """
    module = sys.modules[room]
    module.__class__ = CallableRoom
    module.__dict__["__command__"] = command
