"""``phaze-opt study``: run controlled studies, list them, hold two side by side."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli import options
from phaze_opt.cli.exit_codes import EXIT_FAULT, EXIT_INTERRUPTED
from phaze_opt.cli.output import end_infeasible, out, print_json, say, say_undelivered
from phaze_opt.cli.progress import TerminalWatch
from phaze_opt.jobs.options import DASK_HELP, JOBS_HELP, MAX_JOBS, RECORDS, FormOptions, PluginOptions, RecordOptions
from phaze_opt.jobs.study import (
    OF_STUDIES,
    STORAGE_VARIABLE,
    STUDIES_HELP,
    StudyRequest,
    compare_kept,
    list_kept,
    read_config,
    run_study_file,
)
from phaze_opt.jobs.watch import spared
from phaze_opt.objective.scenario_options import Declaration, Kind
from phaze_opt.record.suggestions import parse_word
from phaze_opt.report.text import counted

if TYPE_CHECKING:
    from phaze_opt.study.config import StudyConfig
    from phaze_opt.study.result import StudyResult
    from phaze_opt.track.protocol import Delivery, TrackingSession

JOBS = Declaration(JOBS_HELP, Kind.COUNT, flag="--jobs", high=MAX_JOBS)
MACHINES = "Beyond one machine"
WorkDirOption = Annotated[Path, typer.Option("--work-dir", help=STUDIES_HELP, rich_help_panel=RECORDS)]

app = typer.Typer(
    name="study",
    help="Controlled studies: every strategy on every workload in every setting, once per seed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.command("run")
@options.with_options
def run(
    file: Annotated[Path, typer.Argument(help="A study file (TOML), such as studies/quickstart.toml.")],
    *,
    jobs: Annotated[int, options.typer_option(JOBS)] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue what the working directory holds of this study, or start it.")
    ] = False,
    restart: Annotated[
        list[str] | None,
        typer.Option(
            "--restart",
            help="Run all searches of this strategy again, as after a change of its code; goes on with the rest as "
            "--resume does. May be repeated.",
            metavar="NAME",
        ),
    ] = None,
    storage: Annotated[
        str,
        typer.Option(
            "--storage",
            help="Share evaluations with other machines: postgresql://USER@HOST/DATABASE. An address with a password "
            "belongs in the variable, as others see the arguments of a process.",
            envvar=STORAGE_VARIABLE,
            rich_help_panel=MACHINES,
        ),
    ] = "",
    worker: Annotated[
        bool,
        typer.Option(
            "--worker", help="Search only; tracking and report are another machine's.", rich_help_panel=MACHINES
        ),
    ] = False,
    dask: Annotated[str, typer.Option("--dask", help=DASK_HELP, rich_help_panel=MACHINES)] = "",
    form: FormOptions,
    plugins: PluginOptions,
    records: Annotated[RecordOptions, OF_STUDIES],
    track_trials: Annotated[
        str,
        typer.Option(
            "--track-trials",
            help="Trials with runs of their own: all, or the best of each search (for large studies).",
            metavar="[all|best]",
            rich_help_panel=RECORDS,
        ),
    ] = "all",
    details: options.DetailsOption = False,
    json: options.JsonOption = False,
) -> None:
    """Run a study; Ctrl-C keeps what is finished and --resume goes on from there."""
    from phaze_opt.track.protocol import TrialRuns, config_of, open_tracker

    trials, published = parse_word(TrialRuns, track_trials, source="--track-trials"), form.checked()
    request = StudyRequest(
        file,
        records.work_dir,
        published,
        plugins.plugin_file,
        jobs=jobs,
        is_resumed=resume,
        restart=tuple(restart or ()),
        storage=storage,
        dask=dask,
        is_worker=worker,
    )
    config = read_config(request)
    if restart and not resume:
        say("--restart goes on with what is there, as --resume does")
    session = open_tracker("null" if worker else records.chosen_tracker, config_of(records, trials), "study")
    result, delivery = _run_and_print(request, config, session, is_detailed=details, is_json=json)
    words = (["--as", published] if published else []) + [f"--plugin-file {path}" for path in plugins.plugin_file]
    _conclude(result, delivery, " ".join(["phaze-opt study run", str(file), *words]))


def _run_and_print(
    request: StudyRequest, config: StudyConfig, session: TrackingSession[Any], *, is_detailed: bool, is_json: bool
) -> tuple[StudyResult, Delivery]:
    """Run a study, print what it found and write its report."""
    from phaze_opt.cli.study_output import print_record, print_study
    from phaze_opt.report.study.document import study_to_json, write_report
    from phaze_opt.report.study.findings import describe_findings

    started, watch = time.monotonic(), TerminalWatch(is_json)
    result: StudyResult | None = None
    files: dict[str, Path] = {}
    try:
        result = run_study_file(request, config, (session,), watch, describe_findings)
        wall_s = time.monotonic() - started
        if not is_json:
            print_study(result, is_detailed=is_detailed)
        if not request.is_worker:
            with spared("the report", watch):
                files = write_report(result, session, watch)
    finally:
        delivery = session.close()
        if result is not None and is_json:
            print_json(study_to_json(result, session, wall_s=wall_s))
        elif result is not None:
            print_record(files, session, is_detailed=is_detailed)
    return result, delivery


def _conclude(result: StudyResult, delivery: Delivery, again: str) -> None:
    """Say what waits for the tracker's store, and end with the exit code that the study deserves.

    ``again`` is the command that goes on, but for how.
    """
    say_undelivered(delivery)
    if result.is_interrupted:
        say(
            f"interrupted after {len(result.cells)} of {counted(result.num_cells, 'search', 'searches')}; everything "
            f"finished is kept: {again} --resume"
        )
        raise typer.Exit(EXIT_INTERRUPTED)
    if result.failures:
        say(_failed(result, again))
        raise typer.Exit(EXIT_FAULT)
    if not any(trial.values for cell in result.cells for trial in cell.trials):
        end_infeasible("no trial of any search satisfied every constraint")


def _failed(result: StudyResult, again: str) -> str:
    """Which searches failed, where their tracebacks are and what to do."""
    failed = f"{len(result.failures)} of {counted(result.num_cells, 'search', 'searches')} failed"
    return (
        f"{failed} by faults in the code of {', '.join(result.unranked)}; "
        f"tracebacks are in {result.failures[0].file.parent}. Mend the code and run: {again} "
        + " ".join(f"--restart {name}" for name in result.unranked)
    )


@app.command("list")
def list_command(*, work_dir: WorkDirOption = Path(), json: options.JsonOption = False) -> None:
    """List the studies of the working directory, latest first."""
    from phaze_opt.cli.study_output import print_list

    rows = list_kept(work_dir)
    if json:
        print_json(rows)
    elif rows:
        print_list(rows)
    else:
        out().print(f"no study in {work_dir / 'phaze-opt-studies'}; `phaze-opt study run FILE` makes one")


@app.command("compare")
def compare(
    first: Annotated[str, typer.Argument(help="A study by its name, its identifier or its directory.")],
    second: Annotated[str, typer.Argument(help="Another one.")],
    *,
    work_dir: WorkDirOption = Path(),
    json: options.JsonOption = False,
) -> None:
    """Hold two studies side by side: the contenders and conditions that both have."""
    from phaze_opt.cli.study_output import print_comparison
    from phaze_opt.report.study.findings import comparison_to_json

    comparison = compare_kept(first, second, work_dir)
    if json:
        print_json(comparison_to_json(comparison))
    else:
        print_comparison(comparison)
