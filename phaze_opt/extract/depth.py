"""Deep models are exported shallow: of modules in a row that are alike, a few stand for all.

Two modules are alike if their classes, the shapes of their parameters and buffers and all plain values that they hold
are the same, but for the numbers that say which of the layers each is. That those that are left run the same
operations, and are wired the same way, is checked on what was recorded (`extract.folding`); that the others run what
these run, and nothing runs beside them, on a run of both models (`extract.extracting`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from phaze_opt.extract.training_step import without_root
from phaze_opt.extract.versions import TORCH

KEPT = 3
"""Units of a run that are exported: the first, one between others, and the last."""
LONGEST_PERIOD = 8
"""Modules that may alternate in a run (six in Gemma 3: five local, one global)."""
_NUMBERS = frozenset({"layer_idx", "layer_id", "layer_number", "layer_index", "block_idx", "idx"})
"""Attributes that say which layer a module is."""


@dataclass(frozen=True, slots=True)
class Run:
    """Units of modules in a row that are alike.

    Attributes:
        path: of the list that holds them.
        units: names, within the list, of the modules of every unit that is exported.
        first: place of the first module in the list.
        count: units of the model.
    """

    path: str
    units: tuple[tuple[str, ...], ...]
    first: int
    count: int

    @property
    def period(self) -> int:
        """Modules of a unit."""
        return len(self.units[0])


@contextmanager
def shallow(module: Any, *, kept: int = KEPT) -> Iterator[tuple[Run, ...]]:
    """Take out of every run of a model all but some units while the block lasts; gives the runs.

    Args:
        module: a step (`extract.training_step`).
        kept: units that stay; all if it is 0.
    """
    found: list[Run] = []
    changed: list[Callable[[], None]] = []
    for path, holder in _lists(module):
        if any(_is_within(path, run) for run in found):
            continue
        children = dict(holder._modules)
        stretches = find_stretches([signature(each) for each in children.values()])
        stays = _staying(stretches, len(children), kept=kept)
        names = _names(list(children), len(stays))
        found += [_run(path, each, stays, names) for each in stretches]
        if len(stays) < len(children):
            parent = module.get_submodule(path.rpartition(".")[0])
            changed += [*_shorten_config(parent, len(children), stays), _replace(holder, dict(holder._modules))]
            modules = list(children.values())
            _fill(holder, {name: modules[index] for name, index in zip(names, stays, strict=True)})
    try:
        yield tuple(Run(without_root(run.path), run.units, run.first, run.count) for run in found)
    finally:
        for restore in changed:
            restore()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Places of a run in its list: where it begins, modules of a unit, units."""

    start: int
    period: int
    count: int


def find_stretches(signatures: Sequence[object]) -> tuple[Stretch, ...]:
    """Runs among modules in a row, by their signatures; each as long as can be, with the shortest period."""
    found: list[Stretch] = []
    start = 0
    while start < len(signatures):
        best = Stretch(start, 1, 0)
        for period in range(1, min(LONGEST_PERIOD, len(signatures) - start) + 1):
            count = _repeats(signatures, start, period)
            if count > 1 and count * period > best.count * best.period:
                best = Stretch(start, period, count)
        found += [best] if best.count else []
        start += max(best.count, 1) * best.period
    return tuple(found)


def _repeats(signatures: Sequence[object], start: int, period: int) -> int:
    """How often the ``period`` modules from ``start`` on come one after the other."""
    count = 1
    while all(
        start + count * period + place < len(signatures)
        and signatures[start + count * period + place] == signatures[start + place]
        for place in range(period)
    ):
        count += 1
    return count


def signature(module: Any) -> tuple[object, ...]:
    """What two modules have in common that run the same operations; comparable, and equal for those alone."""
    own = {**module._parameters, **module._buffers}
    tensors = tuple(
        (name, None if each is None else (tuple(each.shape), str(each.dtype))) for name, each in own.items()
    )
    plain = tuple((key, _plain(value)) for key, value in sorted(vars(module).items()) if _counts(key, value))
    children = tuple((name, signature(each)) for name, each in module._modules.items() if each is not None)
    return (type(module).__module__, type(module).__qualname__, tensors, plain, children)


