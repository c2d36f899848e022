"""Entry-point loading of plug-ins; imports no implementation itself.

Groups: ``phaze_opt.strategies``, ``phaze_opt.pruners``, ``phaze_opt.estimators``, ``phaze_opt.trackers``,
``phaze_opt.operators``. Built-ins register through the same groups in pyproject.toml that outside packages use.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from importlib.util import find_spec
from pathlib import Path

from phaze_opt.errors import PluginError
from phaze_opt.record.suggestions import suggest

_PACKAGE = "phaze_opt"
_SOURCES = (".py", ".so", ".pyd")


class PluginGroup(StrEnum):
    """The entry-point groups."""

    STRATEGIES = "phaze_opt.strategies"
    PRUNERS = "phaze_opt.pruners"
    ESTIMATORS = "phaze_opt.estimators"
    TRACKERS = "phaze_opt.trackers"
    OPERATORS = "phaze_opt.operators"


def list_plugins(group: PluginGroup) -> tuple[EntryPoint, ...]:
    """All entry points of a group, by name; nothing is imported.

    They are looked up once for a search path: what is installed there later, a new process sees.

    Raises:
        PluginError: two packages register the same name.
    """
    found = sorted(_registered(group, tuple(sys.path)), key=lambda entry: entry.name)
    by_name: dict[str, EntryPoint] = {}
    for entry in found:
        other = by_name.setdefault(entry.name, entry)
        if other.value != entry.value:
            both = f"{other.value} and {entry.value}"
            message = f"{group.value}: '{entry.name}' is registered twice, as {both}; uninstall one of the packages"
            raise PluginError(message)
    return tuple(by_name.values())


@lru_cache(maxsize=16)
def _registered(group: PluginGroup, path: tuple[str, ...]) -> EntryPoints:
    """What the packages of a path register in a group, looked up once: every package is opened for it."""
    del path
    return entry_points(group=group.value)


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


@dataclass(frozen=True, slots=True)
class PluginOrigin:
    """Where the code of a plug-in comes from.

    Attributes:
        group: of its entry point.
        name: that it is registered under.
        distribution: package that brings it; empty if none says so.
        version: of the distribution.
        digest: of the sources of its top-level package or module; of a built-in, of its room of this package. Code
            that these import from elsewhere is not part of it.
    """

    group: str
    name: str
    distribution: str
    version: str
    digest: str


def plugin_origins(wanted: Iterable[tuple[PluginGroup, str]]) -> tuple[PluginOrigin, ...]:
    """Origins of plug-ins, in their order; nothing of them is imported but packages that hold their modules.

    Raises:
        PluginError: two packages register the same name.
    """
    digests: dict[str, str] = {}
    entries = [entry for group, name in wanted for entry in list_plugins(group) if entry.name == name]
    return tuple(_origin(entry, digests) for entry in entries)


def changed_plugins(before: Iterable[PluginOrigin], now: Iterable[PluginOrigin]) -> tuple[PluginOrigin, ...]:
    """Plug-ins whose code is not what it was, as they are now; what is in one of the two only does not count."""
    digests = {(origin.group, origin.name): origin.digest for origin in before}
    return tuple(one for one in now if digests.get((one.group, one.name), one.digest) != one.digest)


def _origin(entry: EntryPoint, digests: dict[str, str]) -> PluginOrigin:
    """The origin of one plug-in; digests are looked up, or made once."""
    distribution, unit = entry.dist, _code_unit(entry.module)
    if unit not in digests:
        digests[unit] = _digest_of(unit)
    return PluginOrigin(
        group=entry.group,
        name=entry.name,
        distribution="" if distribution is None else distribution.name,
        version="" if distribution is None else distribution.version,
        digest=digests[unit],
    )


def _code_unit(module: str) -> str:
    """The package or module whose sources stand for a plug-in's code; below a package without files its first part."""
    parts = module.split(".")
    unit = ".".join(parts[: 2 if parts[0] == _PACKAGE else 1])
    spec = find_spec(unit)
    is_shared = spec is not None and spec.origin is None and len(parts) > 1
    return ".".join(parts[:2]) if is_shared else unit


def _digest_of(unit: str) -> str:
    """Digest of all sources of a package or module, their names included."""
    digest = hashlib.sha256()
    for name, path in _sources_of(unit):
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources_of(unit: str) -> Iterator[tuple[str, Path]]:
    """Sources by their names within the package, in the order of these."""
    spec = find_spec(unit)
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.origin is not None and Path(spec.origin).is_file():
            yield Path(spec.origin).name, Path(spec.origin)
        return
    for root in sorted(Path(place) for place in spec.submodule_search_locations):
        found = ((path.relative_to(root).as_posix(), path) for path in root.rglob("*") if path.suffix in _SOURCES)
        yield from sorted(found)
