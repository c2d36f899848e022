"""The codec of semantics 8: every proposal is a kept point, every kept point is reachable."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.space.axes import Axes
from phaze_opt.space.codec import Codec
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.space.search_space import SearchSpace

PHAZE = phaze_space()
CODEC = Codec(PHAZE)


def all_architecture_proposals(codec: Codec) -> dict[str, np.ndarray]:
    """Every combination of the parameters, HBM and micro-batch at their first value."""
    joined = ("hbm_gb_index", "log2_micro_batch", "log2_hbm_gb", "micro_batch_index")
    ranges = [
        np.arange(known.low, known.low + (1 if known.name in joined else known.count)) for known in codec.parameters()
    ]
    grids = np.meshgrid(*ranges, indexing="ij")
    return {known.name: grid.ravel() for known, grid in zip(codec.parameters(), grids, strict=True)}


def proposals_of(codec: Codec):
    ranges = {known.name: st.integers(known.low, known.low + known.count - 1) for known in codec.parameters()}
    return st.fixed_dictionaries(ranges)


def test_parameters_of_the_phaze_space() -> None:
    assert [(known.name, known.low, known.count) for known in Codec(PHAZE).parameters()] == [
        ("log2_glb_mb", 1, 7),
        ("log2_tc_width", 1, 8),
        ("log2_tc_depth", 1, 8),
        ("tc_halvings", 0, 13),
        ("vc_halvings", 0, 13),
        ("hbm_gb_index", 0, 3),
        ("log2_micro_batch", 0, 4),
    ]


def test_distributions_are_optuna_integers() -> None:
    codec = Codec(PHAZE)
    for known in codec.parameters():
        distribution = codec.distributions()[known.name]
        assert (distribution.low, distribution.high) == (known.low, known.low + known.count - 1)


def test_all_proposals_are_kept_and_all_kept_are_proposed() -> None:
    indices = CODEC.decode_indices(all_architecture_proposals(CODEC))
    assert indices.min() >= 0
    assert len(np.unique(indices)) == 29_360


def test_encode_then_decode_is_identity_on_architectures_of_all_the_space() -> None:
    points = [PHAZE.point(architecture * 12 + architecture % 12) for architecture in range(0, 29_360, 7)]
    encoded = [CODEC.encode(point) for point in points]
    columns = {name: np.array([params[name] for params in encoded]) for name in encoded[0]}
    assert CODEC.decode_indices(columns).tolist() == [PHAZE.index(point) for point in points]


@given(st.integers(0, PHAZE.size - 1))
def test_every_point_is_reachable(index: int) -> None:
    codec = CODEC
    point = PHAZE.point(index)
    params = codec.encode(point)
    for name, distribution in codec.distributions().items():
        assert distribution._contains(params[name])
    assert codec.decode(params) == point


@given(proposals_of(CODEC))
def test_every_proposal_is_kept_and_scalar_equals_table(params: dict[str, int]) -> None:
    codec = CODEC
    point = codec.decode(params)
    assert PHAZE.contains(point)
    columns = {name: np.array([value]) for name, value in params.items()}
    assert PHAZE.point(int(codec.decode_indices(columns)[0])) == point
    assert codec.decode(codec.encode(point)) == point


@given(proposals_of(CODEC))
def test_halvings_follow_their_definition(params: dict[str, int]) -> None:
    """The definition of space/codec.py, enumerated naively over the kept points of the block."""
    glb, width, depth = (2 ** params[f"log2_{name}"] for name in ("glb_mb", "tc_width", "tc_depth"))
    columns = PHAZE.architecture_columns
    in_block = (columns.glb_bytes == glb << 20) & (columns.tc_width == width) & (columns.tc_depth == depth)
    kept = list(zip(columns.num_tc[in_block].tolist(), columns.num_vc[in_block].tolist(), strict=True))
    point = CODEC.decode(params)
    if params["vc_halvings"] == 12:
        choices = sorted({num_tc for num_tc, num_vc in kept if num_vc == 1}, reverse=True)
        expected = (choices[params["tc_halvings"] * len(choices) // 13], 1)
    else:
        choices = sorted({num_tc for num_tc, num_vc in kept if num_vc > 1}, reverse=True)
        chosen = choices[params["tc_halvings"] * len(choices) // 13]
        vector = sorted({num_vc for num_tc, num_vc in kept if num_tc == chosen and num_vc > 1}, reverse=True)
        expected = (chosen, vector[params["vc_halvings"] * len(vector) // 12])
    assert (point.num_tc, point.num_vc) == expected


def test_num_vc_falls_and_num_tc_falls_with_their_halvings() -> None:
    params = CODEC.encode(DesignPoint(8, 2, 128, 128, 128, 128 << 20, 32 << 30, 1))
    by_vc = [CODEC.decode({**params, "vc_halvings": halvings}).num_vc for halvings in range(13)]
    by_tc = [CODEC.decode({**params, "tc_halvings": halvings}).num_tc for halvings in range(13)]
    assert by_vc == sorted(by_vc, reverse=True)
    assert by_tc == sorted(by_tc, reverse=True)
    assert by_vc[-1] == 1


axis = st.lists(st.integers(1, 200), min_size=1, max_size=4, unique=True).map(lambda values: tuple(sorted(values)))


@given(axis, axis, axis, axis, st.just(()) | axis, st.floats(20.0, 300.0), st.floats(0.0, 1.0))
@settings(max_examples=100)
def test_both_properties_hold_in_any_space(tc, vc, width, depth, lanes, budget_mm2: float, fraction: float) -> None:
    axes = Axes(tc, vc, width, depth, lanes, (3 << 20, 5 << 20, 64 << 20), (32 << 30, 48 << 30), (1, 3))
    space = SearchSpace("any", axes, area_budget_um2=budget_mm2 * 1e6, min_area_fraction=fraction)
    if space.size == 0:
        return
    codec = Codec(space)
    proposals = all_architecture_proposals(codec)
    indices = codec.decode_indices(proposals)
    assert indices.min() >= 0
    assert len(np.unique(indices // 4)) == space.num_architectures
    for index in range(0, space.size, max(1, space.size // 20)):
        assert codec.decode(codec.encode(space.point(index))) == space.point(index)


def test_single_valued_axes_have_no_parameter() -> None:
    axes = Axes((8,), (2,), (128,), (128,), (), (128 << 20,), (32 << 30,), (1,))
    space = SearchSpace("one", axes, area_budget_um2=300e6, min_area_fraction=0.3)
    codec = Codec(space)
    point = space.point(0)
    assert codec.distributions() == {}
    assert codec.encode(point) == {}
    assert codec.decode({}) == point


def test_restricted_spaces_decode_inside_their_cap() -> None:
    space = PHAZE.restrict(max_area_mm2=120.0)
    codec = Codec(space)
    assert codec.decode_indices(all_architecture_proposals(codec)).min() >= 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tc_halvings": 13}, "from 0 to 12"),
        ({"tc_halvings": -1}, "from 0 to 12"),
        ({"tc_halvings": 1.5}, "integer"),
        ({"tc_halvings": True}, "integer"),
        ({"colour": 1}, "not one of this space's"),
    ],
)
def test_faulty_proposals(change: dict[str, object], says: str) -> None:
    codec = Codec(PHAZE)
    params = {**codec.encode(PHAZE.point(0)), **change}
    with pytest.raises(InputError, match=says):
        codec.decode(params)


def test_missing_parameter_and_foreign_point() -> None:
    codec = Codec(PHAZE)
    with pytest.raises(InputError, match="log2_glb_mb = None"):
        codec.decode({})
    with pytest.raises(InputError, match="num_tc = 3"):
        codec.encode(DesignPoint(3, 2, 128, 128, 128, 128 << 20, 32 << 30, 1))


def test_pickles() -> None:
    assert pickle.loads(pickle.dumps(CODEC)) == CODEC
