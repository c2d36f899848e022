"""What a price rests on where a training software decides it: its rows, its error, what a user fitted, as notes."""

from collections.abc import Mapping, Sequence
from enum import Enum

from phaze_opt.cost.stacks import (
    SoftwareRows,
    machine_gap,
    machines_of,
    measured_base,
    measured_rows,
    model_gap,
    rows_like,
    rows_of_option,
)
from phaze_opt.hardware.fitted import FittedGroup
from phaze_opt.hardware.spreads import ERROR_ELSEWHERE, HELD_ELSEWHERE, NAMED, UNSEEN, load_spreads
from phaze_opt.objective.caveats import Note
from phaze_opt.workload.software import IDEAL_STACK

ERROR = "cross_validated_mape"
"""Figure of a data set in the file of constants: mean error of rows that were kept out of the fit, per cent."""
CALIBRATED = "phaze-opt calibrate"
"""What the file of constants names as the source of groups that the command fitted."""
STEPS = "train_"
"""Beginning of the names of data sets of whole steps."""


class SoftwareChoice(Enum):
    """Who decided on a software: the user, measurements on the machine, or the rule of decision 0257.

    One that stands for a software which nobody knows was decided on by what suits the plan; of models that are no
    transformers, one that trains any module.
    """

    NAMED = "named"
    SUITED = "suited"
    MEASURED = "measured"
    RULE = "rule"
    ANY_MODULE = "any module"


def software_notes(
    software: str,
    *,
    machine: str,
    dtype: str,
    choice: SoftwareChoice,
    gradients: tuple[int, int, str],
    num_experts: int,
    sequence_length: int,
    errors: Mapping[str, Mapping[str, float]],
    own_fit: str = "",
    has_own_error: bool = False,
    is_scheduled: bool = False,
) -> tuple[Note, ...]:
    """What to know of a software that plans are priced with.

    Args:
        software: its name.
        machine: what plans are priced on.
        dtype: format of its matmuls.
        choice: who decided on it.
        gradients: bytes of a gradient, as priced and as the software has them, and where the latter is known from.
        num_experts: of a block of the model; 1 without any.
        sequence_length: tokens.
        errors: figures by data set, as the file of constants holds them.
        own_fit: what the user fitted the software's constants to; then published rows say nothing of its machines.
        has_own_error: whether rows of the user's that are like the model were kept out of that fit; then published
            rows say nothing of its error.
        is_scheduled: whether plans are priced on a designed chip.
    """
    rows = measured_rows(software)
    if rows is None and not own_fit:
        return _notes_of_unmeasured(software, is_scheduled)
    base, known = measured_base(software)
    error, has_experts = "", num_experts > 1
    if not has_own_error:
        kinds = () if is_scheduled else step_kinds(software, choice)
        error = _error_of(known, errors, base, machine, dtype, has_experts=has_experts, kinds=kinds)
    if rows is None:
        found = {"measured_elsewhere": own_fit, "error": error}
        return tuple(Note(key, sentence) for key, sentence in found.items() if sentence)
    gap = machine_gap(rows, software=software, machine=machine, dtype=dtype, is_scheduled=is_scheduled)
    found = {
        "software": _choice_note(software, machine, choice),
        "measured_elsewhere": own_fit or gap,
        "unlike_measured": model_gap(rows, software=software, num_experts=num_experts, sequence_length=sequence_length),
        "gradients": gradient_note(*gradients),
        "error": error,
    }
    return tuple(Note(key, sentence) for key, sentence in found.items() if sentence)


def _notes_of_unmeasured(software: str, is_scheduled: bool) -> tuple[Note, ...]:
    """What to know of a software that no row is of; nothing of the ideal one, which nobody runs."""
    if is_scheduled or software == IDEAL_STACK.name:
        return ()
    sources = sources_sentence([UNSEEN])
    nobodys = f"no run of {software} was measured"
    return (Note("error", f"{nobodys}; {sources}" if sources else nobodys),)


