"""The rule that cuts a chain: equal to trying every run of equal pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.workload.chain import ChainCut, cut_between_layers, cut_chain
from phaze_opt.workload.config import load_model


def every_run(inner: tuple[int, ...]):
    """Layers, pieces, start and period of every run of two equal pieces or more."""
    for period in range(1, len(inner) // 2 + 1):
        for start in range(len(inner)):
            piece, count = inner[start : start + period], 1
            while inner[start + count * period :][:period] == piece and len(piece) == period:
                count += 1
                if start + count * period > len(inner):
                    break
                yield count * period, count, start, period


@given(st.lists(st.integers(0, 2), min_size=3, max_size=14))
def test_units_are_the_longest_run_of_any(chain):
    chain = tuple(chain)
    cut, inner = cut_chain(chain), chain[1:-1]
    assert cut.chain == chain
    runs = [run for run in every_run(inner) if run[2] + run[0] <= len(inner)]
    if runs:
        layers, count, start, period = max(runs)
        assert (len(cut.units[0]) * cut.num_units, cut.num_units, len(cut.front), len(cut.units[0])) == (
            layers,
            count,
            start + 1,
            period,
        )
    else:
        assert cut == ChainCut(chain[:1], (inner,), chain[-1:], (0,))


PUBLISHED = {
    "one block": ((0, 1, 2), ((0,), (1,), (2,), 1)),
    "local and global": ((0, *(1, 2) * 13, 3), ((0,), (1, 2), (3,), 13)),
    "dense before experts": ((0, 1, 1, 1, *(2,) * 58, 3), ((0, 1, 1, 1), (2,), (3,), 58)),
    "encoder as deep as the decoder": ((0, *(1,) * 24, *(2,) * 24, 3), ((0, *(1,) * 24), (2,), (3,), 24)),
    "five local ones and a rest": ((0, *(1, 1, 1, 1, 1, 2) * 4, 1, 1, 3), ((0, 1, 1), (1, 1, 1, 2, 1, 1), (3,), 4)),
    "nothing repeats": ((0, 1, 2, 3), ((0,), (1, 2), (3,), 1)),
    "two layers": ((0, 1), ((0,), (1,), (), 1)),
    "one layer": ((0,), ((), (0,), (), 1)),
}


@pytest.mark.parametrize("case", PUBLISHED)
def test_models_are_cut_where_people_would(case):
    chain, expected = PUBLISHED[case]
    front, unit, back, num_units = expected
    assert cut_chain(chain) == ChainCut(front, (unit,), back, (0,) * num_units)


def test_a_transformer_is_embedding_blocks_and_head():
    assert load_model("bert-large").cut == ChainCut((0,), ((1,),), (2,), (0,) * 24)


def test_a_chain_without_layers_is_refused():
    with pytest.raises(InputError, match="at least one layer"):
        cut_chain(())


@given(st.lists(st.integers(0, 3), min_size=1, max_size=14))
def test_between_layers_every_layer_is_a_unit_unless_most_are_equal_units(chain):
    chain = tuple(chain)
    cut, plain = cut_between_layers(chain), cut_chain(chain)
    assert cut.chain == chain
    if cut == plain:
        layers = len(plain.units[0]) * plain.num_units
        assert len(chain) <= 3 or (plain.num_units > 1 and 2 * layers > len(chain) - 2)
        return
    assert (cut.front, cut.back, cut.num_units) == (chain[:1], chain[-1:], len(chain) - 2)
    for position in range(1, len(chain) - 1):
        part = 1 + cut.order[position - 1]
        assert (cut.parts[part], cut.before(part)) == (chain[position : position + 1], chain[position - 1])
    assert cut.before(len(cut.parts) - 1) == chain[-2]
    assert len(set(cut.order)) == len({chain[at - 1 : at + 1] for at in range(1, len(chain) - 1)})
