"""Which machine a name means: presets, what data sets write, and what makers' tools print."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.device_table import DeviceTable
from phaze_opt.record.document import parse_toml
from phaze_opt.record.input_files import shorten
from phaze_opt.record.suggestions import suggest

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
