"""``po.study`` and ``po.validate``: strategies compared, and the models held against measurements."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from phaze_opt.api.kept_words import KeptWords
from phaze_opt.api.keywords import with_keywords
from phaze_opt.api.shown import Fact, Result, known_or_none
from phaze_opt.errors import InputError
from phaze_opt.jobs.measurements import dataset_names, read_machines, score_measurements
from phaze_opt.jobs.options import FormOptions, PluginOptions, RecordOptions
from phaze_opt.jobs.study import OF_STUDIES, STORAGE_VARIABLE, StudyRequest, read_config, run_study_file
from phaze_opt.record.suggestions import parse_word
from phaze_opt.report.study.document import study_to_json, write_report
from phaze_opt.report.study.findings import describe_findings
from phaze_opt.report.study.inputs import read_inputs
from phaze_opt.report.study.regret_curves import regret_picture, summarise_curves
from phaze_opt.report.validation_figures import overview_picture
from phaze_opt.study.events import StudyEvent
from phaze_opt.study.result import StudyResult
from phaze_opt.study.scores import StudySummary
from phaze_opt.study.summary import summarise
from phaze_opt.track.protocol import TrackingSession, TrialRuns, config_of, open_tracker
from phaze_opt.validation.result import Validation

if TYPE_CHECKING:
    from phaze_opt.report.picture import Picture

UNTRACKED: dict[str, Any] = {**OF_STUDIES, "tracking": {"default": False, "help": "Record the study."}}
OF_SCORES = ("regret", "area_under_curve", "evaluations", "distinct_evaluations", "probes", "charged_s", "overhead_s")
"""Figures of a search that its row has."""
PathLike = str | Path


@dataclass(frozen=True, slots=True, repr=False)
class ComparedStrategies(Result):
    """A study: every strategy on every workload in every setting, once per seed.

    Attributes:
        result: as `run_study` returns it.
        session: what recorded it.
        files: of the report, by name; none of a study that was interrupted.
        notes: sentences that were said on the way.
    """

    result: StudyResult
    session: TrackingSession[StudyEvent]
    files: Mapping[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> StudySummary | None:
        """Regret, ranks and tests; None as long as no search is finished."""
        return summarise(self.result) if self.result.cells else None

    @property
    def regret(self) -> Mapping[str, float]:
        """Median regret of every strategy, best first."""
        summary = self.summary
        return {} if summary is None else {each.contender: float(each.median_regret) for each in summary.contenders}

    @property
    def findings(self) -> tuple[str, ...]:
        """What was found, a sentence each."""
        summary = self.summary
        return () if summary is None else tuple(describe_findings(self.result, summary))

    @property
    def facts(self) -> Mapping[str, Fact]:
        """The strategies with their regret, and where the study is."""
        regret: dict[str, Fact] = {f"median regret of {name}": value for name, value in self.regret.items()}
        done: dict[str, Fact] = {"study_id": self.result.study_id, "num_searches": len(self.result.cells)}
        rest: dict[str, Fact] = {"is_complete": self.result.is_complete, "directory": str(self.result.directory)}
        return {**done, **regret, **rest}

    def rows(self) -> Iterable[Mapping[str, Fact]]:
        """A row for each search that is finished."""
        summary = self.summary
        for score in () if summary is None else summary.cells:
            yield {
                "strategy": score.contender,
                "setting": score.setting,
                "workload": score.workload,
                "seed": score.seed,
                **{name: getattr(score, name) for name in OF_SCORES},
            }

    def to_dict(self) -> dict[str, Any]:
        """The document of ``study run --json``; searches overlap, so their times are summed."""
        wall_s = sum(cell.charged_s for cell in self.result.cells)
        return study_to_json(self.result, self.session, wall_s=wall_s)

    def picture(self) -> Picture:
        """Median regret by evaluations, a line a strategy.

        Raises:
            InputError: no search is finished yet.
        """
        summary = self.summary
        if summary is None or not summary.cells:
            message = "no search of the study is finished, so there is nothing to plot"
            raise InputError(message, source=str(self.result.directory))
        inputs = read_inputs(self.result)
        return regret_picture(summarise_curves(summary.cells, inputs.contenders), inputs)


@dataclass(frozen=True, slots=True, repr=False)
class ScoredModels(Result):
    """The models against measurements; errors are in per cent of the measured value.

    Attributes:
        validation: all figures.
        notes: sentences that were said on the way.
    """

    validation: Validation
    notes: tuple[str, ...] = ()

    @property
    def mape(self) -> Mapping[str, float | None]:
        """Mean error of each data set, per cent; None where nothing is scored."""
        return {each.name: known_or_none(each.scores.mape) for each in self.validation.sets}

    @property
    def facts(self) -> Mapping[str, Fact]:
        """The mean error of each data set."""
        return {f"mape of {name}, %": value for name, value in self.mape.items()}

    def rows(self) -> Iterable[Mapping[str, Fact]]:
        """A row for each measurement: measured, predicted and its range in SI units, the error as a share."""
        for entry in self.validation.sets:
            for each in entry.rows:
                yield {
                    "dataset": entry.name,
                    "id": each.row.id,
                    "line": each.row.line,
                    "measured": known_or_none(each.measured_s),
                    "predicted": known_or_none(each.predicted_s),
                    "low": known_or_none(each.low_s),
                    "high": known_or_none(each.high_s),
                    "error": None if each.reason else known_or_none(each.error),
                    "unscored": each.reason,
                }

    def to_dict(self) -> dict[str, Any]:
        """The document of ``validate --json``."""
        return self.validation.to_json()

    def picture(self) -> Picture:
        """The error of each data set beside that of a trivial model."""
        return overview_picture(self.validation)


@with_keywords
def study(  # noqa: D417 - who calls does not give what hears of it
    file: PathLike,
    *,
    jobs: int = 1,
    resume: bool = False,
    restart: Sequence[str] = (),
    storage: str = "",
    worker: bool = False,
    dask: str = "",
    track_trials: str = "all",
    form: FormOptions,
    plugins: PluginOptions,
    records: Annotated[RecordOptions, UNTRACKED],
    watch: KeptWords,
) -> ComparedStrategies:
    """Run a study file (TOML), judge it and write its report; Ctrl-C keeps what is finished for ``resume=True``.

    Args:
        file: such as studies/quickstart.toml.
        jobs: processes.
        resume: go on with what the working directory holds of this study, or start it.
        restart: strategies whose searches all run again, as after a change of their code.
        storage: a database that other machines share; else the variable PHAZE_OPT_STORAGE.
        worker: search only; tracking and report are another machine's.
        dask: a Dask cluster: tcp://HOST:PORT, or local.
        track_trials: trials with runs of their own: all, or best of each search.
        form: options of the published form.
        plugins: code of your own that the file names.
        records: where it is kept, and what records it.
    """
    trials = parse_word(TrialRuns, track_trials, source="track_trials")
    request = StudyRequest(
        Path(file),
        records.work_dir,
        form.checked(),
        plugins.plugin_file,
        jobs=jobs,
        is_resumed=resume,
        restart=(restart,) if isinstance(restart, str) else tuple(restart),
        storage=storage or os.environ.get(STORAGE_VARIABLE, ""),
        dask=dask,
        is_worker=worker,
    )
    config = read_config(request)
    session = open_tracker("null" if worker else records.chosen_tracker, config_of(records, trials), "study")
    try:
        result = run_study_file(request, config, (session,), watch, describe_findings)
        files = {} if worker else write_report(result, session, watch)
    finally:
        session.close()
    return ComparedStrategies(result, session, files, watch.sentences)


@with_keywords
def validate(  # noqa: D417 - likewise
    *names: str,
    data: PathLike | None = None,
    dataset: Sequence[str] = (),
    machine: Sequence[PathLike] = (),
    constants: PathLike | None = None,
    watch: KeptWords,
) -> ScoredModels:
    """Score the models on measurements of real machines: the package's, or your own with the same columns.

    Args:
        names: data sets to use; all unless given.
        data: folder of CSV files, or one CSV file; the package's measurements unless given.
        dataset: the same as ``names``; of one file, the published set whose columns and models it has.
        machine: TOML files of machines of your own.
        constants: file of fitted constants that ``phaze-opt calibrate`` wrote.
    """
    files = (machine,) if isinstance(machine, str | Path) else machine
    wanted = dataset_names((dataset,) if isinstance(dataset, str) else dataset, names)
    machines = read_machines([Path(each) for each in files], watch)
    own = None if constants is None else Path(constants)
    found = score_measurements(None if data is None else Path(data), wanted, own, machines, watch)
    return ScoredModels(found, watch.sentences)
