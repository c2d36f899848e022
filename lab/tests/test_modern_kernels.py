"""Kernels of modern GPUs: waves by brute force, pairs by counting, loads by their sums, kin by closed form."""

import math
from dataclasses import replace

import numpy as np
import pytest

from phaze_opt.errors import InputError
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt_lab.estimate.expert_load import ROW_TILES, expert_load, exponent_of
from phaze_opt_lab.estimate.expert_matmul import ExpertConstants, ExpertRows, ExpertTerms, expert_terms
from phaze_opt_lab.estimate.fused_attention import (
    AttentionConstants,
    AttentionRows,
    attention_flops,
    attention_terms,
    visible_pairs,
)
from phaze_opt_lab.estimate.kernel_constants import (
    CONSTANTS,
    KernelKind,
    Owner,
    donors,
    kernel_group,
    kernel_values,
    machine_values,
    nearest_kin,
    recipe_values,
    unit_ratio,
)
from phaze_opt_lab.estimate.wave_matmul import (
    K_SPLITS,
    SLIM_TILES,
    SUM_BANDWIDTHS,
    SUM_BYTES,
    SUM_S,
    TILES,
    GpuSheet,
    MatmulRows,
    WaveConstants,
    cache_ratio,
    waste_note,
    wave_options,
    wave_terms,
)
from phaze_opt_lab.number_format import NumberFormat, Width, facts_of, format_of, format_peak, has_units

NONE = FittedConstants({})


def sheet(
    count: int = 1,
    *,
    units: float = 132,
    peak: float = 1e15,
    bandwidth: float = 3e12,
    exponentials: float = 4e12,
    ratio: float = 1.0,
) -> GpuSheet:
    values = (units, peak, bandwidth, 50e6, exponentials, units * 1.8e9, 1e15 / ratio, ratio)
    return GpuSheet(*(np.full(count, value) for value in values))


def wave_constants(count: int = 1, **given: float) -> WaveConstants:
    values = dict(launch_s=2e-6, host_s=0.0, efficiency=0.8, sustained=0.7, memory_share=0.8, cache_ratio=2.0)
    values |= dict(
        cache_copies=4.0, k_ramp=100.0, small_tile=0.5, overlap_norm=3.0, quantise_s=3e-6, quantise_share=0.6
    )
    values |= dict(quantise_element_s=1e-12, quantise_row_s=1e-12, unit_loads=0.02, split_sums=2.0)
    return WaveConstants(**{name: np.full(count, value) for name, value in (values | given).items()})


def matmuls(sizes: list[tuple[float, float, float, float]], *, quantise: float = 0.0) -> MatmulRows:
    batch, m, n, k = np.array(sizes, np.float64).T
    two = np.full(len(sizes), 2.0)
    return MatmulRows(batch, m, n, k, two, two, two, np.full(len(sizes), quantise))


def seconds(rows: MatmulRows, constants: WaveConstants, machine: GpuSheet) -> np.ndarray:
    return wave_terms(rows, wave_options(rows, machine), machine, constants).seconds


def by_hand(batch: float, m: float, n: float, k: float) -> float:
    """The formula of the module, one option after the other, in plain numbers."""
    best = math.inf
    for a, c in (*TILES, *SLIM_TILES):
        cost = 1 + 0.5 * (math.sqrt(128 * 256 / (a * c)) - 1)
        for split in K_SPLITS:
            waves = math.ceil(batch * math.ceil(m / a) * math.ceil(n / c) * split / 132)
            work = 2 * 132 * a * c * waves * cost / (1e15 * 0.8)
            loads = waves * 2 * (min(a, m) + min(c, n)) / (1e15 / 132 * 0.02)
            time = (k / split + 100) * math.hypot(work, loads)
            if split > 1:
                time += 2 * (SUM_S + SUM_BYTES * (split + 1) * batch * m * n / (SUM_BANDWIDTHS * 3e12))
            best = min(best, time)
    power = 2 * batch * m * n * k / 1e15 / 0.7
    compute = (best**8 + power**8) ** (1 / 8)
    num_bytes = 2 * batch * (m * k + k * n + m * n)
    ratio = 1 + 1 / (1 + (4 * num_bytes / 50e6) ** 4)
    memory = num_bytes / (3e12 * 0.8 * ratio)
    return 2e-6 + (compute**3 + memory**3) ** (1 / 3)


