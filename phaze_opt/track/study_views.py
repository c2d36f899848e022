"""Views of searches and studies that MLflow's interface opens by address: which runs, columns and charts.

The interface shows no metric columns until one clicks, and no tag changes that default. It does keep a view that is
shared under an experiment tag ``mlflow.sharedViewState.<key>`` and opens it for ``...?viewStateShareKey=<key>``. The
format is what its share button writes (MLflow 3.17); an interface that does not know it says so and shows its default.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final
from urllib.parse import quote

from phaze_opt.hardware.chip_template import AXES
from phaze_opt.objective.evaluation import THROUGHPUT, Evaluation
from phaze_opt.record.result_fields import headlines_of
from phaze_opt.track.destination import Destination
from phaze_opt.track.pending_delivery import Record
from phaze_opt.track.runs import EXPERIMENT_TAGS, Role, Tag, find_experiment

if TYPE_CHECKING:
    from mlflow import MlflowClient


CURVE = "regret_curve_pct"
"""Of a search its regret after each evaluation; of a strategy the median over its searches."""
VIEW_TAG = "mlflow.sharedViewState."
ARCHITECTURE = tuple(known.key for known in AXES if not isinstance(known.default, str))
"""Params of a design, without those that follow from another."""
COMPLETE_ARCHITECTURE = tuple(
    known.key for known in AXES if not known.is_optional or known.name == "glb_bytes_per_cycle"
)
"""Those that no design lacks: parallel coordinates leave out runs that lack one. Chips have a rate of their buffer."""
STRATEGY_METRICS = (
    "median_regret_pct",
    "mean_regret_pct",
    "mean_rank",
    "win_share",
    "evaluations_to_1pct",
    "distinct_evaluations",
    "probes",
    "charged_s",
)
"""Columns of the strategies, as far as the study has them."""
COMPLETE_METRICS = ("median_regret_pct", "mean_regret_pct", "mean_rank", "probes", "charged_s")
"""Those that no strategy lacks, for parallel coordinates."""
SEED_METRICS = (
    "regret_pct",
    THROUGHPUT,
    "throughput_per_tdp",
    "evaluations_to_1pct",
    "distinct_evaluations",
    "probes",
    "charged_s",
)
TRIAL_METRICS = tuple(each.name for each in headlines_of(Evaluation))
SEARCH_PARAMS = ("strategy", "goal", "seed", "num_trials")
SEARCH_METRICS = (*TRIAL_METRICS, "num_trials_feasible", "wall_s")
MAX_COLUMNS = 8
RUN_NAME = "attributes.`Run Name`"
COLUMN_WIDTH = 145
NAME_WIDTH = 400
CARD_HEIGHT = 380
SECTION = "Answers"
OTHERS = "Model metrics"
"""The interface's own name for the section of charts that no view asks for."""


@dataclass(frozen=True, slots=True)
class RunsView:
    """One view.

    Attributes:
        key: under which it is shared.
        title: of its link.
        role: of the runs it lists.
        columns: such as ``metrics.`mfu```.
        order_by: column that sorts.
        is_ascending: whether small values come first.
        charts: shown first, as the interface keeps them.
        group_by: params whose runs are averaged together; none for single runs.
        num_columns: charts side by side.
    """

    key: str
    title: str
    role: str
    columns: tuple[str, ...]
    order_by: str
    is_ascending: bool
    charts: tuple[dict[str, Any], ...]
    group_by: tuple[str, ...] = ()
    num_columns: int = 3

    def state(self, mark: str) -> str:
        """What the interface reads, as JSON; ``mark`` is what else the runs are known by, and may be empty."""
        section = f"{self.key}-answers"
        charts = [{**chart, "metricSectionId": section} for chart in self.charts]
        grouping = {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": "param", "groupByData": name} for name in self.group_by],
        }
        state = {
            "searchFilter": " AND ".join(filter(None, (f"tags.`{Tag.ROLE}` = '{self.role}'", mark))),
            "orderByKey": self.order_by,
            "orderByAsc": self.is_ascending,
            "selectedColumns": list(self.columns),
            "columnOrder": [RUN_NAME, *self.columns],
            "columnWidths": {RUN_NAME: NAME_WIDTH, **dict.fromkeys(self.columns, COLUMN_WIDTH)},
            "groupBy": grouping if self.group_by else None,
            "runsHiddenMode": "SHOW_ALL",
            "hideEmptyCharts": True,
            "compareRunCharts": charts,
            "compareRunSections": [
                {"uuid": section, "name": SECTION, "display": True, "isReordered": True}
                | {"columns": self.num_columns, "cardHeight": CARD_HEIGHT},
                {"uuid": f"{self.key}-others", "name": OTHERS, "display": False, "isReordered": False},
            ],
        }
        return json.dumps(state, separators=(",", ":"))

    def table_link(self, experiment_id: str) -> str:
        """Address of the list within the interface."""
        return f"#/experiments/{experiment_id}/runs?viewStateShareKey={self.key}&workflowType=machine_learning"

    def chart_link(self, experiment_id: str) -> str:
        """Address of the charts within the interface."""
        return f"{self.table_link(experiment_id)}&compareRunsMode=CHART"


