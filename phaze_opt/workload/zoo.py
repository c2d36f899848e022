"""The model zoo: Hugging Face configs in ``zoo_configs/``, one file a model, each with its ``_source``."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def list_models() -> tuple[str, ...]:
    """Names of all zoo models, sorted."""
    folder = files("phaze_opt.workload") / "zoo_configs"
    return tuple(sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")))


def read_zoo_text(name: str) -> str:
    """The config file of one zoo model, as text; ``name`` is one of `list_models`."""
    return (files("phaze_opt.workload") / "zoo_configs" / f"{name}.json").read_text(encoding="utf-8")


def known_model_types() -> Mapping[str, str]:
    """Values of ``model_type`` that the transformers library knows, each with why extraction refuses it if it does."""
    table = _library()
    return {**dict.fromkeys(table["model_types"], ""), **table["not_extracted"]}


def library_version() -> str:
    """Version of the transformers library that is spoken of."""
    version: str = _library()["_meta"]["transformers"]
    return version


@cache
def _library() -> Mapping[str, Any]:
    text = (files("phaze_opt.workload") / "transformers_model_types.json").read_text(encoding="utf-8")
    table: Mapping[str, Any] = json.loads(text)
    return table
