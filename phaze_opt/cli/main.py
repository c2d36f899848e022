"""The command ``phaze-opt``: commands load when they are called, errors become one sentence."""

from __future__ import annotations

import errno
import importlib
import logging
import os
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from phaze_opt import __version__
from phaze_opt.cli import exit_codes
from phaze_opt.cli.exit_codes import EXIT_BAD_INPUT, EXIT_FAULT
from phaze_opt.cli.help import epilog_of, extra_of, missing_of
from phaze_opt.errors import InputError, PhazeOptError, PluginError, PluginFaultError
from phaze_opt.record.interrupts import kernels_interruptible
from phaze_opt.record.printable import printable

if TYPE_CHECKING:
    from phaze_opt.cli.stop_signals import StopSignals


MAX_MESSAGE_CHARACTERS = 1400
MAX_NAME_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command.

    Attributes:
        summary: line of ``--help``.
        module: of this folder, that implements it; that of its own name unless given.
        function: in the module, or ``app`` of a group of commands; that of its own name unless given.
        kept: what Ctrl-C leaves, and how to go on.
    """

    summary: str
    module: str = ""
    function: str = ""
    kept: str = exit_codes.NOTHING_KEPT

    def load(self, name: str) -> Any:
        """The function, or the group of commands, that goes by a name."""
        module = importlib.import_module(f"phaze_opt.cli.{self.module or name}")
        return getattr(module, self.function or name)


COMMANDS = {
    "search": LazyCommand("Search for the best accelerator and placement of a model.", kept=exit_codes.TRIALS_KEPT),
    "certify": LazyCommand(
        "Prove the best design of a whole space, or check such a proof.", kept=exit_codes.PROOF_KEPT
    ),
    "evaluate": LazyCommand("Evaluate one accelerator on a model."),
    "validate": LazyCommand("Score the models on measurements of real machines, or on your own."),
    "calibrate": LazyCommand(
        "Fit the models' constants to measurements of your own.",
        kept="the file of --out is written at the end and whole, until then it stays as it was: run the same command "
        "again, with --no-held-out if it takes too long",
    ),
    "schedule": LazyCommand(
        "Schedule one operator graph, with a proven bound.",
        kept="nothing is kept: run the same command again, with a smaller --time-limit for the best until then",
    ),
    "place": LazyCommand("Solve one placement instance exactly."),
    "extract": LazyCommand("Record a PyTorch or ONNX model in a file that --model takes."),
    "models": LazyCommand("List the models of the zoo.", "catalogue"),
    "architectures": LazyCommand("List the architecture presets, or all that is known of one.", "catalogue"),
    "software": LazyCommand("List the training software with fitted constants.", "catalogue"),
    "network": LazyCommand("List and show networks; allocate bandwidth to their levels.", function="app"),
    "graph": LazyCommand("Show what a model's layers are made of on a chip; write Chakra traces.", function="app"),
    "strategies": LazyCommand("List the search strategies.", "catalogue"),
    "pruners": LazyCommand("List the pruners that drop points before evaluation.", "catalogue"),
    "study": LazyCommand(
        "Run, list and compare controlled studies of strategies.",
        function="app",
        kept="searches that had ended are kept: run the same command again (`study run` with --resume)",
    ),
    "report": LazyCommand("Write the report of a study from what it left on disk."),
    "space": LazyCommand("Describe a search space.", "catalogue"),
    "ui": LazyCommand("Open the tracked runs in MLflow's user interface."),
}


def _kept_by(arguments: list[str]) -> str:
    """What Ctrl-C leaves of the command that arguments begin with."""
    command = COMMANDS.get(arguments[0] if arguments else "")
    return exit_codes.NOTHING_KEPT if command is None else command.kept


class LazyGroup(TyperGroup):
    """Lists commands without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Names, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command's module when it is called; only summarise it for the group's help."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            if ctx.resilient_parsing:
                return None
            from phaze_opt.record.suggestions import suggest

            message = f"'{cmd_name[:MAX_NAME_CHARACTERS]}' is not a command; {suggest(cmd_name, COMMANDS)}"
            raise InputError(message)
        if getattr(ctx, "is_listing", False):
            return TyperCommand(cmd_name, help=entry.summary, short_help=entry.summary)
        with exit_codes.says_what_is_kept(entry.kept):
            function = entry.load(cmd_name)
            if isinstance(function, typer.Typer):
                return _with_examples(get_command(function), cmd_name)
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            text = _paragraphs(function.__doc__ or "")
            app.command(name=cmd_name, help=text, epilog=epilog_of(cmd_name))(function)
            return get_command(app)

    def make_context(self, info_name: Any, args: list[str], *arguments: Any, **options: Any) -> Any:
        """Read the arguments; Ctrl-C while at it is Ctrl-C of the command that they name."""
        with exit_codes.says_what_is_kept(_kept_by(args)):
            return super().make_context(info_name, args, *arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; Ctrl-C ends it with the sentence of that command."""
        try:
            with kernels_interruptible():
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise exit_codes.CommandInterruptedError(_kept_by([ctx.invoked_subcommand or ""])) from interrupt

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Format the group's help from the summaries alone."""
        object.__setattr__(ctx, "is_listing", True)
        super().format_help(ctx, formatter)


def _with_examples(group: Any, path: str) -> Any:
    """A group of commands with an example in the help of each, and in its own."""
    group.epilog = epilog_of(path)
    for name, command in group.commands.items():
        command.epilog = epilog_of(f"{path} {name}")
    return group


def _paragraphs(text: str) -> str:
    """A docstring with one line a paragraph, which the help wraps to the terminal's width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _print_version(value: bool) -> None:
    """Print the version and stop."""
    if value:
        sys.stdout.write(f"phaze-opt {__version__}\n")
        raise typer.Exit


app = typer.Typer(cls=LazyGroup, pretty_exceptions_enable=False, rich_markup_mode="rich")


@app.callback(epilog=epilog_of("search"))
def phaze_opt(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Find the accelerator, the placement and the operator schedule that train a model fastest.

    Infeasible problems end with exit code 3, bad input with exit code 2 and one sentence on standard error, Ctrl-C with
    130, SIGTERM with 143, faults of the program with 1.
    """


def main(arguments: list[str] | None = None, *, signals: StopSignals | None = None) -> None:
    """Run the command line; every failure is one sentence on standard error and an exit code.

    Args:
        arguments: those of the process unless given.
        signals: what hears Ctrl-C and its like; nothing does unless given.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    kept = _kept_by(arguments)
    escape_logged_names()
    say_compilation()
    try:
        code = app(args=arguments or ["--help"], prog_name="phaze-opt", standalone_mode=False)
    except typer.Exit as stop:
        _exit(stop.exit_code)
    except exit_codes.CommandInterruptedError as interruption:
        _fail(f"interrupted; {interruption}", exit_codes.EXIT_INTERRUPTED)
    except (typer.Abort, KeyboardInterrupt):
        _fail(f"interrupted; {kept}", exit_codes.EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(exit_codes.EXIT_FAULT)
    except Exception as error:
        if signals is not None and signals.received:
            # Libraries made another error of the interruption.
            _fail(f"interrupted; {kept}", exit_codes.EXIT_INTERRUPTED)
        if isinstance(error, USAGE_ERRORS) and not error.format_message():
            # A group without a command: click has printed the help.
            _exit(exit_codes.EXIT_BAD_INPUT)
        _fail(*describe_failure(error))
    else:
        _exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    """Print one sentence on standard error and exit."""
    sentence = printable(" ".join(message.split()))
    if len(sentence) > MAX_MESSAGE_CHARACTERS:
        sentence = sentence[: MAX_MESSAGE_CHARACTERS - 4] + " ..."
    with suppress(OSError, ValueError):  # the terminal is gone
        sys.stderr.write(f"phaze-opt: {sentence}\n")
    _exit(code)


def _exit(code: int) -> NoReturn:
    """Exit; what standard output did not take is said, and not a second time by the interpreter."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError) and code == 0:
            _fail(f"standard output cannot be written: {error.strerror}", exit_codes.EXIT_BAD_INPUT)
    except ValueError:  # closed
        pass
    sys.exit(code)


USAGE_ERRORS: type[Any] = typer.BadParameter.__mro__[2]
"""Root of all errors about arguments (``ClickException``); typer carries its own copy of click, so ask typer for it."""

TRACEBACK_VARIABLE = "PHAZE_OPT_TRACEBACK"
LIMITS = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "allow more open files",
    errno.EROFS: "choose another place",
    errno.EACCES: "choose another place, or allow it",
    errno.EPERM: "choose another place, or allow it",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: "look after the disk",
    errno.ENOMEM: "give less work or fewer --jobs",
    errno.EAGAIN: "allow more processes (ulimit -u) or give fewer --jobs",
}
"""What a machine may refuse, and what to do about it."""


