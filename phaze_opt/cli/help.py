"""What the help of a command ends with, and what is said of a command line that lacks options."""

from collections.abc import Collection, Mapping
from typing import Any

EXAMPLES: Mapping[str, str] = {
    "search": "search --model bert-large --devices 1024 --gbs 4096 --baseline h100",
    "certify": "certify --model bert-large --devices 64 --gbs 512 --jobs 2",
    "evaluate": "evaluate --model llama-2-7b --arch h100 --devices 64 --gbs 512 --baseline h200",
    "validate": "validate --data my_runs.csv --report validation.html",
    "calibrate": "calibrate --data my_runs.csv --out my_constants.json",
    "schedule": "schedule layer.json --exclusivity type --figure schedule.html",
    "place": "place instance.json",
    "extract": "extract --hf my_model/config.json --out my_model.json",
    "models": "models --json",
    "architectures": "architectures h100 mi300x",
    "software": "software",
    "network list": "network list",
    "network show": "network show dgx-h100 --devices 64",
    "network optimise": "network optimise --model bert-large --devices 64 --tensor-parallel 4",
    "graph show": "graph show bert-large --arch phaze-tpu-v4",
    "graph chakra": "graph chakra bert-large --arch phaze-tpu-v4 --out traces",
    "strategies": "strategies",
    "pruners": "pruners",
    "study run": "study run studies/quickstart.toml --jobs 2",
    "study list": "study list",
    "study compare": "study compare first second",
    "report": "report quickstart",
    "space": "space --space phaze",
    "ui": "ui --port 8080",
}
"""A line for each command that works as it stands, but for the files it names."""
EXTRA = "Got unexpected extra argument"
"""Beginning of what typer says of words that no option takes."""
EITHER = ("model", "models")
"""Parameters of which one has to be given where a command has both."""


def example_of(path: str) -> str:
    """The example of a command, such as ``study run``; of a group that of its first command."""
    own = EXAMPLES.get(path) or next(line for name, line in EXAMPLES.items() if name.startswith(f"{path} "))
    return f"phaze-opt {own}"


def epilog_of(path: str) -> str:
    """What the help of a command ends with."""
    return f"Example:\n\n  {example_of(path)}"


def missing_sentence(flags: Collection[str], path: str) -> str:
    """All options that a command line lacks, and a line that has them."""
    *first, last = flags
    names = f"{', '.join(first)} and {last} are" if first else f"{last} is"
    return f"{names} missing; an example: {example_of(path)}"


def extra_of(error: Any) -> str:
    """What to type in place of a word that belongs to no option; empty of any other error."""
    context, text = getattr(error, "ctx", None), str(getattr(error, "message", ""))
    if context is None or not text.startswith(EXTRA):
        return ""
    word = text.partition("(s) (")[2].removesuffix(")") or text.rpartition("(")[2].removesuffix(")")
    path = context.command_path.removeprefix("phaze-opt").strip()
    return f"'{word[:60]}' needs the option that it is of before it; an example: {example_of(path)}"


def missing_of(error: Any) -> str:
    """`missing_sentence` of what typer raises for the first of them; empty of any other error.

    Typer reads what was given before it misses anything: what the context lacks is missing.
    """
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if type(error).__name__ != "MissingParameter" or context is None or parameter is None:
        return ""
    known, given = context.command.params, context.params
    missing = [each for each in known if each.required and each.name not in given]
    flags = [
        each.opts[0] if each.opts[0].startswith("-") else str(each.metavar or each.name).upper() for each in missing
    ]
    if set(EITHER) <= {each.name for each in known} and not any(given.get(name) for name in EITHER):
        flags.insert(0, "--model")
    return missing_sentence(flags, context.command_path.removeprefix("phaze-opt").strip())
