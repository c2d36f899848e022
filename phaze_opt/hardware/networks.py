"""Networks by name or from a TOML file, with the outermost dimension grown to hold the cluster."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.network import MAX_DEVICES, Network, NetworkDimension, Topology
from phaze_opt.hardware.network_file import RealNetworkTable, parse_network
from phaze_opt.record.document import parse_toml, read_toml
from phaze_opt.record.input_files import is_there, shorten
from phaze_opt.record.suggestions import known_as, suggest

DEFAULT_NETWORK = "two-level"
"""Assumed where a machine's own network is not known."""
NETWORK_PREFIX = "network."
"""Of the keys of constants that assumed networks are built by."""
_REAL_SOURCE = "networks.toml"


def list_networks() -> tuple[str, ...]:
    """Names that `load_network` knows: two of assumed clusters, then those of real ones (networks.toml)."""
    return (*_BUILDERS, *_real_networks())


def load_network(
    name_or_path: str, *, num_devices: int, constants: Constants | None = None, fitted: FittedConstants | None = None
) -> Network:
    """A network that holds ``num_devices``.

    A file has ``name``, maybe ``chunking``, and ``[[dimensions]]`` from the innermost outwards, each with topology
    (ring, switch, fully_connected), size, bandwidth_gb_per_s (10**9 bytes/s per device, one way) and latency_us, and
    maybe a measured ``curve``. The outermost size is grown, never shrunk, until all devices fit.

    Args:
        name_or_path: ``two-level``, ``phaze``, a real cluster's name (`list_networks`) or a TOML file.
        num_devices: devices of the cluster.
        constants: bandwidths and latencies of the assumed networks; the package's own unless given.
        fitted: constants of curves that go by a fabric's name; the package's own unless given.

    Raises:
        InputError: an unknown name (with a near miss), a faulty file, or a device count that is no positive integer.
    """
    if isinstance(num_devices, bool) or not isinstance(num_devices, int) or not 1 <= num_devices <= MAX_DEVICES:
        message = f"devices = {shorten(num_devices)} must be an integer from 1 to {MAX_DEVICES}"
        raise InputError(message, key="devices")
    name_or_path = known_as(name_or_path, list_networks())
    if name_or_path in _BUILDERS:
        network = _BUILDERS[name_or_path](constants if constants is not None else load_constants())
    elif name_or_path in _real_networks():
        network = _real_networks()[name_or_path].build(name_or_path, fitted or load_fitted())
    elif _looks_like_file(name_or_path):
        document = read_toml(Path(name_or_path), kind="a network file (TOML)")
        network = parse_network(document, fitted or load_fitted())
    else:
        message = (
            f"no network is named {shorten(name_or_path)}; {suggest(name_or_path, list_networks())} or give a TOML file"
        )
        raise InputError(message)
    return grow_network(network, num_devices=num_devices)


def constants_of_network(name: str, constants: Constants, *, has_own_links: bool = False) -> tuple[str, ...]:
    """Keys of the constants that an assumed network is built by; none of other networks.

    Args:
        name: of the network.
        constants: that have them.
        has_own_links: whether chips state the rate of their links. It stands in place of the network's: a bandwidth
            that was otherwise would change nothing but its level's share, so those are left out.
    """
    keys = (key for key in constants.entries if key.startswith(f"{NETWORK_PREFIX}{name.replace('-', '_')}."))
    return tuple(key for key in keys if not (has_own_links and key.endswith("bandwidth_bytes_per_s")))


def network_source(name: str) -> str:
    """Where the figures of a real cluster's network come from; empty for others."""
    return _real_networks()[name].source if name in _real_networks() else ""


def grow_network(network: Network, *, num_devices: int) -> Network:
    """The network with its outermost dimension grown, never shrunk, until ``num_devices`` fit.

    Devices are spread evenly over islands whose size is no power of two, as jobs take 64 of the 72 of a rack.
    """
    *inner, outermost = network.dimensions
    if inner and num_devices > inner[0].size:
        inner[0] = replace(inner[0], size=_even_share(num_devices, inner[0].size))
    islands = math.ceil(num_devices / math.prod(dimension.size for dimension in inner))
    grown = replace(outermost, size=max(outermost.size, islands))
    return Network(network.name, (*inner, grown))


def _even_share(num_devices: int, size: int) -> int:
    """Devices of an island where all have as many; the whole island where it is a power of two, or half is too much."""
    if num_devices % size == 0 or size & (size - 1) == 0:
        return size
    return next((share for share in range(size, size // 2, -1) if num_devices % share == 0), size)


def _looks_like_file(text: str) -> bool:
    return text.endswith(".toml") or "/" in text or "\\" in text or is_there(text)


def _build_two_level(constants: Constants) -> Network:
    """A node of switched links, then switched adapters; both levels take the switch's halving-doubling."""
    prefix = "network.two_level."
    inner = NetworkDimension(
        Topology.SWITCH,
        int(constants.value(f"{prefix}inner_size")),
        constants.value(f"{prefix}inner_bandwidth_bytes_per_s"),
        constants.value(f"{prefix}inner_latency_s"),
    )
    outer = NetworkDimension(
        Topology.SWITCH,
        1,
        constants.value(f"{prefix}outer_bandwidth_bytes_per_s"),
        constants.value(f"{prefix}outer_latency_s"),
    )
    return Network("two-level", (inner, outer))


def _build_phaze(constants: Constants) -> Network:
    bandwidth = constants.value("network.phaze.bandwidth_bytes_per_s")
    return Network(
        "phaze", (NetworkDimension(Topology.RING, 1, bandwidth, constants.value("network.phaze.latency_s")),)
    )


_BUILDERS = MappingProxyType({"two-level": _build_two_level, "phaze": _build_phaze})


@cache
def _real_networks() -> Mapping[str, RealNetworkTable]:
    """The package's own file of the networks of real clusters, a table each."""
    text = resources.files("phaze_opt.hardware").joinpath(_REAL_SOURCE).read_text(encoding="utf-8")
    document = parse_toml(text, source=_REAL_SOURCE)
    return {name: document.validate(RealNetworkTable, name) for name in document.values}