def study_views(strategy_metrics: Sequence[str] = ()) -> tuple[RunsView, ...]:
    """Strategies, conditions, searches and trials; ``strategy_metrics`` are those that the study has."""
    return (_strategies(strategy_metrics), _conditions(), _searches(), _trials())


def _strategies(metrics: Sequence[str]) -> RunsView:
    shown = [name for name in STRATEGY_METRICS if name in metrics] or list(metrics) or list(STRATEGY_METRICS)
    shown = shown[:MAX_COLUMNS]
    bars = [_bar(name) for name in shown[:4]]
    charts = (
        *bars[:1],
        _line(CURVE),
        *bars[1:],
        _parallel(("strategy",), [name for name in shown if name in COMPLETE_METRICS]),
    )
    columns = tuple(metric_column(name) for name in shown)
    return RunsView("strategies", "strategies", Role.CONTENDER, columns, columns[0], True, charts)


def _conditions() -> RunsView:
    """Where a strategy wins: searches of one workload, setting and strategy averaged."""
    group_by = ("workload", "strategy", "setting")
    columns = tuple(metric_column(name) for name in SEED_METRICS)
    charts = (_bar("regret_pct"), _line(CURVE), _bar("evaluations_to_1pct"))
    return RunsView(
        "conditions", "by workload", Role.CELL, columns, metric_column("regret_pct"), True, charts, group_by
    )


def _searches() -> RunsView:
    params = ("strategy", "setting", "workload", "seed")
    columns = (*(param_column(name) for name in params), *(metric_column(name) for name in SEED_METRICS))
    charts = (_parallel(params, SEED_METRICS[:2]), _line(CURVE), _bar("regret_pct"))
    return RunsView("searches", "searches", Role.CELL, columns, metric_column("regret_pct"), True, charts)


def _trials() -> RunsView:
    return _designs("trials", "trials", ("strategy", "workload", "seed"), metric_column(THROUGHPUT))


def _designs(key: str, title: str, params: Sequence[str], order: str) -> RunsView:
    """Runs of trials, the largest in a column first, with their chips and what these come to."""
    columns = (
        *(param_column(name) for name in params),
        *(metric_column(name) for name in TRIAL_METRICS),
        *(param_column(name) for name in ARCHITECTURE),
    )
    scatter = {
        "type": "SCATTER",
        "uuid": "scatter-area",
        "xaxis": {"key": "area_mm2", "type": "METRIC"},
        "yaxis": {"key": THROUGHPUT, "type": "METRIC"},
        "runsCountToCompare": 100,
    }
    charts = (_parallel(COMPLETE_ARCHITECTURE, ("tdp_w", "area_mm2", THROUGHPUT)), scatter)
    return RunsView(key, title, Role.TRIAL, columns, order, False, charts, num_columns=2)


def search_views(goal: str = "") -> tuple[RunsView, ...]:
    """The designs of one search, and all searches beside each other, the best of either on top.

    Args:
        goal: of the search, by which its designs are sorted; empty for throughput.
    """
    best = metric_column("throughput_per_tdp" if goal == "throughput_per_tdp" else THROUGHPUT)
    designs = _designs("search", "designs of the newest search", (), best)
    columns = (*(param_column(name) for name in SEARCH_PARAMS), *(metric_column(name) for name in SEARCH_METRICS))
    charts = (_bar(THROUGHPUT), _line(f"best_{THROUGHPUT}"), _bar("tdp_w"))
    return designs, RunsView("searches-by-best", "all searches", Role.SEARCH, columns, best, False, charts)


def view_links(views: Iterable[RunsView], experiment_id: str) -> list[str]:
    """Links to the list and the charts of each view, in Markdown."""
    return [
        f"[{view.title}]({view.table_link(experiment_id)}) ([charts]({view.chart_link(experiment_id)}))"
        for view in views
    ]