def test_waves_are_those_of_every_option_tried_in_turn() -> None:
    rng = np.random.default_rng(3)
    sizes = [tuple(float(value) for value in (rng.integers(1, 5), *rng.integers(1, 9000, 3))) for _ in range(60)]
    sizes += [(1, 1, 1, 1), (1, 256, 256, 8192), (1, 257, 8192, 8192), (1, 65536, 65536, 128)]
    found = seconds(matmuls(sizes), wave_constants(len(sizes)), sheet(len(sizes)))
    assert found == pytest.approx([by_hand(*each) for each in sizes], rel=1e-12)


def test_one_row_past_a_tile_costs_and_more_units_never_do() -> None:
    sizes = [(1.0, 256.0, 8192.0, 8192.0), (1.0, 257.0, 8192.0, 8192.0)]
    even, odd = seconds(matmuls(sizes), wave_constants(2, overlap_norm=12.0), sheet(2))
    assert 1.02 < odd / even < 2.0
    for size in sizes:
        few, many = (sheet(units=units, peak=units * 7e12) for units in (64, 128))
        assert seconds(matmuls([size]), wave_constants(), many) <= seconds(matmuls([size]), wave_constants(), few)


def test_few_tiles_on_a_long_k_wait_for_their_loads_unless_k_is_split() -> None:
    size = (1.0, 16.0, 64.0, 65536.0)
    whole, split, wide = (
        seconds(matmuls([size]), wave_constants(**given), sheet(peak=1e17))[0]
        for given in ({"split_sums": 1e6}, {}, {"split_sums": 1e6, "unit_loads": 0.2})
    )
    # One multiprocessor loads both operands, 2 bytes in the time of 100 FLOPs.
    loads = 65536 * 2 * (16 + 64) / (1e15 / 132 * 0.02)
    assert loads < whole - 2e-6 < 1.1 * loads
    assert split < 0.3 * whole
    assert wide < 0.4 * whole


def test_the_power_limit_is_the_rate_of_long_matmuls() -> None:
    rows = matmuls([(1.0, 16384.0, 16384.0, 16384.0)])
    time = seconds(rows, wave_constants(sustained=0.4), sheet())[0]
    assert rows.flops[0] / time / 1e15 == pytest.approx(0.4, rel=0.01)


def test_slowed_sums_hold_full_tiles_to_the_peak_and_leave_thin_ones_as_they_are() -> None:
    thin, full = (matmuls([(1.0, m, 4096.0, 4096.0)]) for m in (8.0, 16896.0))
    constants = wave_constants(efficiency=1.5, sustained=1.3, overlap_norm=12.0)
    whole, halved = sheet(bandwidth=1e14), sheet(bandwidth=1e14, peak=5e14, ratio=2.0)
    assert seconds(thin, constants, halved) == pytest.approx(seconds(thin, constants, whole), rel=0.05)
    share = full.flops[0] / seconds(full, constants, halved)[0] / 5e14
    assert 0.85 < share <= 1.0
    found = {name: unit_ratio(load_device(name)) for name in ("rtx4090", "rtx3090", "l40s", "h100", "b300", "mi355x")}
    assert found == {"rtx4090": 2.0, "rtx3090": 2.0, "l40s": 1.0, "h100": 1.0, "b300": 1.0, "mi355x": 1.0}


