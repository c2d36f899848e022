"""Architectures by preset name, from a file, or inline."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.architecture_file import check_architecture, parse_inline, read_architecture_file
from phaze_opt.hardware.chip_template import AXES, PEAK, DesignPoint
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.designed_chip import GENERATION, HbmForm, accelerator_of, build_accelerator
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.device_catalogue import (
    device_of,
    find_device,
    is_device_document,
    list_data_names,
    list_devices,
    load_device,
    shipped_devices,
)
from phaze_opt.record.document import Document, parse_toml
from phaze_opt.record.input_files import is_there, shorten
from phaze_opt.record.suggestions import known_as, suggest
from phaze_opt.units import TERA

PHAZE_REFERENCE, TPU_V4 = "phaze-tpu-v4", "tpu-v4"
"""Phaze's TPUv4-like point (256 vector lanes) and TPU v4 as built (2,048 lanes, 1,200 GB/s)."""


def list_architectures() -> tuple[str, ...]:
    """Names of the presets, sorted: those with a file of their own and every real machine of devices.toml."""
    return tuple(sorted({*_list_files(), *list_devices()}))


def _list_files() -> tuple[str, ...]:
    files = resources.files("phaze_opt.hardware").joinpath("presets").iterdir()
    return tuple(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def architecture_source(name: str) -> str:
    """Where a preset's figures come from, with the note on how the machine was mapped."""
    if name not in _list_files():
        device = load_device(name)
        return "; ".join(words for words in (device.source, device.note) if words)
    values = _read_preset(name).values
    return "; ".join(str(values[key]) for key in ("source", "note") if key in values)


def load_architecture(text: str, *, constants: Constants | None = None, hbm_form: HbmForm | None = None) -> Accelerator:
    """An accelerator from a preset name, a file or an inline description.

    Inline and in files: num_tc, num_vc, tc_width, tc_depth, glb_mb (MiB), hbm_gb (GiB) or hbm_stacks or both (the
    capacity of so many stacks, the fewest stacks that hold the capacity); optionally vc_width (tc_width by default),
    hbm_gb_per_s (10**9 bytes/s; else by the stacks), hbm_generation (that of ``constants``), clock_ghz,
    glb_bytes_per_cycle, l2_kb (KiB per tensor core; else max(1024 bytes, 16 w d)), vc_l2_kb (of a vector core; else
    max(1024 bytes, 16 lanes)), link_gb_per_s (of dies, one way; else the network's), pipelining (a name of `KEYS` of
    `pipelining`; else ``base``), sparse_array (a name of `KEYS` of `sparse_array`; else ``dense``), tiling, loop_order,
    core_split and array_shape (names of `flexibility.SWITCHES`), dtype_bytes; in files also name, source and note. The
    ``architecture`` object that ``--json`` prints, and the whole printed line, are accepted as files too.

    Args:
        text: ``tpu-v4``, ``mi210`` (or what data sets and its maker's tools call it), a file of a design or
            of a machine, or ``num_tc=4,num_vc=8,...``.
        constants: what the description leaves open; the package's own unless given.
        hbm_form: how HBM bandwidth follows from the capacity where it is not given.

    Raises:
        InputError: an unknown preset (with a near miss), a faulty file, or a faulty, missing, unknown or repeated key.
    """
    known = constants if constants is not None else load_constants()
    text = known_as(text, _list_files())
    if text in _list_files():
        document = _read_preset(text)
        default_name = text
    elif (device := find_machine(text)) is not None:
        return accelerator_of(device, known)
    elif _looks_like_file(text):
        document = read_architecture_file(Path(text))
        default_name = Path(text).stem
    elif "=" in text:
        document = Document(values=parse_inline(text), text="", source="architecture")
        default_name = ""
    else:
        message = explain_name(text)
        if not shipped_devices().named(text):
            message = f"{message} or give a file or num_tc=...,num_vc=..."
        raise InputError(message)
    return _build(document, constants=known, hbm_form=hbm_form, default_name=default_name)


def explain_name(text: str) -> str:
    """Why a text names no one architecture: a sentence."""
    if shipped_devices().named(text):
        return shipped_devices().explain(text)
    hint = suggest(text, list_architectures(), aliases=list_data_names())
    return f"no architecture is named {shorten(text)}; {hint}"


def find_machine(text: str) -> Device | None:
    """The machine that exists of an architecture's name or file; None if it is a design's, or nothing's.

    Args:
        text: as of `load_architecture`; a preset with a file of its own (``phaze-tpu-v4``) is a design.

    Raises:
        InputError: a faulty file of a machine, by line and key.
    """
    text = known_as(text, _list_files())
    if text in _list_files() and text not in list_devices():
        return None
    device = find_device(text)
    if device is not None or not _looks_like_file(text):
        return device
    document = read_architecture_file(Path(text))
    return device_of(document, Path(text)) if is_device_document(document) else None


def is_machine(chip: Accelerator, constants: Constants) -> bool:
    """Whether a chip is one of the package's machines that exist, priced as designs are under these constants."""
    device = find_device(chip.name)
    has_chip = device is not None and device.layout is not None
    return has_chip and load_architecture(chip.name, constants=constants) == chip


def _looks_like_file(text: str) -> bool:
    if text.endswith((".toml", ".json")):
        return True
    return bool(text) and ("=" not in text and ("/" in text or "\\" in text) or is_there(text))


def _read_preset(name: str) -> Document:
    file = resources.files("phaze_opt.hardware").joinpath("presets", f"{name}.toml")
    return parse_toml(file.read_text(encoding="utf-8"), source=name)


def _build(document: Document, *, constants: Constants, hbm_form: HbmForm | None, default_name: str) -> Accelerator:
    numbers = check_architecture(document)
    _check_generation(document, constants)
    _check_die(document, numbers, constants)
    if "hbm_bytes" not in numbers:
        numbers["hbm_bytes"] = numbers["hbm_stacks"] * constants.value("hbm.stack_bytes")
    glb_rate, l2_bytes, dtype_bytes = (
        numbers.get(key) for key in ("glb_bandwidth_bytes_per_s", "l2_bytes", "dtype_bytes")
    )
    # A clock and an L2 are given as they are: files may state fractions of a hertz.
    named = [axis for axis in AXES if axis.name not in ("clock_hz", "l2_bytes")]
    sizes = {axis.name: numbers.get(axis.name, numbers.get(axis.follows)) for axis in named}
    built = build_accelerator(
        DesignPoint(**{name: int(size) for name, size in sizes.items() if size is not None}, micro_batch=1),
        constants=constants,
        hbm_form=hbm_form,
        name=str(document.values.get("name") or default_name),
        clock_hz=numbers.get("clock_hz"),
        hbm_bandwidth_bytes_per_s=numbers.get("hbm_bandwidth_bytes_per_s"),
        glb_bytes_per_cycle=numbers.get("glb_bytes_per_cycle"),
        l2_bytes=None if l2_bytes is None else int(l2_bytes),
        dtype_bytes=None if dtype_bytes is None else int(dtype_bytes),
    )
    peak_tflops = built.peak_flops_per_s / TERA
    if peak_tflops > PEAK.most:
        rule = f"the arrays reach {peak_tflops:,.6g} TFLOP/s at their clock; at most {PEAK.most:,g} may be given"
        raise document.fault(rule, "num_tc")
    return built if glb_rate is None else replace(built, glb_bandwidth_bytes_per_s=glb_rate)


def _check_die(document: Document, numbers: Mapping[str, float], constants: Constants) -> None:
    """Links of their own are of dies, and dies have clocks that their voltages are known at."""
    is_die = GENERATION in constants.options
    for axis in (axis for axis in AXES if axis.needs_die and axis.name in numbers):
        if not is_die and axis.name != "clock_hz":
            message = "is of dies; leave it out, or leave out --silicon phaze and --as phaze"
            raise document.fault(message, axis.key)
        if is_die and (rule := axis.bounds.fault(axis.amount(numbers[axis.name]))):
            raise document.fault(rule, axis.key)


def _check_generation(document: Document, constants: Constants) -> None:
    """A chip has the HBM of the silicon in force."""
    given = document.values.get("hbm_generation")
    if not given:
        return
    known = constants.options.get(GENERATION)
    if known is None:
        message = "is of dies; leave it out, or leave out --silicon phaze and --as phaze"
        raise document.fault(message, "hbm_generation")
    if given != known.choice:
        message = f"value {shorten(given)} is not the silicon's {known.choice}; give --hbm-generation {given}"
        raise document.fault(message, "hbm_generation")
