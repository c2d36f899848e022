"""Entry-point loading of plug-ins; imports no implementation itself.

Groups: ``phaze_opt.strategies``, ``phaze_opt.pruners``, ``phaze_opt.estimators``, ``phaze_opt.trackers``,
``phaze_opt.operators``, ``phaze_opt.fusers``, ``phaze_opt.families``. Built-ins register through the same groups in
pyproject.toml that outside packages use. A plug-in without a package is named by its file (``mine.py:Mine``), or
registered in this process (`register_plugin`). A file is run for a `GivenPlugin` alone, the name that a user gives:
text of a file runs nothing.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import walk_tb

from phaze_opt.errors import InputError, PluginError, PluginFaultError
from phaze_opt.record.input_files import is_file
from phaze_opt.record.interrupts import WorkerToldToEndError, kernels_interruptible
from phaze_opt.record.suggestions import known_as, suggest

_PACKAGE = "phaze_opt"
_SOURCES = (".py", ".so", ".pyd")
_IN_A_FILE = re.compile(r"(?P<file>[^\ud800-\udfff]+\.py):(?P<name>[^\W\d]\w*)")
_IMPORTED = re.compile(r"optuna:[\w.]+")
_NAME = re.compile(r"\w[\w.+-]{0,59}")
_DIGEST_CHARACTERS = 12
"""Of a file's digest, in the name of its module: a changed file is another module."""
OF_OPTUNA = "optuna:"
"""Stands before the name of one of Optuna's samplers, or before ``package.module.Class`` of a sampler elsewhere."""
NAME_AGAIN = "--plugin-file"
NO_CODE = "no file runs code by being read"
_OF_THIS_PROCESS: dict[tuple["PluginGroup", str], object] = {}
"""What `register_plugin` was given: the one state that a process adds to, as its module table is."""


class PluginGroup(StrEnum):
    """The entry-point groups."""

    STRATEGIES = "phaze_opt.strategies"
    PRUNERS = "phaze_opt.pruners"
    ESTIMATORS = "phaze_opt.estimators"
    TRACKERS = "phaze_opt.trackers"
    OPERATORS = "phaze_opt.operators"
    FUSERS = "phaze_opt.fusers"
    FAMILIES = "phaze_opt.families"

    @property
    def kind(self) -> str:
        """What one of the group is called."""
        words = self.value.rpartition(".")[2]
        odd = {"strategies": "strategy", "operators": "operator rule", "families": "family pack"}
        return odd.get(words, words.removesuffix("s"))


class GivenPlugin(str):
    """A plug-in's name as its user gave it, by an option or an argument: the one kind of name that runs a file.

    Text that is read is never one, whoever reads it: only `given_plugin` and `named_again` make it, and pydantic
    refuses to. So a record that names code runs none. One in a file goes by the file's name and the class, wherever
    the file lies.

    Attributes:
        file: the code; None of a name that a package or a module has.
    """

    file: Path | None

    def __new__(cls, name: str, file: Path | None = None) -> "GivenPlugin":
        """A name, and the file that it is of."""
        given = super().__new__(cls, name if file is None else f"{file.name}:{name.rpartition(':')[2]}")
        given.file = file
        return given


def given_plugin(group: PluginGroup, name: str) -> str:
    """The name of a plug-in that its user gives."""
    if isinstance(name, GivenPlugin):
        return name
    if in_file := _IN_A_FILE.fullmatch(name):
        return GivenPlugin(name, Path(in_file["file"]))
    return GivenPlugin(name) if _IMPORTED.fullmatch(name) else plugin_name(group, name)


def named_again(name: str, files: Sequence[Path]) -> str:
    """The name of a plug-in that a file states: given, where its user names the file of the code again.

    Raises:
        InputError: two of the files have the name.
    """
    in_file = _IN_A_FILE.fullmatch(name)
    found = [file for file in files if in_file and file.name == Path(in_file["file"]).name]
    if len(found) > 1:
        message = f"{found[0]} and {found[1]} have one name; rename one of them"
        raise InputError(message, source=NAME_AGAIN)
    return GivenPlugin(name, found[0]) if found else name


def unnamed_code(group: PluginGroup, name: str) -> str:
    """Why a name runs nothing, if it is that of a file which its user does not give; empty if it is none."""
    if isinstance(name, GivenPlugin) or not _IN_A_FILE.fullmatch(name):
        return ""
    remedy = f"install it as a package, by an entry point of the group {group.value}"
    if group in (PluginGroup.STRATEGIES, PluginGroup.PRUNERS):
        remedy = f"add {NAME_AGAIN} {name.rpartition(':')[0]}"
    return f"{group.kind} '{name}' is code in a file, and {NO_CODE}: {remedy}"


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


