"""Rows of one kind of kernel priced together, whatever their machines and recipes: arrays of sizes and constants."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.hardware.device import Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Flags, Floats, Indices
from phaze_opt.validation.family import BlockedRows, Part
from phaze_opt_lab.estimate.expert_matmul import ExpertConstants, ExpertRows, expert_terms
from phaze_opt_lab.estimate.fused_attention import AttentionConstants, attention_rows, attention_terms
from phaze_opt_lab.estimate.kernel_constants import (
    CONSTANTS,
    KernelKind,
    Owner,
    kernel_group,
    kernel_values,
    unit_ratio,
    width_peak,
)
from phaze_opt_lab.estimate.wave_matmul import (
    LIMIT_ORDER,
    GpuSheet,
    MatmulRows,
    WaveConstants,
    WaveOptions,
    cache_ratio,
    cached_ratio,
    stable_norm,
    wave_options,
    wave_terms,
)
from phaze_opt_lab.modern.cases import KernelCase
from phaze_opt_lab.number_format import Width, facts_of, format_peak

_WIDE_RESULT_BYTES = 4.0
"""Of results of 32-bit operands; all others are handed back in 16 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelBlock:
    """Rows of one kind of kernel.

    Attributes:
        kernel: the kind.
        cases: what the rows measure.
        sizes: their sizes, shape (num_sizes, num_rows).
        sheet: their machines' data sheets.
        pairs, pair_of: machines with widths of operands and names of recipes, and each row's among them.
        repeats: a row's time over that of one product of its sizes.
        options: of matmuls, tiles and splits prepared.
    """

    kernel: KernelKind
    cases: tuple[KernelCase, ...]
    sizes: Floats
    sheet: GpuSheet
    pairs: tuple[tuple[Device, Width, tuple[str, ...]], ...]
    pair_of: Indices
    repeats: Floats
    options: WaveOptions | None

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted times, shape (num_rows,), s."""
        return np.asarray(self.repeats * np.sum([times for _, times in self.terms(fitted)], axis=0))

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Where the time of one of the rows goes."""
        repeats = float(self.repeats[index])
        return tuple(
            Part(name, repeats * float(np.broadcast_to(times, self.repeats.shape)[index]))
            for name, times in self.terms(fitted)
        )

    def terms(self, fitted: FittedConstants) -> list[tuple[str, Floats]]:
        """Named shares of all rows' times, s."""
        values = self._values(fitted)
        if self.kernel is KernelKind.MATMUL:
            return self._matmul_terms(values)
        if self.kernel is KernelKind.ATTENTION:
            return self._attention_terms(values)
        return self._expert_terms(values) if self.kernel is KernelKind.EXPERTS else self._stream_terms(values)

    def longest(self, fitted: FittedConstants) -> list[str]:
        """Name of the term that takes longest of every row."""
        names, times = zip(*self.terms(fitted), strict=True)
        table = np.array([np.broadcast_to(each, self.repeats.shape) for each in times])
        return [names[at] for at in table.argmax(axis=0).tolist()]

    def owners(self, group: str, name: str) -> Flags:
        """Which rows have a constant as their own, shape (num_rows,)."""
        has_width = [name.partition(".")[2] in ("", width) for _, width, _ in self.pairs]
        machines = [group == kernel_group(self.kernel, Owner.MACHINE, device.name) for device, _, _ in self.pairs]
        recipes = [group == kernel_group(self.kernel, Owner.RECIPE, names[0]) for _, _, names in self.pairs]
        return np.asarray((np.array(machines) & np.array(has_width) | np.array(recipes))[self.pair_of])

    def _values(self, fitted: FittedConstants) -> dict[str, Floats]:
        """Constants of every row by name."""
        pairs = [kernel_values(self.kernel, *pair, fitted=fitted) for pair in self.pairs]
        names = [constant.name for constant in CONSTANTS[self.kernel]]
        return {name: np.array([values[name] for values in pairs])[self.pair_of] for name in names}

    def _matmul_terms(self, values: dict[str, Floats]) -> list[tuple[str, Floats]]:
        if self.options is None:
            return []
        is_eager = np.array([case.recipe.is_eager for case in self.cases])
        constants = WaveConstants(
            launch_s=values["launch_s"] + values["extra_s"],
            host_s=np.where(is_eager, values["host_s"] * values["host_calls"], 0.0),
            efficiency=values["efficiency"] * values["rate"],
            sustained=values["sustained"] * values["power"],
            memory_share=values["memory_share"] * values["memory"],
            cache_ratio=cache_ratio(values["cache_rate"], self.sheet, values["memory_share"] * values["memory"]),
            cache_copies=values["cache_copies"],
            k_ramp=values["k_ramp"],
            small_tile=values["small_tile"],
            overlap_norm=values["overlap_norm"],
            quantise_s=values["quantise_s"],
            quantise_share=values["quantise_share"],
            quantise_element_s=values["quantise_element_s"],
            quantise_row_s=values["quantise_row_s"],
            unit_loads=values["unit_loads"],
            split_sums=values["split_sums"],
        )
        terms = wave_terms(matmul_rows(self.cases, self.sizes), self.options, self.sheet, constants)
        return [
            ("launch", terms.launch_s),
            ("compute at the peak", terms.ideal_s),
            ("waves not full and below the peak", terms.waves_s),
            ("power limit", terms.power_s),
            ("memory beyond compute", terms.memory_s),
            ("quantising activations", terms.quantise_s),
            ("host's launch", terms.host_s),
        ]

    def _attention_terms(self, values: dict[str, Floats]) -> list[tuple[str, Floats]]:
        element_bytes = np.array([facts_of(case.number_format).left_bytes for case in self.cases])
        rows = attention_rows(list(self.sizes), element_bytes)
        constants = AttentionConstants(
            launch_s=values["launch_s"] + values["extra_s"],
            efficiency=values["efficiency"] * values["rate"],
            ramp=values["ramp"],
            softmax=values["softmax"],
            lost_wave=values["lost_wave"],
            wide_head=values["wide_head"],
            odd_head=values["odd_head"],
            window_keys=values["window_keys"],
            memory_share=values["memory_share"] * values["memory"],
            kv_passes=values["kv_passes"],
            overlap_norm=values["overlap_norm"],
        )
        terms = attention_terms(rows, self.sheet, constants)
        return [
            ("launch", terms.launch_s),
            ("products at the peak", terms.ideal_s),
            ("softmax, waves and below the peak", terms.below_peak_s),
            ("memory beyond compute", terms.memory_s),
        ]

    def _expert_terms(self, values: dict[str, Floats]) -> list[tuple[str, Floats]]:
        tokens, pairs, local, rows, active, hidden, ffn, matrices, *tiles = self.sizes
        facts = [facts_of(case.number_format) for case in self.cases]
        experts = ExpertRows(
            tokens=tokens,
            pairs=pairs,
            experts=local,
            rows=rows,
            active=active,
            tiles=np.array(tiles),
            hidden=hidden,
            ffn=ffn,
            matrices=matrices,
            left_bytes=np.array([fact.left_bytes for fact in facts]),
            right_bytes=np.array([fact.right_bytes for fact in facts]),
        )
        constants = ExpertConstants(
            launch_s=values["launch"] * values["launch_s"],
            expert_s=values["expert_s"],
            efficiency=values["efficiency"] * values["rate"],
            memory_share=values["memory_share"] * values["memory"],
            cache_ratio=cache_ratio(values["cache_rate"], self.sheet, values["memory_share"] * values["memory"]),
            k_ramp=values["k_ramp"],
            small_tile=values["small_tile"],
            overlap_norm=values["overlap_norm"],
            strangers=values["strangers"],
            activation_passes=values["activation_passes"],
            token_passes=values["token_passes"],
        )
        terms = expert_terms(experts, self.sheet, constants)
        return [
            ("launches", terms.launch_s),
            ("weights", terms.weights_s),
            ("compute beyond weights", terms.compute_s),
            ("activations", terms.activations_s),
            ("all tokens", terms.tokens_s),
        ]

    def _stream_terms(self, values: dict[str, Floats]) -> list[tuple[str, Floats]]:
        num_bytes, rows, columns = self.sizes
        copies = num_bytes * values["cache_copies"]
        share = values["memory_share"] * values["memory"]
        cache = cache_ratio(values["cache_rate"], self.sheet, share)
        ratio = cached_ratio(copies, self.sheet.cache_bytes, cache)
        memory = num_bytes / (self.sheet.bandwidth_bytes_per_s * share * ratio)
        alone = stable_norm(columns * values["element_s"], rows * values["row_s"], LIMIT_ORDER)
        # Rows of norms take no turns.
        alone = stable_norm(alone, np.where(rows > 0.0, 0.0, values["floor_s"]), LIMIT_ORDER)
        return [
            ("launch", values["launch_s"] + values["extra_s"]),
            ("memory", memory),
            ("rows beyond memory", stable_norm(memory, alone, LIMIT_ORDER) - memory),
        ]