def test_quantising_and_the_host_add_what_they_take() -> None:
    plain, quantised = (matmuls([(1.0, 512.0, 4096.0, 4096.0)], quantise=moved) for moved in (0.0, 5.0))
    extra = seconds(quantised, wave_constants(), sheet()) - seconds(plain, wave_constants(), sheet())
    ratio = 1 + 1 / (1 + (512 * 4096 * 5.0 / 2 / 50e6) ** 4)
    assert extra == pytest.approx(3e-6 + 512 * 4096 * 5.0 / (3e12 * 0.6 * ratio))
    for given, alone in ({"quantise_row_s": 1e-7}, 512e-7), ({"quantise_element_s": 1e-8}, 4096e-8):
        slow = seconds(quantised, wave_constants(**given), sheet()) - seconds(plain, wave_constants(), sheet())
        assert slow == pytest.approx(3e-6 + alone, rel=1e-3)
    eager = seconds(plain, wave_constants(host_s=1e-3), sheet())
    assert eager == pytest.approx(1e-3, rel=1e-6)
    terms = wave_terms(plain, wave_options(plain, sheet()), sheet(), wave_constants(host_s=1e-3))
    assert terms.host_s > 9e-4


def attention(**given: float) -> AttentionRows:
    values = dict(batch=2, queries=64, keys=64, heads=3, kv_heads=1, head_size=64, value_size=64, is_causal=1, window=0)
    values |= dict(passes=1, element_bytes=2)
    return AttentionRows(**{name: np.array([float(value)]) for name, value in (values | given).items()})


@pytest.mark.parametrize("queries", [1, 7, 33])
@pytest.mark.parametrize("before", [0, 5, 40])
@pytest.mark.parametrize("window", [0, 1, 6, 1000])
@pytest.mark.parametrize("causal", [0, 1])
def test_visible_pairs_are_counted(queries: int, before: int, window: int, causal: int) -> None:
    keys = queries + before
    reach = min(window or keys, keys)
    seen = (min(before + query + 1, reach) if causal else reach for query in range(queries))
    rows = attention(queries=queries, keys=keys, window=window, is_causal=causal)
    assert visible_pairs(rows)[0] == sum(seen)


def attention_constants(**given: float) -> AttentionConstants:
    values = dict(launch_s=1e-5, efficiency=0.8, ramp=64, softmax=0.4, lost_wave=0.5, odd_head=2.0, wide_head=1.0)
    values |= dict(window_keys=64.0, memory_share=0.7, kv_passes=1.0, overlap_norm=3.0)
    return AttentionConstants(**{name: np.array([float(value)]) for name, value in (values | given).items()})


def test_attention_approaches_its_share_and_pays_for_heads_and_passes() -> None:
    long = attention(batch=8, queries=16384, keys=16384, heads=64, kv_heads=8, head_size=128, value_size=128)

    def time(rows: AttentionRows, **given: float) -> float:
        return float(attention_terms(rows, sheet(), attention_constants(**given)).seconds[0])

    share = attention_flops(long)[0] / time(long, softmax=1e-9, ramp=1e-9, lost_wave=0.0) / 1e15
    assert share == pytest.approx(0.8, rel=0.01)
    backward = replace(long, passes=np.array([3.0]))
    assert (time(backward) - 1e-5) / (time(long) - 1e-5) == pytest.approx(3.0)
    odd, wide = (replace(long, head_size=np.array([size]), value_size=np.array([size])) for size in (72.0, 80.0))
    assert (time(odd) - 1e-5) / (time(wide) - 1e-5) == pytest.approx(2.0, rel=1e-3)
    narrow = replace(long, head_size=np.array([64.0]), value_size=np.array([64.0]))
    rates = [attention_flops(rows)[0] / time(rows) for rows in (narrow, long)]
    assert rates[0] < 0.9 * rates[1]
    windowed = replace(long, window=np.array([1024.0]))
    assert time(windowed) < 0.2 * time(long)
    assert time(windowed, window_keys=1e9) == pytest.approx(time(long))
    assert time(windowed, window_keys=1088.0) / time(windowed) == pytest.approx(2.0, rel=0.1)
    big = replace(long, head_size=np.array([256.0]), value_size=np.array([256.0]))
    assert (time(big, wide_head=3.0) - 1e-5) / (time(big) - 1e-5) == pytest.approx(3.0, rel=1e-3)
    assert time(long, wide_head=3.0) == time(long)


