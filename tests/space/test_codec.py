"""The codec of semantics 8: every proposal is a kept point, every kept point is reachable."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.hardware.area import area_um2_table
from phaze_opt.hardware.constants import load_constants
from phaze_opt.space.axes import Axes
from phaze_opt.space.codec import Codec
from phaze_opt.space.lift import HalvingsMapping
from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import DEFAULT_HBM_BYTES, DEFAULT_MICRO_BATCHES, SearchSpace, phaze_space

PHAZE = phaze_space(hbm_bytes=DEFAULT_HBM_BYTES, micro_batches=DEFAULT_MICRO_BATCHES)
CODECS = [Codec(PHAZE, mapping) for mapping in HalvingsMapping]
every_mapping = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.mapping.value)


def all_architecture_proposals(codec: Codec) -> dict[str, np.ndarray]:
    chosen = codec.parameters()[:5]
    grids = np.meshgrid(*(np.arange(known.low, known.low + known.count) for known in chosen), indexing="ij")
    columns = {known.name: grid.ravel() for known, grid in zip(chosen, grids, strict=True)}
    zeros = np.zeros(len(grids[0].ravel()), dtype=np.int64)
    return {known.name: columns.get(known.name, zeros) for known in codec.parameters()}


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


@every_mapping
def test_all_proposals_are_kept_and_all_kept_are_proposed(codec: Codec) -> None:
    indices = codec.decode_indices(all_architecture_proposals(codec))
    assert indices.min() >= 0
    assert len(np.unique(indices)) == 29_360


@every_mapping
def test_encode_then_decode_is_identity_on_every_architecture(codec: Codec) -> None:
    points = [PHAZE.point(architecture * 12 + architecture % 12) for architecture in range(0, 29_360)]
    encoded = [codec.encode(point) for point in points]
    columns = {name: np.array([params[name] for params in encoded]) for name in encoded[0]}
    assert codec.decode_indices(columns).tolist() == [PHAZE.index(point) for point in points]


@given(st.sampled_from(CODECS), st.integers(0, PHAZE.size - 1))
def test_every_point_is_reachable(codec: Codec, index: int) -> None:
    point = PHAZE.point(index)
    params = codec.encode(point)
    for name, distribution in codec.distributions().items():
        assert distribution._contains(params[name])
    assert codec.decode(params) == point


@given(st.data(), st.sampled_from(CODECS))
def test_every_proposal_is_kept_and_scalar_equals_table(data: st.DataObject, codec: Codec) -> None:
    params = data.draw(proposals_of(codec))
    point = codec.decode(params)
    assert PHAZE.contains(point)
    columns = {name: np.array([value]) for name, value in params.items()}
    assert PHAZE.point(int(codec.decode_indices(columns)[0])) == point
    assert codec.decode(codec.encode(point)) == point


@given(st.data())
def test_clamped_halvings_follow_the_definition(data: st.DataObject) -> None:
    """Semantics 8 written out naively: halve from the largest that fits, then lift what is under the band."""
    params = data.draw(proposals_of(CODECS[0]))
    glb, width, depth = (2 ** params[f"log2_{name}"] for name in ("glb_mb", "tc_width", "tc_depth"))
    budget = PHAZE.area_budget_um2

    def area(num_tc: int, num_vc: int) -> float:
        columns = PHAZE.accelerator_table(load_constants()).take(np.array([0]))
        values = {"num_tc": num_tc, "num_vc": num_vc, "tc_width": width, "tc_depth": depth, "vc_width": width}
        values |= {"glb_bytes": glb << 20, "l2_bytes": max(1024, 16 * width * depth)}
        table = type(columns)(
            **{
                name: np.array([values[name]]) if name in values else getattr(columns, name)
                for name in type(columns).__dataclass_fields__
            }
        )
        return float(area_um2_table(table)[0])

    def is_kept(num_tc: int, num_vc: int) -> bool:
        return area(num_tc, num_vc) <= budget and (area(num_tc, num_vc) >= 0.3 * budget or 1 in (num_tc, num_vc))

    sizes = [2**exponent for exponent in range(12, -1, -1)]
    tc_fitting = [num_tc for num_tc in sizes if area(num_tc, 1) <= budget]
    num_tc = tc_fitting[min(params["tc_halvings"], len(tc_fitting) - 1)]
    vc_fitting = [num_vc for num_vc in sizes if area(num_tc, num_vc) <= budget]
    num_vc = vc_fitting[min(params["vc_halvings"], len(vc_fitting) - 1)]
    original_tc = num_tc
    while not is_kept(num_tc, num_vc):
        if num_vc < 4096 and area(num_tc, 2 * num_vc) <= budget:
            num_vc *= 2
        elif num_tc < 4096:
            num_tc *= 2
            while area(num_tc, num_vc) > budget:
                num_vc //= 2
        else:
            num_tc, num_vc = original_tc, 1
    point = CODECS[0].decode(params)
    assert (point.num_tc, point.num_vc) == (num_tc, num_vc)


axis = st.lists(st.integers(1, 200), min_size=1, max_size=4, unique=True).map(lambda values: tuple(sorted(values)))


@given(axis, axis, axis, axis, st.floats(20.0, 300.0), st.floats(0.0, 1.0), st.sampled_from(HalvingsMapping))
@settings(max_examples=100)
def test_both_properties_hold_in_any_space(tc, vc, width, depth, budget_mm2: float, fraction: float, mapping) -> None:
    axes = Axes(tc, vc, width, depth, (3 << 20, 5 << 20, 64 << 20), (32 << 30, 48 << 30), (1, 3))
    space = SearchSpace("any", axes, area_budget_um2=budget_mm2 * 1e6, min_area_fraction=fraction)
    if space.size == 0:
        return
    codec = Codec(space, mapping)
    proposals = all_architecture_proposals(codec) if len(codec.parameters()) >= 7 else None
    if proposals is not None:
        indices = codec.decode_indices(proposals)
        assert indices.min() >= 0
        assert len(np.unique(indices // 4)) == space.num_architectures
    for index in range(0, space.size, max(1, space.size // 20)):
        assert codec.decode(codec.encode(space.point(index))) == space.point(index)


def test_single_valued_axes_have_no_parameter() -> None:
    axes = Axes((8,), (2,), (128,), (128,), (128 << 20,), (32 << 30,), (1,))
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
    assert pickle.loads(pickle.dumps(CODECS[1])) == CODECS[1]
