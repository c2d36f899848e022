"""``phaze-opt evaluate``: one accelerator on one model, as tables or as one line of JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from phaze_opt.cli.architectures import EXAMPLE
from phaze_opt.cli.options import RECORDS, JsonOption, ModelOptions, is_given, read_integer, with_options
from phaze_opt.cli.output import end_infeasible, out, print_json, print_notes, print_tables, say, working
from phaze_opt.cli.plan_options import PlanOptions
from phaze_opt.cli.scenario import load_scenario, named_models
from phaze_opt.errors import InputError
from phaze_opt.objective.scenario_options import (
    CHOICES,
    MAX_MICRO_BATCH,
    WORKLOAD,
    Kind,
    ScenarioOptions,
    declared,
    same,
)

if TYPE_CHECKING:
    from phaze_opt.cli.evaluate_plan import EvaluateRequest
    from phaze_opt.hardware.constants import Constants
    from phaze_opt.objective.evaluation import Evaluation
    from phaze_opt.objective.scenario import Scenario
    from phaze_opt.objective.sensitivity import SensitivityRow

DEFAULT_MICRO_BATCH = 8
LONG_BUBBLE = 0.1
"""Share of an iteration from which on a pipeline's bubble is laid to the micro-batch."""
OF_PLANS_TOO = {
    "network": {
        "default": None,
        "help": "A network preset or a TOML file (see `phaze-opt network`).",
        "shown": "two-level; of plans on a real machine, its own",
    },
    "recompute": {"help": "auto (per stage, where needed), never or always; of plans also none, selective or full."},
}
"""Options that say something else of plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipOptions:
    """One accelerator and what it trains."""

    model: str = same(ModelOptions, "model", is_required=True)
    arch: str = declared(
        "",
        f"A preset, a TOML or JSON file of a design or of a machine of your own, or inline in quotes: '{EXAMPLE}'.",
        Kind.TEXT,
        panel=WORKLOAD,
        is_required=True,
    )
    micro_batch: str | None = declared(
        None, "Samples a micro-batch.", Kind.TEXT, panel=CHOICES, shown=f"{DEFAULT_MICRO_BATCH}; of plans, all that fit"
    )


@with_options
def evaluate(
    context: typer.Context,
    *,
    chip: ChipOptions,
    plan: PlanOptions,
    scenario: Annotated[ScenarioOptions, OF_PLANS_TOO],
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity", help="Vary every assumption over its range and show what changes.", rich_help_panel=RECORDS
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Evaluate one accelerator on a model: throughput, placement, schedule bounds and where the time goes.

    With any option of a parallel plan, whole plans are priced instead, on a designed chip or on a real machine with
    the constants fitted to it: degrees that are fixed stay, the others are searched.
    """
    from phaze_opt.cli.evaluate_plan import EvaluateRequest, evaluate_plans

    request = EvaluateRequest(
        models=named_models(chip.model, source="--model"),
        arch=chip.arch,
        micro_batch=chip.micro_batch,
        network=scenario.network if is_given(context, "network") else None,
        scenario=scenario,
        plan=plan,
        with_sensitivity=sensitivity,
    )
    if request.is_for_plans:
        evaluate_plans(request, json=json)
    else:
        _evaluate_chip(request, json=json)


def _evaluate_chip(request: EvaluateRequest, *, json: bool) -> None:
    """One accelerator with its best placement, as in every search."""
    from phaze_opt.hardware.constants import load_constants
    from phaze_opt.hardware.presets import load_architecture
    from phaze_opt.objective.caveats import notes_about, notes_to_json
    from phaze_opt.objective.evaluate import Objective
    from phaze_opt.objective.evaluation import evaluation_to_json

    known = load_constants()
    scenario = load_scenario(request.scenario, request.models, common="arithmetic", constants=known)
    samples = _one_micro_batch(request.micro_batch)
    _say_machine_of_file(request.arch)
    accelerator = load_architecture(request.arch, constants=known)
    evaluation = Objective(scenario).evaluate_accelerator(accelerator, samples)
    rows: list[SensitivityRow] = []
    if request.with_sensitivity and evaluation.is_feasible:
        rows = _sensitivity_rows(scenario, request.arch, samples, request.scenario.network)
    notes = notes_about(evaluation, scenario=scenario, constants=known)
    if json:
        document = evaluation_to_json(evaluation) | {"notes": notes_to_json(notes)}
        if request.with_sensitivity:
            document["sensitivity"] = [asdict(row) for row in rows]
        print_json(document)
    else:
        _print_tables(evaluation, scenario, rows, known)
        print_notes(notes)
        if request.micro_batch is None:
            _say_default_micro_batch(evaluation)
    if not evaluation.is_feasible:
        end_infeasible(evaluation.reason)


def _say_default_micro_batch(evaluation: Evaluation) -> None:
    """That nobody asked for the micro-batch which leaves stages waiting, where they do."""
    parts = asdict(evaluation.breakdown)
    if parts["bubble_s"] > LONG_BUBBLE * sum(parts.values()):
        out().print(
            f"Micro-batches are {DEFAULT_MICRO_BATCH} samples as --micro-batch is not given; smaller ones keep the "
            "stages of a pipeline waiting for less time."
        )


def _say_machine_of_file(arch: str) -> None:
    """That a machine of a user's file is priced as a design; tables say so of the package's machines."""
    from phaze_opt.hardware.device_catalogue import find_device
    from phaze_opt.hardware.presets import find_machine

    machine = find_machine(arch)
    if machine is not None and find_device(machine.name) is None:
        message = (
            f"note: {machine.name} is priced here as if designed, area and TDP at 22 nm; evaluate with --software "
            "prices training plans on the machine itself"
        )
        say(message)


def _one_micro_batch(text: str | None) -> int:
    """The micro-batch of one evaluation."""
    value = DEFAULT_MICRO_BATCH if text is None else read_integer(text, low=1, high=MAX_MICRO_BATCH)
    if value is None:
        message = f"'{text}' must be an integer from 1 to {MAX_MICRO_BATCH:,}"
        raise InputError(message, source="--micro-batch")
    return value


def _sensitivity_rows(scenario: Scenario, arch: str, micro_batch: int, network: str) -> list[SensitivityRow]:
    """The sensitivity table of one architecture, with progress on standard error."""
    from phaze_opt.hardware.presets import load_architecture
    from phaze_opt.objective.sensitivity import SensitivityCase, analyse_sensitivity

    case = SensitivityCase(
        scenario=scenario,
        build_accelerator=lambda constants: load_architecture(arch, constants=constants),
        micro_batch=micro_batch,
        network_name=network,
    )
    with working("varying every assumption over its range"):
        return list(analyse_sensitivity(case))


def _print_tables(evaluation: Evaluation, scenario: Scenario, rows: list[SensitivityRow], constants: Constants) -> None:
    """What a person sees: tables, then one sentence on what limits the design."""
    from phaze_opt.objective.reference_machines import evaluate_references
    from phaze_opt.report.design import evaluation_contents, limits_sentence, sensitivity_content

    references = evaluate_references(scenario, (evaluation.micro_batch,), constants=constants)
    screen = out()
    print_tables(*evaluation_contents(evaluation, references=references))
    if evaluation.is_feasible:
        screen.print(limits_sentence(evaluation))
    if rows:
        print_tables(sensitivity_content(rows))