def test_one_causal_tile_takes_as_long_as_its_last_query() -> None:
    """Alone on the machine it waits for all keys; among many tiles the mean is half of them."""
    alone, many = (
        attention(batch=batch, heads=1, queries=64, keys=8192, head_size=128, value_size=128) for batch in (1, 132 * 64)
    )
    constants = attention_constants(ramp=1e-9, lost_wave=1e-9, softmax=1e-9, memory_share=1e9)
    first, all_of_them = (attention_terms(rows, sheet(), constants).below_peak_s for rows in (alone, many))
    ideal = [attention_flops(rows)[0] / 1e15 for rows in (alone, many)]
    # A single tile leaves 131 of 132 multiprocessors idle.
    tiles = 2 * 64 * 8192 * 256 / (1e15 / 132 * 0.8) * 1.15
    assert first[0] + ideal[0] == pytest.approx(tiles, rel=1e-6)
    assert all_of_them[0] + ideal[1] == pytest.approx(64 * tiles, rel=0.01)


def test_twice_the_exponentials_halve_the_softmax_and_nothing_else() -> None:
    long = attention(batch=8, queries=16384, keys=16384, heads=64, kv_heads=8, head_size=128, value_size=128)
    once, twice, none = (
        attention_terms(long, sheet(exponentials=rate), attention_constants(overlap_norm=12.0, softmax=softmax)).seconds
        for rate, softmax in ((4e12, 0.4), (8e12, 0.4), (4e12, 1e-9))
    )
    # A score costs 256 multiply-accumulates, and 0.4 exponentials of 125 each at this peak.
    assert (once - 1e-5) / (none - 1e-5) == pytest.approx(1.0 + 0.4 * 125 / 256, rel=1e-3)
    assert once - none == pytest.approx(2.0 * (twice - none), rel=1e-3)
    b300, b200 = load_device("b300"), load_device("b200")
    assert b300.exponentials_per_cycle == 2 * b200.exponentials_per_cycle


def test_the_last_cache_has_a_rate_of_its_own_and_is_no_slower_than_memory() -> None:
    slow, fast = (cache_ratio(np.array([rate]), sheet(), np.array([0.5])) for rate in (1.0, 20.0))
    assert slow == 1.0
    assert fast == pytest.approx(20.0 * 132 * 1.8e9 / (3e12 * 0.5))


def test_loads_add_up_to_all_rows() -> None:
    for exponent in (None, 1.01, 1.2):
        whole = expert_load(512, 8, 64, 1, exponent)
        assert whole.rows == pytest.approx(512 * 8, rel=0.02)
        assert 1 <= whole.active <= 64
        assert all(tiles * height >= whole.rows * 0.99 for tiles, height in zip(whole.tiles, ROW_TILES, strict=True))
    even = expert_load(512, 8, 64, 8, None)
    assert (even.rows, even.active, even.tiles[-1]) == (512.0, 8.0, 8.0)
    uneven = expert_load(512, 8, 64, 8, 1.2)
    assert even.rows < uneven.rows < 512 * 8
    assert expert_load(1, 8, 128, 1, None).active == 8.0
    assert expert_load(4, 2, 16, 4, 1.2) == expert_load(4, 2, 16, 4, 1.2)


