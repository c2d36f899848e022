"""Which machine a name means: presets, what data sets write, and what makers' tools print.

How a machine is written in a file: a table in the units people use, checked by pydantic.

Machines of a user's own: one file each, with the keys of a machine of devices.toml and the same rules.
"""

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from phaze_opt.errors import InputError
from phaze_opt.hardware import chip_template as chip
from phaze_opt.hardware.architecture_file import ARCHITECTURE_KEYS, read_architecture_file
from phaze_opt.hardware.device import ChipLayout, ComputePath, Device, MatrixStyle
from phaze_opt.hardware.networks import list_networks
from phaze_opt.record.document import Document, parse_toml
from phaze_opt.record.input_files import Bounds, counts, is_file, shorten
from phaze_opt.record.suggestions import suggest
from phaze_opt.units import GIBI, GIGA, KIBI, MEBI, TERA

_Edge = Annotated[int, chip.EDGES.or_none]
_Cores = Annotated[int, chip.CORES.or_none]


class DeviceTable(BaseModel):
    """One machine of devices.toml or of a file of a user's own, in the units people use."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    data_names: list[str] = []
    aliases: list[str] = []
    maker: str = ""
    style: MatrixStyle = Field(strict=False)
    num_multiprocessors: Annotated[int, counts(4096)]
    array_width: _Edge = 0
    array_depth: _Edge = 0
    peak_tflops: dict[Annotated[ComputePath, Field(strict=False)], Annotated[float, chip.PEAK]] = Field(min_length=1)
    vector_tflops: Annotated[float, Bounds("TFLOP/s", 0.1, 4000.0).or_none] = 0.0
    fp4_tflops: Annotated[float, Bounds("TFLOP/s", 1.0, 80_000.0).or_none] = 0.0
    cache_mb: Annotated[float, chip.CACHE]
    hbm_gb: Annotated[float, chip.MEMORY]
    hbm_gb_per_s: Annotated[float, chip.MEMORY_RATE]
    clock_ghz: Annotated[float, chip.CLOCK]
    tdp_w: Annotated[float, Bounds("W", 5.0, 30_000.0).or_none] = 0.0
    die_mm2: Annotated[float, Bounds("mm2", 10.0, 100_000.0).or_none] = 0.0
    process: str = ""
    threads_per_multiprocessor: Annotated[int, counts(1 << 14)] = 2048
    exponentials_per_cycle: Annotated[int, counts(4096)] = 16
    host: str = ""
    cache_partitions: Annotated[int, counts(64)] = 1
    network: str = ""
    num_tc: _Cores = 0
    tc_width: _Edge = 0
    tc_depth: _Edge = 0
    num_vc: _Cores = 0
    vc_width: _Edge = 0
    local_kb: Annotated[float, chip.LOCAL.or_none] = 0.0
    glb_bytes_per_cycle: Annotated[int, chip.BYTES_PER_CYCLE.or_none] = 0
    hbm_stacks: Annotated[int, chip.STACKS.or_none] = 0
    source: str = ""
    note: str = ""

    @property
    def array_tflops(self) -> float:
        """What its arrays multiply and add at its clock, as the peak is stated; 0 without arrays."""
        return 2e-3 * self.num_tc * self.tc_width * self.tc_depth * self.clock_ghz

    def build(self, name: str) -> Device:
        """The machine in SI units.

        Args:
            name: preset name.
        """
        layout = self._same(ChipLayout) | {
            "local_bytes": round(self.local_kb * KIBI),
            "glb_bytes_per_cycle": float(self.glb_bytes_per_cycle),
        }
        values = self._same(Device) | {
            "name": name,
            "data_names": tuple(self.data_names),
            "aliases": tuple(self.aliases),
            "peak_flops_per_s": MappingProxyType({path: rate * TERA for path, rate in self.peak_tflops.items()}),
            "cache_bytes": self.cache_mb * MEBI,
            "hbm_bytes": self.hbm_gb * GIBI,
            "hbm_bandwidth_bytes_per_s": self.hbm_gb_per_s * GIGA,
            "clock_hz": self.clock_ghz * GIGA,
            "layout": ChipLayout(**layout) if self.num_tc else None,
            "vector_peak_flops_per_s": self.vector_tflops * TERA,
            "fp4_peak_flops_per_s": self.fp4_tflops * TERA,
        }
        return Device(**values)

    def _same(self, kind: type[Any]) -> dict[str, Any]:
        """What a machine or a layout holds as the table does."""
        return {each.name: getattr(self, each.name) for each in fields(kind) if each.name in type(self).model_fields}


BRANDS = ("nvidia", "tesla", "amd", "instinct", "intel", "google", "cloud", "amazon", "aws")
"""Words before a machine's name that tools print or leave out (``NVIDIA A100-SXM4-80GB``, ``Tesla T4``)."""


