"""What was compared: the axes of the plan, what regret is against, and what is missing."""

from collections.abc import Mapping
from dataclasses import fields

from phaze_opt.objective.goals import Goal
from phaze_opt.report.chip import describe_point
from phaze_opt.report.document import Block, Folded, Listing, Section, TableBlock
from phaze_opt.report.study.cards import describe_value
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.limits import describe_failure
from phaze_opt.report.study.wording import format_percent
from phaze_opt.report.table import Column, Fields, TableContent, pairs_table, table_of, words
from phaze_opt.study.config import Budget, Contender, Setting, StudyConfig, StudyWorkload
from phaze_opt.study.result import ROUNDING

MAX_MISSING = 30


def plan_section(inputs: ReportInputs) -> Section:
    """Reference values, contenders, settings, workloads, and what is missing."""
    config = inputs.result.config
    blocks: list[Block] = [TableBlock(plan_table(inputs)), TableBlock(truths_table(inputs), "truths.csv")]
    blocks += [TableBlock(contenders_table(config)), TableBlock(settings_table(config.settings))]
    missing = missing_cells(inputs)
    if missing:
        shown = missing[:MAX_MISSING]
        more = (f"and {len(missing) - len(shown)} more",) if len(missing) > len(shown) else ()
        blocks.append(Folded(f"Searches that are missing ({len(missing)})", (Listing((*shown, *more)),)))
    return Section("plan", "What was compared", tuple(blocks))


def notices(inputs: ReportInputs) -> tuple[str, ...]:
    """What a reader must know first, whatever the findings say: unfinished, a budget in seconds."""
    result, config = inputs.result, inputs.result.config
    found = [describe_failure(result, name) for name in result.unranked]
    if not result.has_ended:
        found.append(
            f"This study is not finished: {len(result.cells)} of {result.num_cells} searches are. Figures below are of "
            "the finished ones and will move."
        )
    if config.budget.seconds is not None:
        found.append("Searches were limited in seconds, so results depend on the machine: for use, not for claims.")
    return tuple(found)


def missing_cells(inputs: ReportInputs) -> tuple[str, ...]:
    """Keys of the planned searches that are not finished, in the study's order."""
    finished = {cell.cell.key for cell in inputs.result.cells}
    config = inputs.result.config
    planned = (
        f"{condition.key}.{contender.name}.{seed}"
        for condition in inputs.result.conditions
        for contender in config.contenders
        for seed in config.seeds
    )
    return tuple(key for key in planned if key not in finished)


def plan_table(inputs: ReportInputs) -> TableContent:
    """Size of the plan and what each search may spend."""
    config = inputs.result.config
    rows = (
        ("searches", f"{len(inputs.result.cells)} of {inputs.result.num_cells} finished"),
        (
            "conditions",
            f"{len(inputs.result.conditions)}: settings {len(config.settings)} x workloads {len(config.workloads)}",
        ),
        ("seeds", ", ".join(map(str, config.seeds))),
        ("budget of a search", describe_budget(config.budget)),
        ("asked at a time", f"{config.batch} points"),
        ("starting points", f"{config.num_starts}, the same for all contenders of a seed"),
        ("workloads", "; ".join(map(_workload, config.workloads))),
    )
    return pairs_table("Plan", rows)


def _workload(workload: StudyWorkload) -> str:
    is_alone = workload.models == (workload.name,)
    weight = "" if workload.weight == 1.0 else f", weight {workload.weight:g}"
    return f"{workload.name}{'' if is_alone else f' ({workload.common.value}): ' + ', '.join(workload.models)}{weight}"


def describe_budget(budget: Budget) -> str:
    """Evaluations, and seconds if they are limited."""
    seconds = "" if budget.seconds is None else f", at most {budget.seconds:g} s"
    return f"{budget.evaluations:,} evaluations{seconds}"


def truths_table(inputs: ReportInputs) -> TableContent:
    """What regret is against in each condition, and how it is known."""
    columns = (Column("condition"), Column("reference value", is_number=True), Column("how known"), Column("design"))
    rows = []
    for condition in inputs.result.conditions:
        truth = inputs.summary.truths.get(condition.key)
        if condition.goal is Goal.PARETO:
            known = "-" if truth is None else f"front of {len(truth.front):,}"
            how = "best known hypervolume" if truth is None else f"{truth.kind.value}, to {format_percent(truth.gap)}"
            rows.append((condition.key, known, how, "several objectives"))
        elif truth is None:
            rows.append((condition.key, "-", "nothing feasible is known", "-"))
        else:
            value = describe_value(condition.goal, truth.value)
            within = f", to {format_percent(truth.gap)}" if truth.gap > ROUNDING else ""
            rows.append((condition.key, value, f"{truth.kind.value}{within}", describe_point(truth.point)))
    note = (
        "Certified: proved that no design exceeds it, or by no more than stated. Enumerated: every point solved, or "
        "excluded by bound. Best known: the best of this study's searches, which a better design may yet beat."
    )
    return TableContent("What regret is against", columns, tuple(rows), note)


def contenders_table(config: StudyConfig) -> TableContent:
    """Strategies with their options and pruners."""
    fields: Fields[Contender] = (
        words("contender", lambda item: item.name),
        words("strategy", lambda item: item.strategy),
        words("options", lambda item: _options(item.options)),
        words("pruner", _pruner),
    )
    return table_of("Contenders of the plan", fields, config.contenders)


def _pruner(item: Contender) -> str:
    options = _options(item.pruner_options) if item.pruner_options else ""
    return " ".join(filter(None, (item.pruner, options))) or "-"


def _options(options: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in options.items()) or "-"


def settings_table(settings: tuple[Setting, ...]) -> TableContent:
    """Circumstances, a column per setting; of several settings only what differs, and the goal."""
    names = ["goal", *(field.name for field in fields(Setting) if field.name not in {"name", "goal"})]
    texts = {name: [_text(getattr(setting, name)) for setting in settings] for name in names}
    shown = [name for name in names if name == "goal" or len(settings) == 1 or len(set(texts[name])) > 1]
    columns = (Column("setting"), *(Column(setting.name) for setting in settings))
    rows = tuple((name.replace("_", " "), *texts[name]) for name in shown)
    alike = [f"{name.replace('_', ' ')} {texts[name][0]}" for name in names if name not in shown]
    note = f"The same everywhere: {'; '.join(alike)}." if alike else ""
    return TableContent("Settings", columns, rows, note)


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return _options(value) if value else "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    named = {None: "not set", "": "none", True: "yes", False: "no"}
    if value is None or isinstance(value, bool) or value == "":
        return named[value]
    return str(value).replace("_", " ") if isinstance(value, Goal) else str(value)
