"""The model zoo: Hugging Face configs in ``zoo_configs/``, one file a model, each with its ``_source``."""

import json
from functools import cache
from importlib.resources import files


@cache
def list_models() -> tuple[str, ...]:
    """Names of all zoo models, sorted."""
    folder = files("phaze_opt.workload") / "zoo_configs"
    return tuple(sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")))


def read_zoo_text(name: str) -> str:
    """The config file of one zoo model, as text; ``name`` is one of `list_models`."""
    return (files("phaze_opt.workload") / "zoo_configs" / f"{name}.json").read_text(encoding="utf-8")


@cache
def known_model_types() -> frozenset[str]:
    """Values of ``model_type`` that the transformers library knows, read here or not."""
    text = (files("phaze_opt.workload") / "transformers_model_types.json").read_text(encoding="utf-8")
    return frozenset(json.loads(text)["model_types"])
