"""Which families predict which data sets; loaded when asked for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from phaze_opt.errors import InputError
from phaze_opt.record.spelling import suggest
from phaze_opt.validation.family import Family

FAMILIES: tuple[str, ...] = (
    "phaze_opt.validation.collectives:CollectivesFamily",
    "phaze_opt.validation.operators.family:OperatorFamily",
    "phaze_opt.validation.fp32.operators:NeusightFamily",
    "phaze_opt.validation.fp32.models:NeusightModelsFamily",
    "phaze_opt.validation.training.megatron:TrainingFamily",
    "phaze_opt.validation.training.modern:ModernTrainingFamily",
    "phaze_opt.validation.silicon.family:SiliconFamily",
)
"""Class of every family as ``module:name``, in the order of fitting: later ones may build on earlier ones."""


def load_families(names: Sequence[str] = ()) -> tuple[Family, ...]:
    """The families, or some of them by name, in the order of fitting.

    Raises:
        InputError: an unknown name, with a near miss.
    """
    families = tuple(_load(entry) for entry in FAMILIES)
    known = [family.name for family in families]
    for name in names:
        if name not in known:
            message = f"no family of models is named '{name}'; {suggest(name, known)}"
            raise InputError(message, source="--only")
    return tuple(family for family in families if not names or family.name in names)


def family_of(dataset: str, families: Sequence[Family]) -> Family | None:
    """The family that predicts a data set; None if none does."""
    return next((family for family in families if dataset in family.datasets), None)


def _load(entry: str) -> Family:
    module, name = entry.split(":")
    found = getattr(importlib.import_module(module), name)
    family: Family = found() if isinstance(found, type) else found
    return family
