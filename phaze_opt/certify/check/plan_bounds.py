"""Upper bounds of rows whose designs have full plans: layer times from the entries, then the least bound of any plan.

A stated bound must be no less than what follows. The closed form over cuts is tried first; rows that it does not bear
out have the program over cuts run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from phaze_opt.certify.certificate import BOUND_SLACK, CERTIFICATE_FILE, MULTIPLIERS_FILE, Infeasibility
from phaze_opt.certify.check.bounds import BOUND_TOLERANCE, RowBounds, rows_of, same_rows
from phaze_opt.certify.check.files import CertificateFiles
from phaze_opt.certify.check.plans.cut_check import CutCheck
from phaze_opt.certify.check.plans.grouped import Alternative
from phaze_opt.certify.check.pool import PricedPool, check_plan_slots
from phaze_opt.certify.check.problem_data import CheckedProblem, throughput
from phaze_opt.certify.check.report import demand, refuse
from phaze_opt.estimate.protocol import CompilingEstimator, Estimates
from phaze_opt.graph.operator import Operator
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.chip_template import PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.record.arrays import Floats, Ints

CHUNK_ROWS = 2048
"""Rows worked on at once: full plans have some thousand operators."""


@dataclass(frozen=True, slots=True)
class PlannedModels:
    """Every model of a problem with its plans.

    Attributes:
        problem: scenario, space and estimator.
        checks: plans of each model.
        operators: of all its sets, as the estimator likes them.
    """

    problem: CheckedProblem
    checks: tuple[CutCheck, ...]
    operators: tuple[Sequence[Operator], ...]
    _at_links: dict[float, "PlannedModels"] = field(default_factory=dict, repr=False)

    def at_links(self, link_bytes_per_s: float) -> "PlannedModels":
        """The models of chips with links of their own; see `CheckedProblem.at_links`."""
        problem = self.problem.at_links(link_bytes_per_s)
        if problem is self.problem:
            return self
        if link_bytes_per_s not in self._at_links:
            self._at_links[link_bytes_per_s] = planned_models(problem)
        return self._at_links[link_bytes_per_s]

    def slots(self, model: int) -> list[int]:
        """The model's columns of the multipliers."""
        return [number for number, slot in enumerate(self.problem.certificate.slots) if slot.model == model]

    def estimate(self, model: int, chips: AcceleratorTable) -> Estimates:
        """Latencies of all operators of a model on all chips."""
        return self.problem.estimator.estimate(self.operators[model], chips)

    def alternatives(self, model: int, chips: AcceleratorTable) -> list[Alternative]:
        """The same; where layers are fused all that units may run as, of which the least bounds."""
        estimates, grouped = self.estimate(model, chips), self.checks[model].even.grouped
        if grouped is None:
            return [((1.0, estimates),)]
        return grouped.alternatives(estimates, self.problem.estimator, chips)


def planned_models(problem: CheckedProblem) -> PlannedModels:
    """The plans of every model.

    Raises:
        CertificateError: a model has none, or the scenario has no plans or stages that are given.
    """
    scenario, estimator = problem.certificate.scenario, problem.estimator
    if scenario.plans is None:
        refuse("its scenario has no full plans", file=CERTIFICATE_FILE)
    if scenario.plans.blocks or scenario.plans.stage_recompute:
        refuse("its plans are of given stages, and a proof is over all of them", file=CERTIFICATE_FILE)
    checks = tuple(CutCheck(scenario, model, scenario.plans) for model in scenario.models)
    for check, model in zip(checks, scenario.models, strict=True):
        if not check.even.plans:
            refuse(f"its scenario admits no parallel plan of model {model.name:.60}", file=CERTIFICATE_FILE)
    operators: list[Sequence[Operator]] = [check.even.operators for check in checks]
    if isinstance(estimator, CompilingEstimator):
        operators = [estimator.compile(each) for each in operators]
    return PlannedModels(problem, checks, tuple(operators))


@dataclass(frozen=True, slots=True)
class _LayerBounds:
    """Bounds of one model on some rows, shapes (rows, sets, layers, passes) and (rows, sets, layers), s."""

    makespan_s: Floats
    attention_s: Floats