def _counts(key: str, value: object) -> bool:
    """Whether an attribute says what a module runs: any but its own number and what torch keeps for itself."""
    is_scalar = isinstance(value, bool | int | float | str)
    return key.removeprefix("_") not in _NUMBERS and (is_scalar or not key.startswith("_"))


def _plain(value: object) -> object:
    """A value that can be compared; of what is no plain value, its kind."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    if isinstance(value, dict):
        return tuple((str(key), _plain(each)) for key, each in value.items())
    return getattr(value, "__qualname__", type(value).__qualname__)


def _lists(module: Any, path: str = "", seen: frozenset[int] | set[int] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Lists and sequences of modules, each in its place once, the outer before the inner.

    Of a list that is shortened before the next is asked for, what is left has its new names.
    """
    torch = TORCH.load()
    seen = seen if isinstance(seen, set) else set()
    seen.add(id(module))
    is_list = isinstance(module, torch.nn.ModuleList | torch.nn.Sequential) and len(module) > 1
    if is_list and _is_of_distinct(list(module._modules.values())):
        yield path, module
    for name, child in list(module._modules.items()):
        if child is not None and id(child) not in seen:
            yield from _lists(child, f"{path}.{name}".removeprefix("."), seen)


def _is_of_distinct(modules: Sequence[Any]) -> bool:
    """Whether no place of a list is empty and no module stands in two."""
    return None not in modules and len({id(each) for each in modules}) == len(modules)


def _is_within(path: str, run: Run) -> bool:
    """Whether a list is part of a unit of a run, which is then a whole."""
    below = path.removeprefix(f"{run.path}.")
    return below != path and below.partition(".")[0] in {name for unit in run.units for name in unit}


def _staying(stretches: Sequence[Stretch], num_modules: int, *, kept: int) -> list[int]:
    """Places of the modules that stay."""
    left_out: set[int] = set()
    for each in stretches:
        units = min(each.count, kept) if kept else each.count
        left_out.update(range(each.start + units * each.period, each.start + each.count * each.period))
    return [place for place in range(num_modules) if place not in left_out]


def _names(names: Sequence[str], num_staying: int) -> list[str]:
    """Names of the modules that stay: the first numbers, as lists number theirs."""
    return list(names)[:num_staying]


def _run(path: str, stretch: Stretch, stays: Sequence[int], names: Sequence[str]) -> Run:
    """A stretch with the names that its modules have in the export."""
    end = stretch.start + stretch.count * stretch.period
    own = [name for name, place in zip(names, stays, strict=True) if stretch.start <= place < end]
    units = tuple(tuple(own[at : at + stretch.period]) for at in range(0, len(own), stretch.period))
    return Run(path, units, stretch.start, stretch.count)


def _fill(holder: Any, modules: Mapping[str, Any]) -> None:
    """Let a list hold these modules."""
    holder._modules.clear()
    holder._modules.update(modules)


def _replace(holder: Any, modules: Mapping[str, Any]) -> Callable[[], None]:
    """What lets a list hold again what it held."""
    return lambda: _fill(holder, modules)


def _shorten_config(parent: Any, num_modules: int, stays: Sequence[int]) -> list[Callable[[], None]]:
    """Let lists of the parent's config with an entry a layer fit those that stay; gives what undoes it."""
    config = getattr(parent, "config", None)
    undo: list[Callable[[], None]] = []
    for key, value in list(vars(config).items()) if config is not None else []:
        if isinstance(value, list) and len(value) == num_modules:
            undo.append(partial(setattr, config, key, value))
            setattr(config, key, [value[place] for place in stays])
    return undo
