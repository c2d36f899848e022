"""Machines of a user's own: one file each, with the keys of a machine of devices.toml and the same rules."""

import math
from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.hardware.architecture_file import ARCHITECTURE_KEYS, read_architecture_file
from phaze_opt.hardware.device import ChipLayout, ComputePath, Device, MatrixStyle
from phaze_opt.hardware.device_catalogue import DeviceCatalogue, shipped_devices
from phaze_opt.hardware.device_table import DeviceTable
from phaze_opt.hardware.networks import list_networks
from phaze_opt.record.document import Document
from phaze_opt.record.input_files import is_file, shorten
from phaze_opt.record.suggestions import suggest

LAYOUT_KEYS = tuple(each.name for each in fields(ChipLayout) if each.default is MISSING)
"""Given all or not at all; an architecture needs them, plans and measurements do not."""
LAYOUT_TOLERANCE = 0.1
"""By which the rate of the arrays may differ from the peak that is stated."""
_MOST_CHARACTERS = 60


def read_devices(paths: Sequence[Path]) -> DeviceCatalogue:
    """The package's machines and those of some files.

    Raises:
        InputError: a fault of a file, by line and key, or a name that is taken.
    """
    known = shipped_devices()
    for path in paths:
        document = read_architecture_file(path, kind="a file of a machine (TOML)")
        if not is_device_document(document):
            message = f"describes no machine; needed are name, {', '.join(_required())}"
            raise InputError(message, source=document.source)
        known = _with_device(known, document, path)
    return known


def device_of(document: Document, path: Path) -> Device:
    """The machine that a file describes.

    Args:
        document: what is in the file, for which `is_device_document` holds.
        path: the file; its stem is the name unless given, its folder that of the network's file.

    Raises:
        InputError: a key is unknown, missing or faulty, by line and key, or a name is that of a known machine.
    """
    return _with_device(shipped_devices(), document, path).devices[-1]


def is_device_document(document: Document) -> bool:
    """Whether a file describes a machine that exists rather than a design: it has keys that designs have not."""
    return bool((set(DeviceTable.model_fields) - ARCHITECTURE_KEYS).intersection(document.values))


def _with_device(known: DeviceCatalogue, document: Document, path: Path) -> DeviceCatalogue:
    """A catalogue with the machine of one file."""
    values = {key: value for key, value in document.values.items() if key != "name"}
    name = _checked_name(document, path)
    table = replace(document, values=values).validate(DeviceTable, also=("name",))
    _check_layout(table, document)
    network = _network(table.network, document, path.parent)
    device = table.model_copy(update={"network": network, "maker": table.maker.lower()}).build(name)
    try:
        return known.extended([device])
    except InputError as error:
        message = str(error).partition(": ")[2]
        raise document.fault(message, "name") from None


def _checked_name(document: Document, path: Path) -> str:
    name = document.values.get("name", path.stem)
    is_fine = isinstance(name, str) and name.strip() == name and name.isprintable()
    if is_fine and 0 < len(name) <= _MOST_CHARACTERS and not set(name) & set("/,="):
        return str(name)
    rule = (
        f"must be a name of up to {_MOST_CHARACTERS} printable characters, without '/', ',', '=' and spaces at its ends"
    )
    message = f"value {shorten(name)} {rule}"
    raise document.fault(message, "name")


def _required() -> tuple[str, ...]:
    """Keys that every machine has."""
    return tuple(name for name, field in DeviceTable.model_fields.items() if field.is_required())


def _check_layout(table: DeviceTable, document: Document) -> None:
    """Arrays and lanes: all or none, and as fast as the peak says."""
    if table.style is MatrixStyle.SYSTOLIC and not (table.array_width and table.array_depth):
        rule = "value 'systolic' needs array_width and array_depth, the edges of one array"
        raise document.fault(rule, "style")
    sizes: dict[str, Any] = {key: getattr(table, key) for key in LAYOUT_KEYS}
    blank = [key for key, size in sizes.items() if not size]
    if blank and len(blank) < len(sizes):
        given = next(key for key, size in sizes.items() if size)
        rule = f"needs {', '.join(blank)} beside it; give all of {', '.join(LAYOUT_KEYS)} or none"
        raise document.fault(rule, given)
    peak = table.peak_tflops.get(ComputePath.BF16)
    rate = table.array_tflops
    if rate and peak and not math.isclose(rate, peak, rel_tol=LAYOUT_TOLERANCE):
        product = " x ".join(("2", *LAYOUT_KEYS[:3], "clock_ghz"))
        rule = f"{product} is {rate:.4g} TFLOP/s, but peak_tflops.bf16 is {peak:.4g}"
        rule = f"{rule}; make them agree within {LAYOUT_TOLERANCE:.0%}, or leave the arrays out"
        raise document.fault(rule, LAYOUT_KEYS[0])


def _network(name: str, document: Document, folder: Path) -> str:
    """A network's name, or the path of its file, which is beside the machine's."""
    if not name or name in list_networks():
        return name
    file = folder / name
    if is_file(file):
        return str(file.absolute())
    hint = suggest(name, list_networks())
    message = f"value {shorten(name)} is no network and no file beside this one; {hint} or give a TOML file"
    raise document.fault(message, "network")
