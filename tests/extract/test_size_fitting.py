"""Sizes of several exports are the polynomial that made them; what is none is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_models import chain, graph, node, tensor

from phaze_opt.errors import InputError
from phaze_opt.extract.size_fitting import MONOMIALS, fit_sizes, sample_sizes
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_model import TracedRole

VALUES = next(sample_sizes({"b": 1, "s": 512}, max_sequence_length=1024))


def exported(size, values, *, op="aten.relu.default", argument=0):
    made = tensor("y", size, role=TracedRole.ACTIVATION)
    return graph([tensor("x", 4, role=TracedRole.INPUT), made], [node(op, "%x", argument, out="y")], "y")


def fitted(sizes, **more):
    graphs = [exported(size, values, **more) for size, values in zip(sizes, VALUES, strict=True)]
    tensors, _ = fit_sizes(graphs, VALUES)
    return tensors[1].shape[0]


@given(
    st.sampled_from(MONOMIALS), st.integers(1, 5000), st.integers(0, 5000), st.sampled_from([1, 2]), st.integers(1, 9)
)
def test_a_polynomial_is_found_from_its_values_and_holds_elsewhere(monomial, factor, start, divisor, batch):
    made = Polynomial.of({monomial: factor * divisor, (): start})
    found = fitted([made.evaluate(values) for values in VALUES])
    elsewhere = {"b": batch, "s": 768}
    assert found.evaluate(elsewhere) == made.evaluate(elsewhere)


def test_what_is_no_polynomial_is_refused():
    with pytest.raises(InputError, match="no polynomial"):
        fitted([min(30, values["s"]) for values in VALUES])
    with pytest.raises(InputError, match="no polynomial"):
        fitted([values["b"] + 3 * values["s"] + 1 for values in VALUES])


def test_arguments_are_sizes_too_and_other_operations_are_refused():
    graphs = [exported(4, values, argument=7 * values["b"] * values["s"]) for values in VALUES]
    _, nodes = fit_sizes(graphs, VALUES)
    assert str(nodes[0].inputs[1]) == "b*s*7"
    graphs[2] = exported(4, VALUES[2], op="aten.gelu.default")
    with pytest.raises(InputError, match="other operations at other sizes"):
        fit_sizes(graphs, VALUES)
    graphs[2] = exported(4, VALUES[2], argument=0.5)
    with pytest.raises(InputError, match="other operations at other sizes"):
        fit_sizes(graphs, VALUES)


def test_a_graph_of_another_length_is_refused():
    with pytest.raises(InputError, match="operations at some sizes"):
        fit_sizes([chain(batch=2, num_layers=2), chain(batch=3, num_layers=3)], [{"b": 2}, {"b": 3}])


@pytest.mark.parametrize(("default", "longest"), [(512, 512), (20, 20), (4096, 131072), (1024, 0), (77, 77)])
def test_the_last_export_is_at_the_default_sequence(default, longest):
    for values in sample_sizes({"b": 1, "s": default}, max_sequence_length=longest):
        assert values[-1]["s"] == default
        assert len({each["s"] for each in values}) == 3
        assert len({each["b"] for each in values}) == 3
        assert all(each["s"] <= (longest or default) for each in values)
