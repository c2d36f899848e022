"""Families of other distributions, found by entry points, with the measurements, constants and ranges that are theirs.

None of them prices an answer of a command: `hardware.fitted.load_fitted` and `hardware.spreads.load_spreads` do not
read them. Validation and calibration do, by the functions of this module.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import cast

from phaze_opt.errors import PluginError
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.fitted import FittedConstants, FittedFile, load_fitted, read_fitted_file, read_own_file
from phaze_opt.hardware.spreads import Spreads, load_spreads, read_spreads
from phaze_opt.plugins import PluginGroup, list_plugins, load_plugin
from phaze_opt.validation.family import Family
from phaze_opt.validation.measured_row import Row

Roofline = Callable[[Row, Device], tuple[float, float]]
"""Time of a row at the device's peak and at its memory rate, s."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FamilyPack:
    """What a distribution registers under ``phaze_opt.families``.

    Attributes:
        families: in the order of fitting; none builds on one of another pack.
        folder: holds ``data/*.csv``, ``fitted_constants.json`` and ``spreads.json``.
        rooflines: of data sets whose rows need another formula than `row_times.roofline_parts`, by set.
        notes: sentences on the shapes of a set's rows, for details of a validation.
    """

    families: tuple[Family, ...]
    folder: Path
    rooflines: Mapping[str, Roofline]
    notes: Callable[[Sequence[Row]], tuple[str, ...]]


@cache
def load_packs() -> tuple[FamilyPack, ...]:
    """All installed packs, by name.

    Raises:
        PluginError: one does not load, or is no pack.
    """
    names = [entry.name for entry in list_plugins(PluginGroup.FAMILIES)]
    packs = [load_plugin(PluginGroup.FAMILIES, name) for name in names]
    for name, pack in zip(names, packs, strict=True):
        if not isinstance(pack, FamilyPack):
            message = f"{PluginGroup.FAMILIES.value}: '{name}' is not a FamilyPack; name one in its entry point"
            raise PluginError(message)
    return tuple(cast("FamilyPack", pack) for pack in packs)


def pack_families() -> tuple[Family, ...]:
    """Families of all packs."""
    return tuple(family for pack in load_packs() for family in pack.families)


def pack_folders() -> tuple[Path, ...]:
    """Folders of all packs' measurements."""
    return tuple(pack.folder / "data" for pack in load_packs())


def pack_roofline(dataset: str) -> Roofline | None:
    """Roofline of a data set; None where no pack has one."""
    return next((pack.rooflines[dataset] for pack in load_packs() if dataset in pack.rooflines), None)


def pack_notes(rows: Sequence[Row]) -> tuple[str, ...]:
    """Sentences on the shapes of rows of one set, of the pack that predicts them."""
    sets = {row.dataset for row in rows}
    own = (pack for pack in load_packs() if any(not sets.isdisjoint(each.datasets) for each in pack.families))
    return tuple(note for pack in own for note in pack.notes(rows))


def known_file(path: Path | None = None) -> FittedFile:
    """A file of constants, the package's unless given, with the packs' groups and errors that it lacks.

    Raises:
        InputError: the file is faulty.
    """
    own = read_own_file() if path is None else read_fitted_file(path)
    packs = [_pack_file(pack.folder) for pack in load_packs()]
    groups = {name: group for pack in packs for name, group in pack.groups.items()}
    sets = {name: errors for pack in packs for name, errors in pack.sets.items()}
    return own.model_copy(update={"groups": groups | own.groups, "sets": sets | own.sets})


def known_constants(path: Path | None = None) -> FittedConstants:
    """Constants of a file as `load_fitted` reads it, with the packs' groups that it lacks.

    Raises:
        InputError: the file is faulty.
    """
    own, packs = load_fitted(path), _pack_constants()
    return FittedConstants({**packs, **own.groups}) if packs else own


def known_spreads() -> Spreads:
    """Ranges of the package and of the packs."""
    own, packs = load_spreads(), [_pack_spreads(pack.folder) for pack in load_packs()]
    if not packs:
        return own
    entries = {name: each for spreads in (*packs, own) for name, each in spreads.entries.items()}
    scales = {name: each for spreads in (*packs, own) for name, each in spreads.scales.items()}
    return Spreads(MappingProxyType(entries), MappingProxyType(scales))


def _pack_constants() -> Mapping[str, Mapping[str, float]]:
    files = (_pack_file(pack.folder) for pack in load_packs())
    return {name: values for file in files for name, values in file.constants().groups.items()}


@cache
def _pack_file(folder: Path) -> FittedFile:
    return read_fitted_file(folder / "fitted_constants.json")


@cache
def _pack_spreads(folder: Path) -> Spreads:
    path = folder / "spreads.json"
    return read_spreads(path.read_text(encoding="utf-8"), source=str(path))
