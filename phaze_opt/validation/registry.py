"""Which families predict which data sets."""

from collections.abc import Sequence

from phaze_opt.errors import InputError
from phaze_opt.record.suggestions import suggest
from phaze_opt.validation.collectives import COLLECTIVE_KINDS, COLLECTIVES
from phaze_opt.validation.family import Family
from phaze_opt.validation.memory import MEMORY
from phaze_opt.validation.operators.family import OPERATORS
from phaze_opt.validation.packs import pack_families
from phaze_opt.validation.silicon.dies import DIES
from phaze_opt.validation.silicon.family import SILICON
from phaze_opt.validation.training.experts import EXPERTS
from phaze_opt.validation.training.family import MODERN_TRAINING, TRAINING

FAMILIES = (COLLECTIVES, COLLECTIVE_KINDS, OPERATORS, TRAINING, MODERN_TRAINING, EXPERTS, MEMORY, SILICON, DIES)
"""Of the package, in the order of fitting: later ones may build on earlier ones."""


def load_families(names: Sequence[str] = ()) -> tuple[Family, ...]:
    """The package's families and those of packs, or some of them by name, in the order of fitting.

    Raises:
        InputError: an unknown name, with a near miss.
    """
    families = (*FAMILIES, *pack_families())
    known = [family.name for family in families]
    for name in names:
        if name not in known:
            message = f"no family of models is named '{name}'; {suggest(name, known)}"
            raise InputError(message, source="--only")
    return tuple(family for family in families if not names or family.name in names)