@dataclass(frozen=True, slots=True)
class PlanBoundCheck:
    """Works out the bounds of all rows of a certificate with full plans.

    Attributes:
        models: the problem and the plans of its models.
        files: rows and multipliers.
        pool: priced entries.
        space: every point of it.
    """

    models: PlannedModels
    files: CertificateFiles
    pool: PricedPool
    space: PointColumns

    def check(self) -> Iterator[int]:
        """Check every row; yields how many are done.

        Raises:
            CertificateError: names the first row whose bound does not follow.
        """
        certificate, num_done = self.models.problem.certificate, 0
        for micro_batch, capacity, links in same_rows(certificate.space.axes.micro_batch, self.space):
            own = replace(self, models=self.models.at_links(float(links)))
            # Slots are those of every network that the links of some rows make.
            check_plan_slots(certificate.slots, self.pool, [check.even.sets for check in own.models.checks])
            rows = rows_of(self.space, micro_batch, capacity, links)
            for start in range(0, len(rows), CHUNK_ROWS):
                chunk = rows[start : start + CHUNK_ROWS]
                bounded = chunk[self.files.points.has_bound[chunk]]
                if len(bounded):
                    own._check_chunk(bounded, micro_batch, float(capacity))
                num_done += len(chunk)
                yield num_done

    def _check_chunk(self, rows: Ints, micro_batch: int, capacity_bytes: float) -> None:
        """Stated bounds and reasons of some rows of one memory and rate of links against those worked out."""
        points = self.files.points
        layers = self._layer_bounds(rows, micro_batch)
        batch_s = np.array(
            [
                check.lower_bounds(own.makespan_s, own.attention_s, capacity_bytes=capacity_bytes)
                for check, own in zip(self.models.checks, layers, strict=True)
            ]
        )
        stated, reason = points.throughput_upper_samples_per_s[rows], points.reason[rows]
        upper = self._upper(batch_s)
        open_rows = np.flatnonzero(stated < upper * (1.0 - BOUND_TOLERANCE))
        if len(open_rows):
            for model, (check, own) in enumerate(zip(self.models.checks, layers, strict=True)):
                batch_s[model, open_rows] = [
                    check.least_bound(own.makespan_s[at], own.attention_s[at], capacity_bytes=capacity_bytes)
                    for at in open_rows
                ]
            upper = self._upper(batch_s)
        says_full, is_full = reason == Infeasibility.OUT_OF_MEMORY.value, upper == 0.0

        def rule(at: int) -> str:
            if says_full[at]:
                return f"reason is '{reason[at]}' but a plan fits"
            if is_full[at]:
                return "no plan fits the memory but the row is not infeasible"
            return f"throughput_upper_samples_per_s is {stated[at]:.9g} but its multipliers let {upper[at]:.9g} be"

        demand((says_full == is_full) & (stated >= upper * (1.0 - BOUND_TOLERANCE)), rule, rows=rows)

    def _upper(self, batch_s: Floats) -> Floats:
        """Throughput of bounds, shape (models, rows) to (rows,), with room for what rounding may have added."""
        return throughput(self.models.problem.certificate.scenario, batch_s * (1.0 - BOUND_SLACK))

    def _layer_bounds(self, rows: Ints, micro_batch: int) -> list[_LayerBounds]:
        """Of every model, by the entries that the rows name."""
        chips = chips_of(self.space.take(rows), self.models.problem.constants)
        table, index = self.files.multipliers[micro_batch], self.files.points.multipliers_index[rows]
        where = f"mb{micro_batch} of {MULTIPLIERS_FILE}"
        demand(
            (index >= 0) & (index < len(table)),
            lambda at: f"multipliers_index is {index[at]} but {where} has {len(table)} rows",
            rows=rows,
        )
        entries, found = table[index], []
        for model, check in enumerate(self.models.checks):
            alternatives = self.models.alternatives(model, chips)
            own = entries[:, self.models.slots(model)].astype(np.int64)
            phases, whole = [layers.phases for layers in check.even.sets], alternatives[0][0][1]
            whole_s = RowBounds(self.pool, whole, chips, own, rows).makespans(phases)
            # Other phases than those of groups are what they are, whatever units run as.
            same_s = {
                phase.span: whole_s[at][:, row, column]
                for at, layers in enumerate(phases)
                for row, layer in enumerate(layers)
                for column, phase in enumerate(layer)
                if not check.even.may_be_grouped(phase)
            }
            known = {id(whole): np.stack(whole_s, axis=1)}
            for estimates in (each for shares in alternatives for _, each in shares):
                if id(estimates) not in known:
                    bounds = RowBounds(self.pool, estimates, chips, own, rows)
                    known[id(estimates)] = np.stack(bounds.makespans(phases, known=same_s), axis=1)
            ways_s = [np.sum([share * known[id(each)] for share, each in shares], axis=0) for shares in alternatives]
            makespan_s = np.asarray(np.min(ways_s, axis=0))
            found.append(_LayerBounds(makespan_s, check.even.attention_s(whole.spread_s)))
        return found