class KernelRows(BlockedRows[KernelBlock]):
    """Rows of several kinds of kernels."""

    def longest(self, fitted: FittedConstants) -> Sequence[str]:
        """Name of the term that takes longest of every row; empty where unscored."""
        found = [""] * len(self.measured_s)
        for places, block in self.blocks:
            for place, name in zip(places, block.longest(fitted), strict=True):
                found[place] = name
        return found


def build_block(cases: Sequence[KernelCase]) -> KernelBlock:
    """Rows of one kind prepared once."""
    kernel = cases[0].kernel
    keys = [(case.device.name, facts_of(case.number_format).width, case.recipes) for case in cases]
    devices = {case.device.name: case.device for case in cases}
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    sizes, sheet = np.array([case.sizes for case in cases]).T, _sheet(cases)
    return KernelBlock(
        kernel=kernel,
        cases=tuple(cases),
        sizes=sizes,
        sheet=sheet,
        pairs=tuple((devices[name], width, recipes) for name, width, recipes in places),
        pair_of=np.array([places[key] for key in keys]),
        repeats=np.array([case.repeats for case in cases]),
        options=wave_options(matmul_rows(cases, sizes), sheet) if kernel is KernelKind.MATMUL else None,
    )


def _sheet(cases: Sequence[KernelCase]) -> GpuSheet:
    cycles = np.array([case.device.num_multiprocessors * case.device.clock_hz for case in cases])
    return GpuSheet(
        num_units=np.array([float(case.device.num_multiprocessors) for case in cases]),
        peak_flops_per_s=np.array([format_peak(case.device, case.number_format) for case in cases]),
        bandwidth_bytes_per_s=np.array([case.device.hbm_bandwidth_bytes_per_s for case in cases]),
        cache_bytes=np.array([case.device.cache_bytes for case in cases]),
        exponentials_per_s=cycles * np.array([float(case.device.exponentials_per_cycle) for case in cases]),
        cycles_per_s=cycles,
        wide_peak_flops_per_s=np.array([width_peak(case.device, Width.WIDE) for case in cases]),
        unit_ratio=np.array([unit_ratio(case.device) for case in cases]),
    )


def matmul_rows(cases: Sequence[KernelCase], sizes: Floats) -> MatmulRows:
    """Sizes and bytes of matmuls."""
    facts = [facts_of(case.number_format) for case in cases]
    batch, m, n, k, quantise = sizes
    left = np.array([fact.left_bytes for fact in facts])
    results = np.where(left == _WIDE_RESULT_BYTES, _WIDE_RESULT_BYTES, 2.0)
    return MatmulRows(batch, m, n, k, left, np.array([fact.right_bytes for fact in facts]), results, quantise)
