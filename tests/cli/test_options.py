"""Options made of declarations: one flag a field, required ones first, what was not given left to the field."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest

from phaze_opt.cli.options import with_options
from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import AXIS
from phaze_opt.objective.plan_options import RUN_OPTIONS_OF_PLANS
from phaze_opt.objective.scenario import Scenario
from phaze_opt.objective.scenario_options import (
    PLANNED_MICRO_BATCHES,
    USUAL_HBM_GB,
    USUAL_MICRO_BATCHES,
    Kind,
    ScenarioOptions,
    declarations,
    declared,
)
from phaze_opt.workload.plan import FREE_MICRO_BATCH


@dataclass(frozen=True, kw_only=True)
class Options:
    """Of a command that does not exist."""

    sizes: tuple[int, ...] = declared((4,), "Sizes.", Kind.COUNTS)
    count: int = declared(7, "A count.", Kind.COUNT, is_required=True)
    rate: float | None = declared(None, "A rate.", Kind.AMOUNT)


def flat(changes):
    """The command that typer sees, and what the function behind it is given."""
    seen = []

    @with_options
    def command(*, options: Annotated[Options, changes]) -> None:
        seen.append(options)

    return command, seen


def test_a_command_has_a_parameter_a_field_and_gets_typed_values():
    command, seen = flat({})
    assert list(inspect.signature(command).parameters) == ["count", "sizes", "rate"]
    command(count=3, sizes="2,1,2", rate=None)
    assert seen == [Options(sizes=(1, 2), count=3, rate=None)]
    with pytest.raises(InputError) as fault:
        command(count=3, sizes="0", rate=None)
    assert fault.value.source == "--sizes"


def test_what_a_command_declares_differently_and_nobody_gives_is_the_fields_default():
    command, seen = flat({"count": {"is_required": False, "default": None}})
    assert [each.default for each in inspect.signature(command).parameters.values()] == ["4", None, None]
    command(count=None, sizes="4", rate=2.0)
    assert seen == [Options(count=7, rate=2.0)]


def test_words_of_a_scenario_are_those_of_its_types():
    """Every option that has a closed set, and a default in it, starts where `Scenario` does."""
    known = {name: option for name, option in declarations(ScenarioOptions).items() if option.enumeration}
    assert {name for name, option in known.items() if option.default is None} == {
        "published_form", "plans", "cuts", "gradient_bits", "silicon", "hbm_generation", *RUN_OPTIONS_OF_PLANS
    }  # fmt: skip
    for name, option in known.items():
        if option.default is not None:
            word, own = option.words()(option.default), Scenario.__dataclass_fields__[name].default
            # Full plans have more words for what a placement recomputes.
            assert word.value == own.value if name == "recompute" else word is own


def test_the_usual_values_in_the_help_are_those_of_the_axes():
    assert PLANNED_MICRO_BATCHES == FREE_MICRO_BATCH
    for shown, name in ((USUAL_MICRO_BATCHES, "micro_batch"), (USUAL_HBM_GB, "hbm_bytes")):
        axis = AXIS[name]
        assert shown == tuple(map(axis.printed, axis.default_values))