@pytest.mark.parametrize(("tokens", "ranks"), [(1, 8), (2, 8), (1, 32)])
def test_few_rows_fall_on_ranks_as_lots_do(tokens: int, ranks: int) -> None:
    rows, experts = 8 * tokens, 256
    generator = np.random.default_rng(1)
    lots = (generator.permutation(experts)[:rows] // (experts // ranks) for _ in range(4000))
    expected = float(np.mean([np.bincount(ranks_of, minlength=ranks).max() for ranks_of in lots]))
    load = expert_load(tokens, 8, experts, ranks, 1.2)
    assert load.rows == pytest.approx(expected, rel=0.35)
    assert load.active <= load.rows < rows


def test_calls_of_the_host_are_a_recipe_s_own_and_all_else_is_of_the_next_that_is_known() -> None:
    names = ("mine-eager/fp8@hbm-8", "mine-eager/fp8@hbm-4", "other/fp8@hbm-8")
    given = ({"host_calls": 2.5}, {}, {"rate": 0.7})
    groups = [kernel_group(KernelKind.MATMUL, Owner.RECIPE, name) for name in names]
    values = recipe_values(KernelKind.MATMUL, names, fitted=FittedConstants(dict(zip(groups, given, strict=True))))
    assert (values["host_calls"], values["rate"]) == (2.5, 0.7)
    bare = recipe_values(KernelKind.MATMUL, names[2:], fitted=FittedConstants({groups[2]: given[2]}))
    assert (bare["host_calls"], bare["rate"]) == (1.0, 0.7)


def test_distributions_have_names() -> None:
    assert exponent_of("balanced?") is exponent_of("") is None
    assert exponent_of("power_law_1.2") == 1.2
    for name in ("zipf", "power_law_", "power_law_-1", "power_law_9"):
        with pytest.raises(InputError, match="is no distribution of rows; give balanced or power_law_1.2"):
            exponent_of(name)


def experts(pairs: int, **given: float) -> tuple[ExpertRows, ExpertTerms]:
    """64 tokens over 128 experts of one rank, and constants that hide nothing."""
    load = expert_load(64, 8, 128, 1, None)
    sizes = dict(tokens=64, pairs=pairs, experts=128, rows=load.rows, active=load.active, hidden=4096, ffn=1536)
    sizes |= dict(matrices=3, left_bytes=2, right_bytes=2)
    rows = ExpertRows(
        **{name: np.array([float(value)]) for name, value in sizes.items()}, tiles=np.array(load.tiles)[:, None]
    )
    values = dict(launch_s=2e-5, expert_s=1e-7, efficiency=0.6, memory_share=0.8, cache_ratio=1.0, k_ramp=64)
    values |= dict(small_tile=0.3, overlap_norm=12.0, strangers=0.5, activation_passes=1.0, token_passes=1.0) | given
    return rows, expert_terms(
        rows, sheet(), ExpertConstants(**{name: np.array([float(value)]) for name, value in values.items()})
    )


def test_experts_of_few_rows_read_their_weights() -> None:
    rows, terms = experts(512)
    assert terms.weights_s == pytest.approx(128 * 3 * 4096 * 1536 * 2 / (3e12 * 0.8))
    assert terms.compute_s < 0.1 * terms.weights_s
    assert terms.launch_s == pytest.approx(2e-5 + 128e-7)
    assert terms.seconds == pytest.approx(
        terms.launch_s + terms.weights_s + terms.compute_s + (rows.activation_bytes + rows.token_bytes) / 3e12
    )


def test_pairs_of_other_ranks_cost_their_share() -> None:
    _, alone = experts(512)
    rows, among = experts(512 * 64)
    assert among.activations_s == pytest.approx(alone.activations_s * (1.0 + 0.5 * 63))
    matmuls_s = 2 * 0.5 * 63 * 512 * 3 * 4096 * 1536 / (1e15 * 0.6)
    assert among.compute_s + among.weights_s > matmuls_s
    _, none = experts(512 * 64, strangers=1e-12)
    assert none.seconds == pytest.approx(alone.seconds)
    assert rows.flops == 2 * 512 * 3 * 4096 * 1536


def test_formats_have_bytes_units_and_other_names() -> None:
    assert format_of("FP16") is NumberFormat.BF16
    assert format_of("sq") is NumberFormat.INT8
    assert facts_of(NumberFormat.NVFP4).right_bytes == 0.5 + 1 / 16
    with pytest.raises(InputError, match="did you mean nvfp4"):
        format_of("nvpf4")
    b200, h100, a100 = (load_device(name) for name in ("b200", "h100", "a100-80g"))
    assert format_peak(b200, NumberFormat.NVFP4) == 9e15
    assert format_peak(h100, NumberFormat.NVFP4) == format_peak(h100, NumberFormat.FP8) == 1979e12
    assert format_peak(a100, NumberFormat.FP8) == 312e12
    assert [has_units(each, NumberFormat.FP8) for each in (h100, a100)] == [True, False]


def test_an_unmeasured_machine_follows_its_kin_and_its_watts() -> None:
    names = ("b300", "h100")
    fitted = FittedConstants(
        {
            kernel_group(KernelKind.MATMUL, Owner.MACHINE, name): {
                "launch_s": 1e-6,
                "sustained": 0.7,
                "sustained.8": 0.5,
            }
            for name in names
        }
    )
    gb300, b300 = load_device("gb300"), load_device("b300")
    assert nearest_kin(KernelKind.MATMUL, gb300, Width.WIDE, fitted=fitted) is b300
    values = machine_values(KernelKind.MATMUL, gb300, Width.WIDE, fitted=fitted)
    watts = (1400 / 152) / (1100 / 148)
    peaks = (2500 / 152) / (2250 / 148)
    assert values["sustained"] == pytest.approx(0.7 * watts ** (1 / 3) / peaks)
    assert values["launch_s"] == 1e-6
    board = machine_values(KernelKind.MATMUL, load_device("a40"), Width.WIDE, fitted=fitted)["sustained"]
    assert nearest_kin(KernelKind.MATMUL, load_device("a40"), Width.WIDE, fitted=fitted) is load_device("h100")
    assert board == 0.95
    own = machine_values(KernelKind.MATMUL, b300, Width.EIGHT, fitted=fitted)
    assert (own["sustained"], own["efficiency"]) == (0.5, 0.9)
    assert machine_values(KernelKind.MATMUL, b300, Width.FOUR, fitted=fitted)["sustained"] == 0.7


def paired(**recipes: dict[str, float]) -> FittedConstants:
    """Two machines of each of two classes, and recipes of these."""
    machines = {"b200": 0.5, "b300": 0.6, "h100": 0.7, "h200": 0.9}
    given = {(Owner.MACHINE, name): {"memory_share": value} for name, value in machines.items()}
    given |= {
        (Owner.RECIPE, name.replace("_at_", "@hbm-").replace("_", "/")): values for name, values in recipes.items()
    }
    return FittedConstants({kernel_group(KernelKind.MATMUL, *owner): values for owner, values in given.items()})


def test_an_unmeasured_machine_takes_machines_and_recipes_of_one_class_together() -> None:
    gb300, names = load_device("gb300"), ("mine/bf16@hbm-4", "mine/bf16@hbm-8")
    one = paired(mine_bf16_at_8={"memory": 2.0})
    found = donors(KernelKind.MATMUL, gb300, Width.WIDE, names, fitted=one)
    assert {(each.device.name, each.recipe) for each in found} == {(name, names[1]) for name in ("h100", "h200")}
    assert sum(each.weight for each in found) == pytest.approx(1.0)
    values = kernel_values(KernelKind.MATMUL, gb300, Width.WIDE, names, fitted=one)
    mean = math.exp(sum(each.weight * math.log({"h100": 0.7, "h200": 0.9}[each.device.name]) for each in found))
    assert (values["memory_share"], values["memory"]) == (pytest.approx(mean), pytest.approx(2.0))
    # With a recipe of its own class the machines of that count nearly alone.
    both = paired(mine_bf16_at_8={"memory": 2.0}, mine_bf16_at_4={"memory": 1.0})
    near = donors(KernelKind.MATMUL, gb300, Width.WIDE, names, fitted=both)
    assert sum(each.weight for each in near if each.recipe == names[0]) > 0.99
    assert max(near, key=lambda each: each.weight).device.name == "b300"
    # A measured machine whose class lacks the recipe does the same, and does not mix it with its own constants.
    b200 = donors(KernelKind.MATMUL, load_device("b200"), Width.WIDE, names, fitted=one)
    assert {each.device.name for each in b200} == {"h100", "h200"}
    assert donors(KernelKind.MATMUL, load_device("b200"), Width.WIDE, names, fitted=both) == ()
    # What is measured is its own, and experts keep the nearest machine and the nearest recipe.
    own = kernel_values(KernelKind.MATMUL, load_device("h100"), Width.WIDE, names[1:], fitted=both)
    assert (own["memory_share"], own["memory"]) == (0.7, 2.0)


def test_another_library_of_the_format_counts_less_and_other_formats_nothing() -> None:
    names = tuple(f"{base}@{each}" for base in ("mine/fp8", "other/fp8", "mine/bf16") for each in ("hbm-4", "hbm-8"))
    fitted = paired(mine_fp8_at_8={"memory": 2.0}, other_fp8_at_4={"memory": 1.0}, mine_bf16_at_4={"memory": 9.0})
    a100 = donors(KernelKind.MATMUL, load_device("a100-80g"), Width.EIGHT, names, fitted=fitted)
    assert {each.recipe for each in a100} == {"mine/fp8@hbm-8", "other/fp8@hbm-4"}
    assert sum(each.weight for each in a100 if each.recipe == "mine/fp8@hbm-8") > 0.7
    gb300 = donors(KernelKind.MATMUL, load_device("gb300"), Width.EIGHT, names, fitted=fitted)
    assert sum(each.weight for each in gb300 if each.recipe == "other/fp8@hbm-4") < 0.5
    assert donors(KernelKind.MATMUL, load_device("gb300"), Width.EIGHT, ("new/fp4@hbm-4",), fitted=fitted) == ()


def test_eager_calls_wait_for_the_host_that_a_machine_is_sold_with() -> None:
    hosts = {"gb200": 1.6e-4, "b300": 1e-4}
    groups = {kernel_group(KernelKind.MATMUL, Owner.MACHINE, name): {"host_s": value} for name, value in hosts.items()}
    found = {
        name: machine_values(KernelKind.MATMUL, load_device(name), Width.FOUR, fitted=FittedConstants(groups))["host_s"]
        for name in ("gb300", "b200", "gh200")
    }
    assert found == {"gb300": 1.6e-4, "b200": 1e-4, "gh200": 1.6e-4}


def test_recipes_fall_back_in_the_order_given() -> None:
    fitted = FittedConstants({kernel_group(KernelKind.STREAM, Owner.RECIPE, "b/norm"): {"memory": 0.4}})
    assert recipe_values(KernelKind.STREAM, ["a/norm", "b/norm"], fitted=fitted)["memory"] == 0.4
    expected = {each.name: each.start for each in CONSTANTS[KernelKind.STREAM] if each.owner is Owner.RECIPE}
    assert recipe_values(KernelKind.STREAM, ["a/norm"], fitted=fitted) == expected


def test_constants_start_within_their_bounds() -> None:
    for constants in CONSTANTS.values():
        assert len({each.name for each in constants}) == len(constants)
        assert all(0 < each.low < each.start < each.high or each.low == each.start for each in constants)


def test_shapes_that_cost_are_said() -> None:
    assert waste_note(8192, 8192, 132) == ""
    empty = 100 * (1 - 257 * 8192 / (2 * 132 * 128**2))
    assert waste_note(257, 8192, 132).startswith(f"{empty:.0f} % of the waves of 257 x 8,192")