def load_plugin(group: PluginGroup, name: str, adapt: Callable[[object], object] | None = None) -> object:
    """The object a plug-in's entry point names, instantiated without arguments if it is a class.

    Args:
        group: of the plug-in.
        name: of the plug-in.
        adapt: makes a plug-in of what is found, if that is of another form.

    Raises:
        PluginError: no such name (with near misses), or its import or construction fails (with the reason); or the name
            is of a file, and not its user's.
    """
    entry = ""
    try:
        with plugin_code(group, name, passing=(PluginError,)):
            known = plugin_name(group, name)
            if is_of_this_process(group, known):
                found = _OF_THIS_PROCESS[group, known]
            elif _IN_A_FILE.fullmatch(name):
                found = _load_from_file(group, name)
            else:
                registered = _find_entry(group, known)
                entry = f" ({registered.value})"
                found = registered.load()
            found = found if adapt is None else adapt(found)
            return found() if isinstance(found, type) else found
    except PluginFaultError as fault:
        error = fault.__cause__
        assert error is not None
        message = f"{group.value}: plug-in '{name}'{entry} fails to load: {_described(error, _home(group, name))}"
        if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("phaze_opt."):
            message += "; its entry point is of another version: install the package that brings it again"
        raise PluginError(message) from error


@contextmanager
def plugin_code(group: PluginGroup, name: str, *, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """A block that runs code of a plug-in.

    Ctrl-C and a machine without memory are no fault of a plug-in and go on as they are. An exit that the code asks for
    is one, as it would end the command.

    Args:
        group: of the plug-in.
        name: of the plug-in.
        passing: errors that go on as they are.

    Raises:
        PluginFaultError: the block raised an error; names the plug-in, the error, file and line.
    """
    not_its: tuple[type[BaseException], ...] = (KeyboardInterrupt, MemoryError, WorkerToldToEndError, PluginFaultError)
    try:
        with kernels_interruptible():
            yield
    except not_its + passing:
        raise
    except BaseException as error:
        raise plugin_fault(group, name, f"raised {_described(error, _home(group, name))}") from error


def plugin_fault(group: PluginGroup, name: str, what: str) -> PluginFaultError:
    """The error of a plug-in that did what it may not."""
    return PluginFaultError(f"{group.kind} {name} {what}", group=group.value, is_own=is_own(group, name))


def is_own(group: PluginGroup, name: str) -> bool:
    """Whether this package brings a plug-in."""
    return _home(group, name) == _PACKAGE


def _home(group: PluginGroup, name: str) -> str:
    """Where the code of a plug-in is: its file, or its first package; empty where that cannot be said."""
    if isinstance(name, GivenPlugin) and name.file is not None:
        return str(name.file.absolute())
    known = plugin_name(group, name)
    if is_of_this_process(group, known):
        return _written_in(_OF_THIS_PROCESS[group, known]).partition(".")[0]
    if name.startswith(OF_OPTUNA):
        return name.removeprefix(OF_OPTUNA).rpartition(".")[0].partition(".")[0] or "optuna"
    return next((entry.module for entry in list_plugins(group) if entry.name == known), "").partition(".")[0]


def _written_in(plugin: object) -> str:
    """The module of a plug-in of this process, or of what it wraps."""
    inner = getattr(plugin, "made_from", None) or plugin
    return str(getattr(getattr(inner, "func", inner), "__module__", ""))


def _described(error: BaseException, home: str) -> str:
    """Kind, place and message of an error; the place is the last line of the plug-in's own that it passed through."""
    passed = [
        (frame.f_code.co_filename, frame.f_globals.get("__name__", "").partition(".")[0], line)
        for frame, line in walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith("<")
    ]
    own = [each for each in passed if home in each[:2]] or [each for each in passed if each[1] != _PACKAGE]
    file, line = (own[-1][0], own[-1][2]) if own else ("", 0)
    if isinstance(error, SyntaxError):
        file, line = error.filename or file, error.lineno or line
    place = f" at {Path(file).name}:{line}" if file else ""
    is_lacking = isinstance(error, ModuleNotFoundError) and not str(error.name).startswith(_PACKAGE)
    text = ""
    with suppress(Exception):  # an error may fail to say its message
        text = " ".join(str(error).split()) + ("; install it" if is_lacking else "")
    return f"{type(error).__name__}{place}" + (f": {text}" if text else "")


def plugin_name(group: PluginGroup, name: str) -> str:
    """The name that a plug-in goes by, given in any case; a name that is no plug-in's as it is."""
    return known_as(name, _known_names(group))


def check_installed(group: PluginGroup, name: str, source: str) -> str:
    """The name of a plug-in that a package registers, given in any case.

    Args:
        group: of the plug-in.
        name: as given.
        source: what it was given by, for messages.

    Raises:
        InputError: there is none of the name.
    """
    known = [entry.name for entry in list_plugins(group)]
    name = known_as(name, known)
    if name not in known:
        message = f"no {group.kind} is named '{name}'; {suggest(name, known)}"
        raise InputError(message, source=source)
    return name


def _known_names(group: PluginGroup) -> list[str]:
    return [*(entry.name for entry in list_plugins(group)), *(own for kind, own in _OF_THIS_PROCESS if kind is group)]


def register_plugin(group: PluginGroup, name: str, plugin: object) -> None:
    """Make a class or an object a plug-in of this process; a later one of the name takes its place.

    Processes that this one starts do not know it: there the form ``file.py:Class`` is for.

    Raises:
        PluginError: a package registers the name, it reads as a file, or is no name.
    """
    if not _NAME.fullmatch(short_name(name)):
        message = f"{group.value}: '{name[:60]}' is no name of a plug-in; give letters, digits, dashes and dots"
        raise PluginError(message)
    if _IN_A_FILE.fullmatch(name) or name in {entry.name for entry in list_plugins(group)}:
        message = f"{group.value}: '{name[:60]}' is the name of another plug-in; choose one of your own"
        raise PluginError(message)
    _OF_THIS_PROCESS[group, name] = plugin


def is_of_this_process(group: PluginGroup, name: str) -> bool:
    """Whether a name is known to this process alone."""
    return (group, name) in _OF_THIS_PROCESS


def short_name(name: str) -> str:
    """A plug-in's name as a part of a file's name: of one in a file or of Optuna its class."""
    own = name.rpartition(":")[2]
    return own.rpartition(".")[2] if name.startswith(OF_OPTUNA) else own


def _find_entry(group: PluginGroup, name: str) -> EntryPoint:
    """The entry point of a name.

    Raises:
        PluginError: there is none.
    """
    entries = {entry.name: entry for entry in list_plugins(group)}
    if name.endswith(".py"):
        message = f"{group.value}: '{name}' names a file and no class; give FILE:CLASS, such as {name}:Mine"
        raise PluginError(message)
    if name not in entries:
        message = f"{group.value}: no plug-in is named '{name}'; {suggest(name, _known_names(group))}"
        raise PluginError(message)
    return entries[name]


def _load_from_file(group: PluginGroup, name: str) -> object:
    """What ``file.py:Class`` names; the file is run once, and again when it has changed.

    Raises:
        PluginError: it is not its user who names the file; there is no such file, or nothing of the name in it.
    """
    if not isinstance(name, GivenPlugin) or name.file is None:
        raise PluginError(unnamed_code(group, name))
    path, own_name = name.file, short_name(name)
    if not is_file(path):
        message = f"{group.value}: '{path}' is no file; give a path from the working directory, as my_strategy.py:Mine"
        raise PluginError(message)
    module_name = f"{path.stem}_{hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGEST_CHARACTERS]}"
    if module_name not in sys.modules:
        spec = spec_from_file_location(module_name, path.absolute())
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[module_name] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[module_name]
            raise
    found: object = getattr(sys.modules[module_name], own_name, None)
    if found is None:
        message = f"{group.value}: '{path}' has nothing that is named '{own_name}'"
        raise PluginError(message)
    return found


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
    origins: list[PluginOrigin] = []
    for group, name in wanted:
        own = _own_source(group, name)
        if own is None:
            origins += [_origin(entry, digests) for entry in list_plugins(group) if entry.name == name]
        else:
            digest = hashlib.sha256(own.read_bytes()).hexdigest() if own.is_file() else ""
            origins.append(PluginOrigin(group=group.value, name=name, distribution="", version="", digest=digest))
    return tuple(origins)


def _own_source(group: PluginGroup, name: str) -> Path | None:
    """The file of a plug-in that no package brings, perhaps none that is there; None of one that a package brings."""
    if isinstance(name, GivenPlugin) and name.file is not None:
        return name.file
    if not is_of_this_process(group, name):
        return None
    module = sys.modules.get(_written_in(_OF_THIS_PROCESS[group, name]))
    return Path(getattr(module, "__file__", None) or "")


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