def describe_searches(client: MlflowClient, experiment_id: str, attempt: str, goal: str) -> None:
    """Write the views of the newest search into its experiment; a note that somebody else wrote stays.

    Args:
        client: of the store.
        experiment_id: of the search.
        attempt: of the search, which all its runs bear.
        goal: of the search.
    """
    known = client.get_experiment(experiment_id).tags
    views = search_views(goal)
    marks = (f"tags.`{Tag.ATTEMPT}` = '{attempt}'", "")
    tags = {f"{VIEW_TAG}{view.key}": view.state(mark) for view, mark in zip(views, marks, strict=True)}
    if known.get(Tag.NOTE, "").endswith(EXPERIMENT_TAGS[Tag.NOTE]):
        links = " \N{MIDDLE DOT} ".join(view_links(views, experiment_id))
        tags[Tag.NOTE] = f"Views: {links} \N{EM DASH} {EXPERIMENT_TAGS[Tag.NOTE]}"
    for key, value in tags.items():
        if known.get(key) != value:
            client.set_experiment_tag(experiment_id, key, value)


def metric_column(name: str) -> str:
    """How the interface names a column of a metric."""
    return f"metrics.`{name}`"


def param_column(name: str) -> str:
    """How the interface names a column of a param."""
    return f"params.`{name}`"


def compare_link(experiment_id: str, run_ids: Iterable[str]) -> str:
    """Address, within the interface, of runs compared."""
    runs, experiments = json.dumps(list(run_ids), separators=(",", ":")), json.dumps([experiment_id])
    return f"#/compare-runs?runs={quote(runs)}&experiments={quote(experiments)}"


def _bar(metric: str) -> dict[str, Any]:
    return {"type": "BAR", "uuid": f"bar-{metric}", "metricKey": metric, "displayName": metric}


def _line(metric: str) -> dict[str, Any]:
    return {
        "type": "LINE",
        "uuid": f"line-{metric}",
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "displayName": f"{metric} by evaluations",
        "lineSmoothness": 0,
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "xAxisKey": "step",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "range": {},
        "selectedXAxisMetricKey": "",
        "useGlobalXaxisKey": False,
        "useGlobalLineSmoothing": False,
    }


def _parallel(params: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "PARALLEL",
        "uuid": "parallel",
        "displayName": "Parallel coordinates",
        "selectedParams": list(params),
        "selectedMetrics": list(metrics),
        "showAllRuns": True,
    }


STUDY_TAG = "phaze_opt.study_id"
PRIMARY_METRIC = {
    "mlflow.experiment.primaryMetric.name": "median_regret_pct",
    "mlflow.experiment.primaryMetric.greaterIsBetter": "False",
}
MAX_EXPERIMENT_TAG_LENGTH = 5000


@final
@dataclass(frozen=True, slots=True)
class StudyExperiment:
    """Finds, makes and describes experiments."""

    client: MlflowClient
    destination: Destination

    def open(self, started: Record) -> str:
        """Identifier of a study's experiment, made and described if it is not there."""
        tags = {**EXPERIMENT_TAGS, **PRIMARY_METRIC, STUDY_TAG: started["study_id"], Tag.NOTE: started["description"]}
        cut = {key: value[:MAX_EXPERIMENT_TAG_LENGTH] for key, value in tags.items()}
        name = str(started["experiment"])
        experiment_id = find_experiment(self.client, name, destination=self.destination, tags=cut)
        self.describe(experiment_id, started)
        return experiment_id

    def describe(
        self, experiment_id: str, started: Record, *, run_ids: Sequence[str] = (), metrics: Sequence[str] = ()
    ) -> None:
        """Write views, with the columns and a comparison of runs that a finished study has; another's note stays."""
        known = self.client.get_experiment(experiment_id).tags
        study_id = started["study_id"]
        views = study_views(metrics)
        tags = {f"{VIEW_TAG}{view.key}": view.state(f"tags.study_id = '{study_id}'") for view in views}
        if STUDY_TAG in known or Tag.NOTE not in known:
            links = view_links(views, experiment_id)
            if run_ids:
                links.insert(0, f"[compare]({compare_link(experiment_id, run_ids)})")
            tags[Tag.NOTE] = _note("Views: " + " · ".join(links), started["description"].strip())
            tags[STUDY_TAG] = study_id
        for key, value in tags.items():
            if known.get(key) != value:
                self.client.set_experiment_tag(experiment_id, key, value)


def _note(links: str, description: str) -> str:
    """Links and description; on one line where the description begins with words, as the interface folds the rest."""
    header = links + (" — " if description[:1].isalnum() else "\n\n")
    return header + description[: MAX_EXPERIMENT_TAG_LENGTH - len(header)]
