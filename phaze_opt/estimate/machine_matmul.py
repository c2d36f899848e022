"""Matmuls on GPUs: tiles in waves over multiprocessors; memory beside them.

A matmul is busy for B = norm(C + exposed x S, M): C computes, M moves operands and result once, S is what must come
before or after the products themselves and so may not be hidden behind them. The norm's order says how well C and M
overlap: infinite, the longer of both; lower, a little more where they are about equal. One of many milliseconds alone
loses rate besides, B x loss x B / (B + 5 ms): the limit of power acts over milliseconds.

Tiles: C = 2 SM t_m t_n waves (k + k0) penalty / (peak e), waves = ceil(tiles / SM), minimised over the output tiles
that libraries have; k0 is the k at which filling and draining doubles the time.
S = bytes / (bandwidth e_m) of the result, as far as it outgrows the cache, which else takes it in. Systolic arrays are
priced by the estimator of designed chips (`estimate.systolic_machine`).
"""

from dataclasses import dataclass

import numpy as np

from phaze_opt.estimate.machine import MachineModel, power_norm
from phaze_opt.record.arrays import Floats

TILES = ((256, 128, 1.0), (128, 128, 1.05), (128, 64, 1.2), (64, 64, 1.5))
"""Rows, columns and relative time a FLOP of the output tiles that GPU matmul libraries have; also turned.

The relative times are assumptions; equal ones, or twice the steps, change little (decision 0196)."""

SPILL_STEEPNESS = 4.0
"""How sharply storing goes from cache to memory as the result outgrows the cache (assumption, 2 to 8: 0196)."""


SUSTAINED_S = 5e-3
"""Time in which half of the sustained loss shows (assumption, 1 to 10 ms: decision 0199)."""


@dataclass(frozen=True, slots=True)
class MatmulTerms:
    """What a matmul's time is made of; arrays of one shape, s.

    Attributes:
        ideal_s: FLOPs at the peak.
        waste_s: tiles that stick out, waves that are not full, and smaller tiles' lower rate, at the peak.
        ramp_s: filling and draining, at the peak.
        below_peak_s: what reaching only a share of the peak adds to the three.
        store_s: storing the result, as far as compute waits for it.
        memory_s: operands and result moved at the bandwidth reached.
        sustained_s: what the lower rate of long matmuls adds.
        busy_s: all of it, without the launch.
    """

    ideal_s: Floats
    waste_s: Floats
    ramp_s: Floats
    below_peak_s: Floats
    store_s: Floats
    memory_s: Floats
    sustained_s: Floats
    busy_s: Floats


def matmul_s(batch: Floats, m: Floats, n: Floats, k: Floats, machine: MachineModel) -> Floats:
    """Time of ``batch`` products of m x k by k x n, s, shape as broadcast."""
    return np.asarray(machine.launch_s + matmul_terms(batch, m, n, k, machine).busy_s)


def matmul_terms(
    batch: Floats, m: Floats, n: Floats, k: Floats, machine: MachineModel, *, left: Floats | None = None
) -> MatmulTerms:
    """The same, without the launch and by term; ``left`` elements lie in memory behind a left operand, else m k."""
    batch, m, n, k = np.broadcast_arrays(batch, m, n, k)
    filled, ramp = _tiles(batch, m, n, k, machine)
    ideal = 2.0 * batch * m * n * k / machine.peak_flops_per_s
    compute = (filled + ramp) / machine.matmul_efficiency
    store = machine.exposed_store * _store_s(batch * m * n, machine)
    memory = memory_s(batch, m, n, k, machine, left=left)
    busy = power_norm(compute + store, memory, machine.overlap_norm)
    sustained = machine.sustained_loss * busy**2 / (busy + SUSTAINED_S)
    waste, below = filled - ideal, compute - filled - ramp
    return MatmulTerms(ideal, waste, ramp, below, store, memory, sustained, busy + sustained)


def memory_s(
    batch: Floats, m: Floats, n: Floats, k: Floats, machine: MachineModel, *, left: Floats | None = None
) -> Floats:
    """Time to move both operands and the result once, s; ``left`` as of `matmul_terms`."""
    behind = m * k if left is None else left
    num_bytes = batch * (machine.element_bytes * (behind + k * n) + _result_bytes(machine) * m * n)
    return np.asarray(num_bytes / _memory_rate(machine))


def _memory_rate(machine: MachineModel) -> float:
    return machine.hbm_bandwidth_bytes_per_s * machine.matmul_memory_efficiency


def _result_bytes(machine: MachineModel) -> int:
    return machine.result_bytes or machine.element_bytes


def _store_s(results: Floats, machine: MachineModel) -> Floats:
    """Time to store so many results, as far as they outgrow the cache, s."""
    num_bytes = results * _result_bytes(machine)
    spilled = 1.0 / (1.0 + (machine.cache_bytes / np.maximum(num_bytes, 1.0)) ** SPILL_STEEPNESS)
    return np.asarray(num_bytes / _memory_rate(machine) * spilled)


def _tiles(batch: Floats, m: Floats, n: Floats, k: Floats, machine: MachineModel) -> tuple[Floats, Floats]:
    """Time at the peak in full waves of the best tiles, and of their ramps."""
    per_k = np.full(m.shape, np.inf)
    for rows, columns, penalty in TILES:
        for a, b in {(rows, columns), (columns, rows)}:
            waves = np.ceil(batch * np.ceil(m / a) * np.ceil(n / b) / machine.num_units)
            per_k = np.minimum(per_k, waves * (a * b * penalty))
    per_k = per_k * (2.0 * machine.num_units / machine.peak_flops_per_s)
    return per_k * k, per_k * machine.k_ramp
