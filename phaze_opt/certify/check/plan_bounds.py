"""Upper bounds of rows whose designs have full plans: layer times from the entries, then the least bound of any plan.

A stated bound must be no less than what follows. The closed form over cuts is tried first; rows that it does not bear
out have the program over cuts run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import BOUND_SLACK, MULTIPLIERS_FILE, Infeasibility
from phaze_opt.certify.check.bounds import BOUND_TOLERANCE, RowBounds
from phaze_opt.certify.check.files import CertificateFiles
from phaze_opt.certify.check.planned import PlannedModels
from phaze_opt.certify.check.pool import PricedPool, check_plan_slots
from phaze_opt.certify.check.problem_data import throughput
from phaze_opt.certify.check.report import demand
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.chip_template import PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.objective.scenario import OWN_ESTIMATORS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CHUNK_ROWS = 1024
"""Rows worked on at once: full plans have some thousand operators."""


@dataclass(frozen=True, slots=True)
class _LayerBounds:
    """Bounds of one model on some rows, shapes (rows, sets, layers, passes) and (rows, sets, layers), s."""

    makespan_s: Floats
    attention_s: Floats

    def take(self, rows: Ints) -> "_LayerBounds":
        """Those of some rows."""
        return _LayerBounds(self.makespan_s[rows], self.attention_s[rows])


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
        check_plan_slots(certificate.slots, self.pool, [check.even.sets for check in self.models.checks])
        capacities = certificate.space.axes.hbm_bytes
        for micro_batch in certificate.space.axes.micro_batch:
            rows = np.flatnonzero(self.space.micro_batch == micro_batch)
            step = CHUNK_ROWS * len(capacities)
            for start in range(0, len(rows), step):
                chunk = rows[start : start + step]
                bounded = chunk[self.files.points.has_bound[chunk]]
                if len(bounded):
                    self._check_chunk(bounded, micro_batch)
                num_done += len(chunk)
                yield num_done

    def _check_chunk(self, rows: Ints, micro_batch: int) -> None:
        """Rows of one micro-batch; designs that differ in memory alone share the bounds of their layers."""
        chips = chips_of(self.space.take(rows), self.models.problem.constants)
        first, alike = self._distinct(chips, self.files.points.multipliers_index[rows])
        layers = self._layer_bounds(rows[first], chips.take(first), micro_batch)
        for capacity in np.unique(self.space.hbm_bytes[rows]).tolist():
            mine = np.flatnonzero(self.space.hbm_bytes[rows] == capacity)
            self._check_rows(rows[mine], [own.take(alike[mine]) for own in layers], float(capacity))

    def _distinct(self, chips: AcceleratorTable, index: Ints) -> tuple[Ints, Ints]:
        """Places of rows whose layers may differ, and which of these each row is like.

        The package's estimators do not look at the capacity of the memory; another one might.
        """
        if self.models.problem.certificate.scenario.estimator not in OWN_ESTIMATORS:
            return np.arange(len(index)), np.arange(len(index))
        columns = [getattr(chips, field.name) for field in fields(chips) if field.name != "hbm_bytes"]
        table = np.stack([*columns, index]).astype(np.float64)
        _, first, alike = np.unique(table, axis=1, return_index=True, return_inverse=True)
        return first, alike.reshape(-1)

    def _check_rows(self, rows: Ints, layers: Sequence[_LayerBounds], capacity_bytes: float) -> None:
        """Stated bounds and reasons of some rows of one memory against those worked out."""
        points = self.files.points
        both = list(zip(self.models.checks, layers, strict=True))
        batch_s = np.array(
            [check.lower_bounds(own.makespan_s, own.attention_s, capacity_bytes=capacity_bytes) for check, own in both]
        )
        stated, reason = points.throughput_upper_samples_per_s[rows], points.reason[rows]
        upper = self._upper(batch_s)
        for at in np.flatnonzero(stated < upper * (1.0 - BOUND_TOLERANCE)).tolist():
            batch_s[:, at] = [
                check.least_bound(own.makespan_s[at], own.attention_s[at], capacity_bytes=capacity_bytes)
                for check, own in both
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

    def _layer_bounds(self, rows: Ints, chips: AcceleratorTable, micro_batch: int) -> list[_LayerBounds]:
        """Of every model, by the entries that the rows name."""
        table, index = self.files.multipliers[micro_batch], self.files.points.multipliers_index[rows]
        where = f"mb{micro_batch} of {MULTIPLIERS_FILE}"
        demand(
            (index >= 0) & (index < len(table)),
            lambda at: f"multipliers_index is {index[at]} but {where} has {len(table)} rows",
            rows=rows,
        )
        entries, found = table[index], []
        for model, check in enumerate(self.models.checks):
            estimates = self.models.estimate(model, chips)
            own = entries[:, self.models.slots(model)].astype(np.int64)
            bounds = RowBounds(self.pool, estimates, chips, own, rows)
            makespan_s = np.stack(bounds.makespans([layers.phases for layers in check.even.sets]), axis=1)
            found.append(_LayerBounds(makespan_s, check.even.attention_s(estimates.spread_s)))
        return found