def describe_failure(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code of what ended a command."""
    if isinstance(error, PluginFaultError) and error.is_own and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, USAGE_ERRORS):
        return missing_of(error) or extra_of(error) or error.format_message(), EXIT_BAD_INPUT
    if isinstance(error, InputError | PluginError):
        is_fault = isinstance(error, PluginFaultError)
        return f"{error}; {_show_traceback(error)}" if is_fault else str(error), EXIT_BAD_INPUT
    if isinstance(error, PhazeOptError):
        return f"{type(error).__name__}: {error}", EXIT_FAULT
    if isinstance(error, OSError) and error.errno in LIMITS:
        return _describe_limit(error), EXIT_BAD_INPUT
    if isinstance(error, MemoryError):
        return "the memory of this machine, or of its limits, is not enough; give less work or fewer --jobs", EXIT_FAULT
    return _describe_fault(error), EXIT_FAULT


def _describe_limit(error: OSError) -> str:
    """What the machine refused; a command that keeps its work goes on where it was."""
    place = f"{error.filename}: " if error.filename else ""
    remedy = LIMITS.get(error.errno or 0, "")
    return f"{place}{error.strerror}; {remedy} and run the same command again (with --resume where there is one)"


def _describe_fault(error: Exception) -> str:
    """A fault of this package: where it is, and how to see and report it."""
    shows = _show_traceback(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    said = f": {error}" if str(error) else ""
    return (
        f"this is a fault of phaze-opt {__version__}, not of your input: {type(error).__name__}{place}{said}; "
        f"{shows}, please report it"
    )


def _show_traceback(error: Exception) -> str:
    """What shows the traceback; with `TRACEBACK_VARIABLE` set to 1 it goes to standard error now."""
    if os.environ.get(TRACEBACK_VARIABLE) == "1":
        logging.getLogger(__name__).error("%s", "".join(traceback.format_exception(error)))
    return f"{TRACEBACK_VARIABLE}=1 shows the traceback"


QUIET_VARIABLE = "PHAZE_OPT_QUIET"
LOGGER = "phaze_opt.record.compiled"
EVERY = 10
"""Kernels between two lines on a terminal."""
FIRST = "compiling kernels that were not needed before: once after an installation or an update, a minute at most"


class KernelNotice(logging.Handler):
    """One line at the first kernel that is really compiled; on a terminal how many there are so far."""

    def __init__(self) -> None:
        """Nothing is compiled yet."""
        super().__init__(logging.INFO)
        self._num_compiled = 0

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        """Count a kernel."""
        self._num_compiled += 1
        if self._num_compiled > 1 and self._num_compiled % EVERY:
            return
        from phaze_opt.cli.output import console

        screen = console()
        if self._num_compiled == 1:
            screen.print(FIRST, soft_wrap=True)
        elif screen.is_terminal:
            screen.print(f"  {self._num_compiled} kernels so far")


def say_compilation() -> None:
    """Tell whoever waits of kernels compiled from here on, in this process."""
    logger = logging.getLogger(LOGGER)
    for handler in [handler for handler in logger.handlers if isinstance(handler, KernelNotice)]:
        logger.removeHandler(handler)
    if os.environ.get(QUIET_VARIABLE) == "1":
        return
    logger.setLevel(logging.INFO)
    logger.addHandler(KernelNotice())


class _PrintableFormatter(logging.Formatter):
    """Messages as they are, with nothing in them that steers a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Escape what names in a message bring along."""
        return printable(super().format(record))


def escape_logged_names() -> None:
    """Let warnings that nobody handles reach standard error as plain text."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())
