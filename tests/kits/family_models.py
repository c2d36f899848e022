"""Models of `tests/workload/family_configs.json`: configs with what transformers and torch count of them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from phaze_opt.workload.config import parse_config
from phaze_opt.workload.transformer import TransformerSpec

RECORDED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "workload" / "family_configs.json").read_text(encoding="utf-8")
)["models"]


@cache
def model_of(name: str) -> TransformerSpec:
    """One of them, written out."""
    return parse_config(RECORDED[name]["config"], name=name, source="given.json").transformer
