"""Entry-point loading of plug-ins; imports no implementation itself.

Groups: ``phaze_opt.strategies``, ``phaze_opt.pruners``, ``phaze_opt.estimators``, ``phaze_opt.trackers``. Built-ins
register through the same groups in pyproject.toml that outside packages use.
"""

from __future__ import annotations

from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points

from phaze_opt.errors import PluginError
from phaze_opt.record.spelling import suggest


class PluginGroup(StrEnum):
    """The entry-point groups."""

    STRATEGIES = "phaze_opt.strategies"
    PRUNERS = "phaze_opt.pruners"
    ESTIMATORS = "phaze_opt.estimators"
    TRACKERS = "phaze_opt.trackers"


def list_plugins(group: PluginGroup) -> tuple[EntryPoint, ...]:
    """All entry points of a group, by name; nothing is imported.

    Raises:
        PluginError: two packages register the same name.
    """
    found = sorted(entry_points(group=group.value), key=lambda entry: entry.name)
    by_name: dict[str, EntryPoint] = {}
    for entry in found:
        other = by_name.setdefault(entry.name, entry)
        if other.value != entry.value:
            both = f"{other.value} and {entry.value}"
            message = f"{group.value}: '{entry.name}' is registered twice, as {both}; uninstall one of the packages"
            raise PluginError(message)
    return tuple(by_name.values())


def load_plugin(group: PluginGroup, name: str) -> object:
    """The object a plug-in's entry point names, instantiated without arguments if it is a class.

    Raises:
        PluginError: no such name (with near misses), or its import or construction fails (with the reason).
    """
    entries = {entry.name: entry for entry in list_plugins(group)}
    if name not in entries:
        message = f"{group.value}: no plug-in is named '{name}'; {suggest(name, entries)}"
        raise PluginError(message)
    entry = entries[name]
    try:
        loaded = entry.load()
        return loaded() if isinstance(loaded, type) else loaded
    except PluginError:
        raise
    except Exception as error:
        message = f"{group.value}: plug-in '{name}' ({entry.value}) fails to load: {type(error).__name__}: {error}"
        raise PluginError(message) from error