def step_kinds(software: str, choice: SoftwareChoice) -> tuple[str, ...]:
    """Kinds of kept-out steps that a plan's price is like, the nearest first: of those whose software was named.

    Only what the user named, and somebody measured, counts as named.
    """
    is_named = choice is SoftwareChoice.NAMED and measured_rows(software) is not None
    return (NAMED, UNSEEN) if is_named else (UNSEEN,)


def sources_sentence(kinds: Sequence[str]) -> str:
    """What to expect of a run that nobody measured: errors of publications that no fit saw; empty if none is known.

    Args:
        kinds: of kept-out steps; the first that is known speaks.
    """
    kind = next((each for each in kinds if load_spreads().find([each])), "")
    spread = load_spreads().find([kind])
    if spread is None:
        return ""
    known = "named, its constants those that the others say" if kind == NAMED else "taken as unknown"
    return (
        f"steps of {spread.num_groups} publications, each kept out of every fit and its software {known}, are "
        f"predicted with a mean error of {spread.mape:.0f} %, and 90 % of them took {spread.low:.2f} to "
        f"{spread.high:.2f} of the prediction; steps of 29 publications elsewhere were "
        f"{100 * ERROR_ELSEWHERE:.0f} % off, and {100 * HELD_ELSEWHERE:.0f} % of them in that range"
    )


def _error_of(
    rows: SoftwareRows | None,
    errors: Mapping[str, Mapping[str, float]],
    software: str,
    machine: str,
    dtype: str,
    *,
    has_experts: bool,
    kinds: Sequence[str],
) -> str:
    """How well steps are predicted; of models with experts by rows of such alone, where there are any.

    Of a run on a machine that exists, errors of steps of the same source say too little: what is asked is another. So
    much say sources kept out, of the ``kinds``.
    """
    sources, own = sources_sentence(kinds), ""
    if has_experts and rows is not None and rows.experts is not None:
        error = error_share(rows, errors, machine=machine, dtype=dtype, has_experts=True)
        told = f"steps of {software} with experts that were kept out of the fit are predicted with a mean error of"
        own = "" if error is None else f"{told} {error:.1%}"
    elif rows is not None and (has_experts or not sources):
        own = error_sentence(rows, errors, software=software, machine=machine, dtype=dtype)
    return f"{own}; dense {sources}" if has_experts and own and sources else sources or own


def _choice_note(software: str, machine: str, choice: SoftwareChoice) -> str:
    """How the software came about, unless the user named it, or one in whose place it stands."""
    if choice in (SoftwareChoice.NAMED, SoftwareChoice.SUITED):
        return ""
    why = {
        SoftwareChoice.MEASURED: f"as measured on {machine}",
        SoftwareChoice.RULE: f"by rule, as none was measured on {machine}",
        SoftwareChoice.ANY_MODULE: "by rule, as it trains any module and others transformers alone",
    }[choice]
    return f"software {software}, {why}; --software names another, ideal among them"


def error_sentence(
    rows: SoftwareRows, errors: Mapping[str, Mapping[str, float]], *, software: str, machine: str, dtype: str
) -> str:
    """How well steps of a software are predicted, and where; empty if the file of constants does not know.

    What was measured on other machines is said to be theirs.
    """
    own = rows_like(rows, machine=machine, dtype=dtype)
    if own is rows:
        error = error_note(rows, errors)
        on = ", ".join(rows.machines)
        return f"the mean errors of {software} on {on} are {error}, of steps kept out of its fit" if error else ""
    error = error_note(own, errors)
    others = [name for name in machines_of(own.datasets) if name != machine]
    beside = f", rows of {', '.join(others)} among them" if others else ""
    if not error:
        return ""
    return f"steps of {software} that were kept out of its fit are predicted with a mean error of {error}{beside}"


