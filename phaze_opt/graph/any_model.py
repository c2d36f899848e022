"""`AnyModel`: every kind of `Workload` that scenarios, and so records and certificates, may hold; and reading one."""

from pathlib import Path
from typing import TypeAlias

from phaze_opt.graph.traced.layered_model import layered_model_of
from phaze_opt.graph.traced.traced_file import KIND, MAX_FILE_BYTES, begins_as_traced_model
from phaze_opt.graph.traced.traced_workload import TracedWorkload
from phaze_opt.record.input_files import read_text_file, shorten_path
from phaze_opt.record.suggestions import known_as
from phaze_opt.workload.config import load_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.transformer import TransformerSpec
from phaze_opt.workload.zoo import list_models

AnyModel: TypeAlias = ModelSpec | TransformerSpec | TracedWorkload
"""What `objective.scenario.Scenario.models` is read as."""


def load_any_model(name_or_path: str, *, allow_unknown: bool = False) -> AnyModel:
    """The model of a zoo name, of a config, or of a traced-model file.

    Args:
        name_or_path: of the zoo, or a file.
        allow_unknown: whether operations of a traced model that no rule knows are counted by their bytes.

    Raises:
        InputError: as `load_model` and `parse_traced_model`.
    """
    path = Path(name_or_path)
    if known_as(name_or_path, list_models()) in list_models() or not begins_as_traced_model(path):
        return load_model(name_or_path)
    text, source = read_text_file(path, kind=KIND, max_bytes=MAX_FILE_BYTES), shorten_path(path)
    return TracedWorkload(layered_model_of(text, source).model.name, text, source, allow_unknown)
