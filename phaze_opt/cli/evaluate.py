"""``phaze-opt evaluate``: one accelerator on one model, as tables or as one line of JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from phaze_opt.cli.exit_codes import EXIT_INFEASIBLE
from phaze_opt.cli.numbers import MAX_MICRO_BATCH, integer
from phaze_opt.cli.options import (
    CHOICES,
    DEFAULT_SCHEDULE_GAP,
    INTEGER,
    RECORDS,
    WORKLOAD,
    AttentionOption,
    DevicesOption,
    ExclusivityOption,
    GlobalBatchOption,
    JsonOption,
    MaxAreaOption,
    MaxTdpOption,
    ModelOption,
    NetworkOption,
    OptimizerOption,
    RecomputeOption,
    ScheduleGapOption,
    SequenceLengthOption,
    SequenceParallelOption,
    TensorParallelOption,
    build_scenario,
    load_models,
)
from phaze_opt.cli.output import console, out, print_json

if TYPE_CHECKING:
    from phaze_opt.hardware.constants import Constants
    from phaze_opt.objective.evaluation import Evaluation
    from phaze_opt.objective.scenario import Scenario
    from phaze_opt.objective.sensitivity import SensitivityRow


def evaluate(
    *,
    model: ModelOption,
    arch: Annotated[
        str,
        typer.Option(
            "--arch",
            help="A preset, a TOML or JSON file, or inline: "
            "num_tc=4,num_vc=8,tc_width=128,tc_depth=128,glb_mb=64,hbm_gb=32.",
            rich_help_panel=WORKLOAD,
        ),
    ],
    devices: DevicesOption,
    global_batch: GlobalBatchOption,
    micro_batch: Annotated[
        int,
        typer.Option(
            "--micro-batch",
            help="Samples a micro-batch.",
            parser=integer("--micro-batch", high=MAX_MICRO_BATCH),
            metavar=INTEGER,
            rich_help_panel=CHOICES,
        ),
    ] = 8,
    sequence_length: SequenceLengthOption = None,
    network: NetworkOption = "two-level",
    optimizer: OptimizerOption = "adam",
    attention: AttentionOption = "fused",
    exclusivity: ExclusivityOption = "chip",
    recompute: RecomputeOption = "auto",
    tensor_parallel: TensorParallelOption = "1,2,4,8",
    sequence_parallel: SequenceParallelOption = True,
    schedule_gap: ScheduleGapOption = DEFAULT_SCHEDULE_GAP,
    max_area_mm2: MaxAreaOption = None,
    max_tdp_w: MaxTdpOption = None,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity", help="Vary every assumption over its range and show what changes.", rich_help_panel=RECORDS
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Evaluate one accelerator on a model: throughput, placement, schedule bounds and where the time goes."""
    from phaze_opt.hardware.constants import load_constants
    from phaze_opt.hardware.presets import load_architecture
    from phaze_opt.objective.evaluate import Objective
    from phaze_opt.objective.serialize import evaluation_to_json

    constants = load_constants()
    scenario = build_scenario(
        load_models(model, option="--model"),
        devices=devices,
        global_batch=global_batch,
        sequence_length=sequence_length,
        network=network,
        optimizer=optimizer,
        attention=attention,
        exclusivity=exclusivity,
        recompute=recompute,
        tensor_parallel=tensor_parallel,
        is_sequence_parallel=sequence_parallel,
        max_area_mm2=max_area_mm2,
        max_tdp_w=max_tdp_w,
        schedule_gap=schedule_gap,
        constants=constants,
    )
    accelerator = load_architecture(arch, constants=constants)
    evaluation = Objective(scenario).evaluate_accelerator(accelerator, micro_batch)
    rows = _sensitivity_rows(scenario, arch, micro_batch, network) if sensitivity and evaluation.is_feasible else []
    if json:
        document = evaluation_to_json(evaluation)
        if sensitivity:
            document["sensitivity"] = [asdict(row) for row in rows]
        print_json(document)
    else:
        _print_tables(evaluation, scenario, rows, constants)
    if not evaluation.is_feasible:
        console().print(f"infeasible: {evaluation.reason}", style="bold red", soft_wrap=True)
        raise typer.Exit(EXIT_INFEASIBLE)


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
    with console().status("varying every assumption over its range"):
        return list(analyse_sensitivity(case))


def _print_tables(evaluation: Evaluation, scenario: Scenario, rows: list[SensitivityRow], constants: Constants) -> None:
    """What a person sees: tables, then one sentence on what limits the design."""
    from phaze_opt.objective.references import evaluate_references
    from phaze_opt.report.tables import evaluation_tables, limits_sentence, sensitivity_table

    references = evaluate_references(scenario, (evaluation.micro_batch,), constants=constants)
    screen = out()
    for table in evaluation_tables(evaluation, references=references):
        screen.print(table)
    if evaluation.is_feasible:
        screen.print(limits_sentence(evaluation))
    if rows:
        screen.print(sensitivity_table(rows))