def error_share(
    rows: SoftwareRows | None,
    errors: Mapping[str, Mapping[str, float]],
    *,
    machine: str,
    dtype: str,
    has_experts: bool = False,
) -> float | None:
    """The largest of the mean errors that `error_sentence` names, of models with experts that of theirs; else None."""
    if rows is None:
        return None
    if has_experts and rows.experts is not None:
        own = errors.get(rows.experts.dataset, {}).get(ERROR)
        return None if own is None else own / 100.0
    known = [value for _, value in _errors(rows_like(rows, machine=machine, dtype=dtype), errors)]
    return max(known) / 100.0 if known else None


def own_fit_note(software: str, groups: Sequence[FittedGroup]) -> str:
    """What a software's constants rest on where ``phaze-opt calibrate`` fitted them to rows of the user's; else empty.

    Args:
        software: its name.
        groups: of the file of constants in force, that hold constants of the software.
    """
    own = _of_the_user(groups)
    if not own:
        return ""
    number, figures, kept_out = sum(map(len, own[-1].datasets.values())), own[-1].residuals, own_fit_error(groups)
    words = [f"mean error {figures['mape']:.1f} %"] if "mape" in figures else []
    words += [] if kept_out is None else [f"of rows kept out up to {kept_out:.1%}".replace("%", " %")]
    noun = "row" if number == 1 else "rows"
    return f"constants of {software} were fitted to {number} {noun} of your own, and speak of their machines" + (
        f" ({', '.join(words)})" if words else ""
    )


def own_fit_error(groups: Sequence[FittedGroup]) -> float | None:
    """The largest mean error of rows kept out of the user's own fit, as a share; None where there is none.

    Of few rows that are much alike a fifth kept out says little: what a model, a machine or a number of nodes kept out
    whole says counts too.
    """
    figures = own[-1].residuals if (own := _of_the_user(groups)) else {}
    errors = [value for name, value in figures.items() if name == ERROR or name.startswith("leave_one_")]
    return max(errors) / 100.0 if errors else None


def _of_the_user(groups: Sequence[FittedGroup]) -> list[FittedGroup]:
    return [group for group in groups if fitted_by_user(group)]


def fitted_by_user(group: FittedGroup) -> bool:
    """Whether ``phaze-opt calibrate`` fitted constants to some rows."""
    return group.source == CALIBRATED and bool(group.datasets)


def gradient_note(priced: int, own: int, source: str) -> str:
    """How wide gradients are, held and sent."""
    if priced != own:
        return f"gradients are held and sent in {8 * priced} bits as asked; the software was measured with {8 * own}"
    other = 32 if own == 2 else 16
    return f"gradients are held and sent in {8 * own} bits ({source}); --gradient-bits {other} for the other width"


def error_note(rows: SoftwareRows, errors: Mapping[str, Mapping[str, float]]) -> str:
    """Errors of steps kept out, by data set; empty if the file of constants has none."""
    return ", ".join(f"{value:.1f} % ({name.removeprefix(STEPS)})" for name, value in _errors(rows, errors))


def _errors(rows: SoftwareRows, errors: Mapping[str, Mapping[str, float]]) -> list[tuple[str, float]]:
    """Data sets of whole steps with their errors, per cent."""
    steps = [name for name in rows.datasets if name.startswith(STEPS)]
    return [(name, errors[name][ERROR]) for name in steps if ERROR in errors.get(name, {})]


def assumed_note(options: Sequence[str], *, has_limit: bool = False) -> str:
    """That no measured step ran with some options of a run; empty if rows say all of them.

    Args:
        options: tables of the words that were said.
        has_limit: whether devices are held to a limit of power.
    """
    found = [option for option in options if not rows_of_option(option)]
    found += ["a limit of power"] if has_limit else []
    if not found:
        return ""
    return (
        f"no measured step ran with {' or '.join(found)}: what it changes is a mechanism alone, between nothing (the "
        "price without it) and this"
    )
