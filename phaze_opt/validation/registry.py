"""Which families predict which data sets."""

from collections.abc import Sequence

from phaze_opt.errors import InputError
from phaze_opt.record.suggestions import suggest
from phaze_opt.validation.collectives import COLLECTIVE_KINDS, COLLECTIVES
from phaze_opt.validation.expert_exchange import EXPERT_EXCHANGE
from phaze_opt.validation.family import Family
from phaze_opt.validation.fp32.family import FP32_OPERATORS
from phaze_opt.validation.fp32.models import FP32_MODELS
from phaze_opt.validation.memory import MEMORY
from phaze_opt.validation.modern.family import MODERN
from phaze_opt.validation.operators.family import OPERATORS
from phaze_opt.validation.silicon.dies import DIES
from phaze_opt.validation.silicon.family import SILICON
from phaze_opt.validation.training.experts import EXPERTS
from phaze_opt.validation.training.family import MODERN_TRAINING, TRAINING

FAMILIES = (
    COLLECTIVES,
    COLLECTIVE_KINDS,
    EXPERT_EXCHANGE,
    OPERATORS,
    MODERN,
    FP32_OPERATORS,
    FP32_MODELS,
    TRAINING,
    MODERN_TRAINING,
    EXPERTS,
    MEMORY,
    SILICON,
    DIES,
)
"""In the order of fitting: later ones may build on earlier ones."""


def load_families(names: Sequence[str] = ()) -> tuple[Family, ...]:
    """The families, or some of them by name, in the order of fitting.

    Raises:
        InputError: an unknown name, with a near miss.
    """
    known = [family.name for family in FAMILIES]
    for name in names:
        if name not in known:
            message = f"no family of models is named '{name}'; {suggest(name, known)}"
            raise InputError(message, source="--only")
    return tuple(family for family in FAMILIES if not names or family.name in names)
