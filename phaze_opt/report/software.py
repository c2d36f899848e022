"""Training software in tables: what it overlaps, what was measured of each, and how well it fits."""

from collections.abc import Mapping, Sequence

from phaze_opt.cost.stacks import SoftwareRows, can_run, measured_rows, rows_of_option
from phaze_opt.objective.software_notes import ERROR, STEPS
from phaze_opt.report.table import Column, Fields, TableContent, number, table_of, words
from phaze_opt.workload.run_options import RUN_OPTIONS
from phaze_opt.workload.software import TrainingStack


def choices_table(stacks: Sequence[TrainingStack]) -> TableContent:
    """Kernels, gradients and overlaps of each."""
    fields: Fields[TrainingStack] = (
        words("software", lambda stack: stack.name),
        words("kernels fused", lambda stack: stack.fusion.value),
        words("attention", lambda stack: stack.attention.value),
        number("bits", lambda stack: str(8 * stack.gradient_bytes)),
        number("overlap t, g, p", _overlaps),
    )
    note = (
        "bits: of a gradient, held and sent; overlap: shares that hide behind compute, of tensor-parallel traffic, "
        "of what replicas send once a step and of what ZeRO 2 and 3 send every micro-batch; all constants with --json"
    )
    return table_of("Training software", fields, stacks, note)


def _overlaps(stack: TrainingStack) -> str:
    shares = (stack.tensor_overlap, stack.data_overlap, stack.parameter_overlap)
    return " ".join(f"{share:.2f}" for share in shares)


def abilities(software: str) -> dict[str, list[str]]:
    """Words of each option that a software can be told, of those that change something."""
    return {
        column: [word for word, table in known.tables.items() if can_run(software, table)]
        for column, known in RUN_OPTIONS.items()
    }


def options_table(names: Sequence[str]) -> TableContent:
    """Which software can run with which option, a row for each word of one."""
    can = {name: abilities(name) for name in names}
    rows = [
        (
            f"--{column.replace('_', '-')} {word}",
            ", ".join(name for name in names if word in can[name][column]) or "none",
            ", ".join(each.removeprefix(STEPS) for each in rows_of_option(known.table(word))) or "none: assumed",
        )
        for column, known in RUN_OPTIONS.items()
        for word in known.tables
    ]
    note = (
        "`evaluate` takes them, rows of `validate` as columns; words that are not here change nothing; rows: data sets "
        "with steps that ran so; what an assumed option changes lies between nothing and what is priced, as with "
        "--power-limit-w, which no row says"
    )
    return TableContent(
        "Options of runs", tuple(map(Column, ("option", "software that can", "rows"))), tuple(rows), note
    )


def measured_table(names: Sequence[str], errors: Mapping[str, Mapping[str, float]]) -> TableContent:
    """Machine and data set of each software's rows; `errors` has figures by data set."""
    rows = []
    for name in names:
        measured = measured_rows(name)
        if measured is None:
            rows.append((name, "none", "", ""))
            continue
        for each in measured.rows:
            error = errors.get(each.dataset, {}).get(ERROR)
            shown = "" if error is None else f"{error:.1f}"
            rows.append((name, f"{each.machine} {each.dtype}", each.dataset.removeprefix("train_"), shown))
    columns = (Column("software"), Column("machine"), Column("data set"), Column("error, %", is_number=True))
    note = "error: mean of rows of the data set that were kept out of the fit, over all its machines"
    return TableContent("Measured on", columns, tuple(rows), note)


def features_table(names: Sequence[str]) -> TableContent:
    """Largest degree of each parallel feature, and recomputation, of each software's rows."""
    fields: Fields[tuple[str, SoftwareRows]] = (
        words("software", lambda item: item[0]),
        words("parallel features, to degree", lambda item: ", ".join(f"{k} {v}" for k, v in item[1].reach.items())),
        words("recomputation", lambda item: ", ".join(sorted(each.value for each in item[1].recompute))),
    )
    found = [(name, rows) for name in names if (rows := measured_rows(name)) is not None]
    note = "`evaluate` marks plans with features that no row has; degrees of ZeRO are devices that share the state"
    return table_of("What was measured", fields, found, note)
