"""Whose kernel a row timed: its library and recipe, and whether the operands' quantisation is part of the time.

Columns say it (``library``, ``quantised``). Public tables say it in their own words instead, in ``source``, ``note``
and ``timing``; the rules here are those of docs/validation.md. A recipe is a library, a format and a class of machines
(``trtllm/fp8@hbm-8``); one that nothing was fitted to is priced by the next of the names given.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from phaze_opt.validation.matching_set import says_quantised
from phaze_opt.validation.measured_row import Row
from phaze_opt_lab.number_format import NumberFormat, Width, facts_of

PLAIN = "plain"
"""A library that is not known: of a row that names none."""
_KERNEL = re.compile(r"cutlass|deepgemm|flashinfer|triton")
_ENGINES = (
    ("xpu", "vllm-xpu"),
    ("expertsmonolithic", "vllm-trtllm-monolithic"),
    ("expertsmodular", "vllm-trtllm-modular"),
    ("trtllm_trtllm", "vllm-trtllm-monolithic"),
    ("torch_flow_triton", "trtllm-triton"),
    ("tritonexperts", "vllm-triton"),
    ("flashinfer_cutlass", "vllm-cutlass"),
    ("nongated", "trtllm-nongated"),
    ("torch_flow", "trtllm-cutlass"),
    ("fused_moe", "vllm-fused"),
)
"""Words of engines of fused experts, and the library meant; the first that is found."""
_NORM_LIBRARIES = ("cudnn", "torch_compile", "pytorch")
ALL_PAIRS_ENGINES = ("triton", "fused")
"""Ends of names of engines whose grouped matmuls go over the pairs of other ranks' experts too."""
SUSPECT = "SUSPECT"
"""In a note: its reader does not believe the row, and no fit sees it."""
GB200_SLOW_FLOPS = 1e12
"""Above it one table's 16-bit matmuls of vLLM on GB200 are a fifth slower than another's there: not fitted."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Who made a kernel, and what is in its time.

    Attributes:
        library: name, with its engine where it has several.
        is_eager: each call is launched by the host and timed by its clock.
        is_quantised: the time includes quantising activations.
    """

    library: str
    is_eager: bool
    is_quantised: bool


def recipe_of(row: Row, kind: str, number_format: NumberFormat) -> Recipe:
    """Recipe of a row, by its columns or by the words of public tables.

    Args:
        row: any.
        kind: of its file: ``operators``, ``attention`` or ``experts``.
        number_format: of its operands.
    """
    source, note, timing = (row.text(name, "") for name in ("source", "note", "timing"))
    given = row.text("library", "").lower()
    is_narrow = facts_of(number_format).width is not Width.WIDE
    told = row.text("quantised", "")
    is_quantised = told == "1" if told else is_narrow and says_quantised(note)
    return Recipe(given or _library(kind, source, note), "host" in timing, is_quantised)


@lru_cache(maxsize=4096)
def _library(kind: str, source: str, note: str) -> str:
    """Library by the words of public tables."""
    if "aiconfigurator" in source:
        return _serving_library(kind, source, note)
    if "flash-attention" in source:
        name = note.partition(";")[0].lower().replace(" ", "-")
        return {"pytorch-eager": "eager"}.get(name, name)
    if "cudnn-frontend" in source:
        words = note.split(" ", 1)[0]
        return words if words in _NORM_LIBRARIES else "cudnn"
    if "attention sink" in note:
        return "sink"
    if "aiter" in source.lower():
        return f"aiter-{_operands(note)}" if kind == "experts" else "aiter"
    return "xla" if "xla" in source.lower() and "vllm" not in source else PLAIN


def _serving_library(kind: str, source: str, note: str) -> str:
    """Of a table of serving frameworks: the framework, and its engine by the second word of the note."""
    framework = next((name for name in ("trtllm", "vllm", "sglang") if f"/{name}/" in source), PLAIN)
    parts = [part.strip().lower() for part in note.split(";")]
    engine = parts[1] if len(parts) > 1 else ""
    if kind == "experts":
        return next((name for word, name in _ENGINES if word in engine), framework)
    if kind == "attention":
        name = "trtllm" if engine == "torch_flow" else engine.replace("_", "-")
        cache = "+kv8" if "cache fp8" in note and "kv" in note.lower() else ""
        return f"{name}{cache}"
    kernel = _KERNEL.search(engine)
    return f"{framework}-{kernel.group()}" if kernel else framework


