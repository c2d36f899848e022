"""Options as keywords: one statement with the command line, values of Python, faults of the keyword by name."""

import inspect
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest

import phaze_opt as po
from phaze_opt.api.kept_words import KeptWords
from phaze_opt.api.keywords import with_keywords
from phaze_opt.cli import certify, evaluate, search, study, validate
from phaze_opt.cli.output import say
from phaze_opt.errors import InputError
from phaze_opt.objective.scenario_options import Kind, declared
from phaze_opt.record.progress import Progress

OF_THE_TERMINAL = {"context", "details", "json", "report", "predictions", "top"}
"""What commands print or write beside their answer; a result has it as a method."""
COMMANDS = {
    "search": search.search,
    "certify": certify.certify,
    "evaluate": evaluate.evaluate,
    "plans": evaluate.evaluate,
    "study": study.run,
    "validate": validate.validate,
}
OF_NO_PLANS = {"sensitivity", "baseline", "has_range"}
"""Options of `evaluate` that say nothing of a list of plans."""


class Word(Enum):
    """A word."""

    ONE = "one"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Of a function that does not exist."""

    sizes: tuple[int, ...] = declared((4,), "Sizes.", Kind.COUNTS)
    count: int = declared(7, "A count.", Kind.COUNT, is_required=True, high=100)
    rate: float | None = declared(None, "A rate.", Kind.AMOUNT, flag="--the-rate")
    word: str = declared("two", "A word.", Kind.WORD)
    texts: tuple[str, ...] = declared((), "Texts.", Kind.TEXTS)
    folder: Path = declared(Path(), "A folder.", Kind.PATH)
    is_on: bool = declared(True, "A switch.", Kind.SWITCH)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Options, and which of them were given."""

    options: Annotated[Options, {"word": {"default": "three"}}]
    given: frozenset[str]


@with_keywords
def function(*, asked: Request, watch: KeptWords) -> object:
    """Return what it was given."""
    options, given = asked.options, asked.given
    if options.count == 13:
        message = "13 and --the-rate do not go together"
        raise InputError(message, source="--count")
    watch.say("a sentence")
    with watch.working("at work"), watch.progress("function") as show:
        show(Progress("stage", 1, 2, "words"))
    return options, given


@pytest.mark.parametrize("name", COMMANDS)
def test_a_function_has_every_option_of_its_command(name):
    command = set(inspect.signature(COMMANDS[name]).parameters) - OF_THE_TERMINAL
    own = set(inspect.signature(getattr(po, name)).parameters) - {"on_progress", "top"}
    assert command - own == (OF_NO_PLANS if name == "plans" else set())
    assert own <= command


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"sizes": 8}, "sizes", (8,)),
        ({"sizes": [4, 2, 4]}, "sizes", (2, 4)),
        ({"sizes": "1,2"}, "sizes", (1, 2)),
        ({"sizes": np.array([2, 1])}, "sizes", (1, 2)),
        ({"count": np.int64(5)}, "count", 5),
        ({"count": "5"}, "count", 5),
        ({"rate": 2}, "rate", 2.0),
        ({"rate": None}, "rate", None),
        ({"word": Word.ONE}, "word", "one"),
        ({"word": ["a", "b"]}, "word", "a,b"),
        ({"word": {"num_tc": 4, "glb_mb": 8}}, "word", "num_tc=4,glb_mb=8"),
        ({}, "word", "three"),
        ({"texts": "a=1"}, "texts", ("a=1",)),
        ({"texts": {"a": 1, "b": True, "c": 0.1}}, "texts", ("a=1", "b=true", "c=0.1")),
        ({"folder": "x"}, "folder", Path("x")),
        ({"is_on": False}, "is_on", False),
    ],
)
def test_values_of_python_become_values_of_options(given, field, value):
    options, names = function(**{"count": 1} | given)
    assert getattr(options, field) == value
    assert names == {"count"} | given.keys()


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({}, "count"),
        ({"count": 101}, "count"),
        ({"count": 1.0}, "count"),
        ({"count": True}, "count"),
        ({"count": "ten"}, "count"),
        ({"rate": "fast"}, "rate"),
        ({"rate": -1}, "rate"),
        ({"rate": [1]}, "rate"),
        ({"sizes": [0]}, "sizes"),
        ({"sizes": 1.5}, "sizes"),
        ({"sizes": [1.5]}, "sizes"),
        ({"sizes": [True]}, "sizes"),
        ({"is_on": 1}, "is_on"),
        ({"folder": 1.5}, "folder"),
        ({"word": 1.5}, "word"),
        ({"texts": 3.5}, "texts"),
        ({"cuont": 1}, "cuont"),
        ({"count": 13}, "count"),
    ],
)
def test_what_is_wrong_is_said_of_the_keyword(given, key):
    with pytest.raises(InputError) as fault:
        function(**({"count": 1} if given and key not in {"count"} else {}) | given)
    assert (fault.value.key, fault.value.source) == (key, None)
    assert "--" not in str(fault.value)


def test_the_word_of_a_flag_names_the_keyword():
    with pytest.raises(InputError, match="it is called rate in Python"):
        function(count=1, the_rate=2.0)


def test_nothing_is_printed_and_progress_is_told(capfd):
    moved = []
    function(count=1, on_progress=lambda *step: moved.append(step))
    function(count=1)
    assert moved == [("stage", 1, 2, "words")]
    assert capfd.readouterr() == ("", "")
    say("printed again")
    assert capfd.readouterr().err == "printed again\n"


def test_all_that_is_missing_is_said_at_once():
    with pytest.raises(InputError, match=r"evaluate\(model=\.\.\., arch=\.\.\., devices=\.\.\., global_batch=\.\.\.\)"):
        po.evaluate()