@dataclass(frozen=True, slots=True)
class DeviceCatalogue:
    """Machines that can be named; given to what reads names, and never changed.

    Attributes:
        devices: in order.
        replaced: names of the package's machines whose place one of a user's own takes, and that one's.
    """

    devices: tuple[Device, ...]
    replaced: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Preset names, sorted."""
        return tuple(sorted(device.name for device in self.devices))

    def find(self, name: str) -> Device | None:
        """The machine of a name; None if it is that of none or of several."""
        found = self.named(name)
        return found[0] if len(found) == 1 else None

    def load(self, name: str) -> Device:
        """The machine of a name.

        Raises:
            InputError: an unknown name, with a near miss, or one of several machines, which are named.
        """
        found = self.named(name)
        if len(found) == 1:
            return found[0]
        raise InputError(self.explain(name), key="hardware")

    def explain(self, name: str) -> str:
        """Why a name means no one machine: a sentence."""
        found = self.named(name)
        if found:
            *others, last = (device.name for device in found)
            return f"{shorten(name)} may be {', '.join(others)} or {last}; name one of them"
        words = name.split()
        while len(words) > 1 and words[0].lower() in BRANDS:
            words.pop(0)
        data_names = [alias for device in self.devices for alias in (*device.data_names, *device.aliases)]
        return f"no machine is named {shorten(name)}; {suggest(' '.join(words), self.names, aliases=data_names)}"

    def named(self, name: str) -> tuple[Device, ...]:
        """Machines that a name may mean, in order of the catalogue.

        The exact name decides, of a preset before that of a data set; else any name, without case, punctuation and
        brands.
        """
        for names in (_own_name, _data_names):
            exact = tuple(device for device in self.devices if name in names(device))
            if exact:
                return exact
        key = plain(name)
        if not key:
            return ()
        for names in (_own_name, _data_names, _aliases):
            near = tuple(device for device in self.devices if key in map(plain, names(device)))
            if near:
                return near
        return ()

    def extended(self, own: Sequence[Device]) -> "DeviceCatalogue":
        """These machines and others; one that bears the name of a machine of the package takes its place.

        It then answers to the other names of that machine too.

        Raises:
            InputError: a name of an added one is blank, that of another added one, or that of several.
        """
        known = self
        for device in own:
            known = known._with_one(device)
        return known

    def _with_one(self, device: Device) -> "DeviceCatalogue":
        clashes: dict[str, Device] = {}
        for name in (device.name, *device.data_names, *device.aliases):
            if not plain(name):
                message = f"{shorten(name)} names nothing; give letters or digits"
                raise InputError(message, key="name")
            taken = self.named(name)
            if len(taken) > 1 or any(shipped_devices().find(each.name) is not each for each in taken):
                message = f"{shorten(name)} is a name of {taken[0].name} already; choose another"
                raise InputError(message, key="name")
            clashes.update({each.name: each for each in taken})
        lost = tuple(clashes.values())
        known = {plain(name) for name in (device.name, *device.data_names, *device.aliases)}
        others = [name for each in lost for name in (each.name, *each.data_names) if plain(name) not in known]
        aliases = [name for each in lost for name in each.aliases if plain(name) not in known]
        added = replace(
            device, data_names=(*device.data_names, *others), aliases=tuple(dict.fromkeys((*device.aliases, *aliases)))
        )
        kept = tuple(each for each in self.devices if each.name not in clashes)
        replaced = (*self.replaced, *((each.name, device.name) for each in lost))
        return DeviceCatalogue((*kept, added), replaced)


@lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """Letters and digits of a name in lower case, without the brands before it."""
    text = "".join(letter for letter in name.lower() if letter.isalnum())
    while brand := next((word for word in BRANDS if text.startswith(word) and text != word), ""):
        text = text.removeprefix(brand)
    return text


def _own_name(device: Device) -> tuple[str, ...]:
    return (device.name,)


def _data_names(device: Device) -> tuple[str, ...]:
    return device.data_names


def _aliases(device: Device) -> tuple[str, ...]:
    return device.aliases


def list_devices() -> tuple[str, ...]:
    """Names of the real machines, sorted."""
    return shipped_devices().names


def list_data_names() -> tuple[str, ...]:
    """What data sets call the real machines, sorted."""
    return tuple(sorted(name for device in shipped_devices().devices for name in device.data_names))


def load_device(name: str) -> Device:
    """A real machine by preset name, by the name that data sets give it, or by one that its maker's tools print.

    Raises:
        InputError: an unknown name, with a near miss, or one of several machines, which are named.
    """
    return shipped_devices().load(name)


@lru_cache(maxsize=4096)
def find_device(name: str) -> Device | None:
    """As `load_device`; None if the name is that of no machine or of several."""
    return shipped_devices().find(name)


def is_shipped(device: Device) -> bool:
    """Whether a machine is the package's of that name, under whatever limit of power, and none of a user's file."""
    known = find_device(device.name)
    return known is not None and replace(known, tdp_w=device.tdp_w) == device


def told_name(device: Device) -> str:
    """What an answer calls a machine: one of a user's file that has the name of a shipped one is told from that."""
    has_name_alone = find_device(device.name) is not None and not is_shipped(device)
    return f"{device.name} of your file" if has_name_alone else device.name


@cache
def shipped_devices() -> DeviceCatalogue:
    """The machines of devices.toml."""
    text = resources.files("phaze_opt.hardware").joinpath("devices.toml").read_text(encoding="utf-8")
    tables = parse_toml(text, source="devices.toml").values
    return DeviceCatalogue(tuple(DeviceTable.model_validate(table).build(name) for name, table in tables.items()))


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