def _operands(note: str) -> str:
    """Activations and blocks of a tuned table's experts, such as ``float8-1x128``."""
    activations = re.search(r"activations ([a-z]+\d+)", note)
    blocks = re.search(r"per_(\w+)", note)
    return "-".join(found.group(1).lower() for found in (activations, blocks) if found) or "tuned"


def is_suspect(row: Row) -> bool:
    """Whether no fit should see a row: its reader says so, or it is one of the slow rows of GB200."""
    if SUSPECT in row.text("note", ""):
        return True
    if row.text("hardware") != "GB200" or row.text("dtype") != "bf16" or not row.text("k", ""):
        return False
    if not recipe_of(row, "operators", NumberFormat.BF16).library.startswith("vllm"):
        return False
    return 2.0 * row.number("m") * row.number("n") * row.number("k") > GB200_SLOW_FLOPS


@lru_cache(maxsize=4096)
def with_classes(names: tuple[str, ...], classes: tuple[str, ...]) -> tuple[str, ...]:
    """Names of recipes on classes of machines: a recipe of its own on each, and where it has none that of the next."""
    return tuple(f"{name}@{each}" for name in names for each in classes)


@lru_cache(maxsize=1024)
def matmul_recipes(recipe: Recipe, number_format: NumberFormat) -> tuple[str, ...]:
    """Names under which constants of a matmul may stand, nearest first."""
    eager = "-eager" if recipe.is_eager else ""
    base = recipe.library.partition("-")[0]
    libraries = (
        recipe.library + eager,
        recipe.library,
        base,
        PLAIN,
        "trtllm",
        "vllm-cutlass",
        "vllm-flashinfer",
        "xla",
        "aiter",
    )
    wide: tuple[str, ...] = (f"{base}/{NumberFormat.BF16}", f"trtllm/{NumberFormat.BF16}")
    if number_format is NumberFormat.MXFP8:
        wide = (*(f"{name}/{NumberFormat.FP8}" for name in ("trtllm", "xla")), *wide)
    return tuple(dict.fromkeys([*(f"{name}/{number_format}" for name in libraries), *wide]))


@lru_cache(maxsize=1024)
def attention_recipes(recipe: Recipe, number_format: NumberFormat, passes: str) -> tuple[str, ...]:
    """The same of fused attention; ``passes`` is empty forward, else ``-bwd`` or ``-both``."""
    plain = recipe.library.partition("+")[0]
    known = (recipe.library, plain, "cudnn", "flashattention-3", "flashattention-2")
    formats = (number_format, NumberFormat.BF16)
    exact = [f"{name}/{each}{passes}" for name in known for each in formats]
    return tuple(dict.fromkeys([*exact, *(f"{name}/{each}" for name in known for each in formats)]))


def has_all_pairs(recipe: Recipe) -> bool:
    """Whether an engine of fused experts lays out the pairs of all tokens and experts on every rank."""
    return recipe.library.endswith(ALL_PAIRS_ENGINES)


@lru_cache(maxsize=1024)
def expert_recipes(recipe: Recipe, number_format: NumberFormat) -> tuple[str, ...]:
    """The same of fused experts."""
    engine = recipe.library.partition("-")[2]
    known = (recipe.library, f"trtllm-{engine}", f"vllm-{engine}", "vllm-triton", "trtllm-cutlass", "vllm-cutlass")
    formats = (number_format, NumberFormat.FP8, NumberFormat.BF16)
    return tuple(dict.fromkeys(f"{name}/{each}" for each in formats for name in known))


@lru_cache(maxsize=1024)
def stream_recipes(recipe: Recipe, kind: str) -> tuple[str, ...]:
    """The same of norms, casts and pointwise operators."""
    known = (recipe.library, "torch_compile", "pytorch", "trtllm")
    kinds = (kind, "norm")
    return tuple(dict.fromkeys(f"{name}/{each}" for each in kinds for name in known))
