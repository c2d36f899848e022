"""``phaze-opt graph``: what the layers of a model are made of on a chip, as a table, a page, JSON or Chakra traces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli.options import JsonOption, with_options
from phaze_opt.cli.output import check_file_to_write, out, print_json, print_tables, say, warn, working
from phaze_opt.cli.progress import TerminalWatch
from phaze_opt.jobs.options import RECORDS
from phaze_opt.jobs.profile import ProfileOptions, profile_named
from phaze_opt.jobs.watch import spared
from phaze_opt.objective.scenario_options import CHOICES
from phaze_opt.record.input_files import check_directory

if TYPE_CHECKING:
    from phaze_opt.cost.model_profile import LayerProfile, ModelProfile, PhaseProfile

MODEL_HELP = "A model of the zoo, a Hugging Face config.json or a traced-model file."
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

app = typer.Typer(
    name="graph",
    help="Show what the layers of a model are made of on a chip, or write it as Chakra execution traces.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.command("show")
@with_options
def show(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    *,
    options: ProfileOptions,
    output: Annotated[
        Path | None,
        typer.Option("--out", metavar="PAGE.html", help="Draw every layer on a page.", rich_help_panel=RECORDS),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show each distinct layer: operators by core, critical path, parameters, FLOPs, stash, intensity and traffic.

    The chip is priced as if it were designed, also if it exists; schedules are bracketed, not solved.
    """
    from phaze_opt.objective.priced_as import priced_to_json
    from phaze_opt.report.graph_page import findings, layer_table, sharding_table, weights_shared

    check_file_to_write(output, option="--out", example="layers.html")
    answer = profile_named(model, options)
    profile, note = answer.profile, answer.note
    products = weights_shared(answer.model, options.tensor_parallel)
    if json:
        rest = {
            "priced_as": priced_to_json(answer.priced)[0],
            "note": note,
            "page": None if output is None else str(output),
        }
        print_json({**profile_to_json(profile), "sharding": [asdict(each) for each in products], **rest})
    else:
        for sentence in findings(profile):
            out().print(sentence)
        print_tables(layer_table(profile))
        if products:
            print_tables(sharding_table(products, options.tensor_parallel))
        if note:
            out().print(f"Note: {note}")
    for warning in (each.warning for each in answer.priced if each.warning):
        warn(warning)
    if output is None:
        if not json:
            say("--out layers.html draws every layer on a page")
        return
    with spared("the page", TerminalWatch()):
        _write_page(output, profile)


def _write_page(path: Path, profile: ModelProfile) -> None:
    from phaze_opt.report.graph_page import page_document
    from phaze_opt.report.page import write_page

    write_page(path, page_document(profile))
    say(f"page written to {path}")


@app.command("chakra")
@with_options
def chakra(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    *,
    options: ProfileOptions,
    output: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for NAME.RANK.et.", rich_help_panel=RECORDS)
    ],
    data: Annotated[int, typer.Option("--data", min=1, max=1 << 16, help="Replicas.", rich_help_panel=CHOICES)] = 1,
    json: JsonOption = False,
) -> None:
    """Write a micro-batch as Chakra execution traces, a file a device: forward, backward, update and collectives.

    All layers are on every device of a tensor-parallel group; with --data the replicas add up their gradients.
    """
    from phaze_opt.report.chakra.trace import build_trace, write_traces
    from phaze_opt.report.text import format_time

    check_directory(output, source="--out")
    profile = profile_named(model, options, num_replicas=data).profile
    trace, name = build_trace(profile, data_parallel=data), _UNSAFE.sub("-", profile.model.name).strip("-.") or "model"
    with working("writing traces"):
        paths = write_traces(output, trace, name=name)
    found = {
        "prefix": str(output / name),
        "files": [str(path) for path in paths],
        "devices": trace.num_devices,
        "nodes": len(trace.nodes),
        "compute_seconds": trace.compute_s,
        "num_ops": sum(node.num_ops for node in trace.nodes),
        "collective_bytes": sum(node.collective.num_bytes for node in trace.nodes if node.collective is not None),
    }
    if json:
        print_json(found)
        return
    out().print(
        f"{trace.num_devices:,} traces of {len(trace.nodes):,} nodes written to {output / name}.RANK.et; their "
        f"operators take {format_time(trace.compute_s)} one after the other.",
        soft_wrap=True,
    )


def profile_to_json(profile: ModelProfile) -> dict[str, Any]:
    """All that is known of every layer; bytes and seconds."""
    training = profile.training
    return {
        "model": profile.model.name,
        "source": profile.model.source,
        "num_parameters": profile.model.num_parameters,
        "architecture": profile.accelerator.name,
        "network": profile.network.name,
        "tensor_parallel": profile.graph.tensor_parallel,
        "micro_batch": training.micro_batch,
        "sequence_length": training.sequence_length,
        "chain": list(profile.graph.chain),
        "device": {
            "num_parameters": profile.num_parameters,
            "operators": profile.num_operators,
            "flops": profile.flops,
            "stash_bytes": profile.stash_bytes,
            "operand_bytes": profile.operand_bytes,
            "traffic_bytes": profile.traffic_bytes,
            "seconds": profile.seconds,
        },
        "layers": [_layer_to_json(layer) for layer in profile.layers],
    }


def _layer_to_json(layer: LayerProfile) -> dict[str, Any]:
    graph = layer.graph
    return {
        "name": graph.name,
        "repeats": layer.repeats,
        "num_parameters": graph.num_parameters,
        "num_tied_parameters": graph.num_tied_parameters,
        "stash_bytes": graph.stash_bytes,
        "input_bytes": graph.input_bytes,
        "output_bytes": graph.output_bytes,
        "working_set_bytes": graph.working_set_bytes,
        "flops_per_byte": layer.intensity,
        **{phase.phase.value: _phase_to_json(phase) for phase in layer.phases},
    }


def _phase_to_json(phase: PhaseProfile) -> Mapping[str, Any]:
    return {
        "flops": phase.flops,
        "operand_bytes": phase.operand_bytes,
        "traffic_bytes": phase.traffic_bytes,
        "seconds": phase.seconds,
        "schedule_seconds": [phase.compute.lower_s, phase.compute.upper_s],
        "collective_seconds": phase.collective_s,
        "critical_path_seconds": phase.mobility.length_s,
        "edges": [list(edge) for edge in phase.graph.edges],
        "operators": [
            {
                "name": each.operator.name,
                "cores": each.operator.core_type.value,
                "flops": each.operator.matmul_flops,
                "vector_elements": sum(work.elements for work in each.operator.vector_works),
                "operand_bytes": each.operator.traffic_bytes,
                "traffic_bytes": each.traffic_bytes,
                "stash_bytes": each.operator.stash_bytes,
                "seconds": each.latency_s,
                "slack_seconds": slack_s,
            }
            for each, slack_s in zip(phase.operators, phase.mobility.slack_s, strict=True)
        ],
    }
