"""Layers that are alike are folded, and a folded model written out again is the model."""

import pytest
from recorded_models import chain

from phaze_opt.errors import InputError
from phaze_opt.extract.depth import Run
from phaze_opt.extract.extracting import num_operations, num_parameters, traced_of
from phaze_opt.extract.folding import fold
from phaze_opt.graph.traced.flat_graph import flatten
from phaze_opt.graph.traced.traced_file import traced_model_text
from phaze_opt.graph.traced.traced_model import TracedNode, TracedRepeat

BATCHES = (2, 3, 5)


def traced(**options):
    graphs = [chain(batch=batch, **options) for batch in BATCHES]
    values = [{"b": batch} for batch in BATCHES]
    return traced_of(graphs, values, name="chain", producer={}, symbols={"b": 1})


def run(num_exported, count, *, first=0, period=1):
    names = [str(first + at) for at in range(num_exported * period)]
    units = tuple(tuple(names[at : at + period]) for at in range(0, len(names), period))
    return Run("layers", units, first, count)


def written_out(model):
    """Operations in a form without names: each tensor by the place of what gives it, parameters by their names."""
    flat = flatten(model)
    places = {name: f"t{at}" for at, name in enumerate(out for step in flat.nodes for out in step.outputs)}
    return [
        (step.op, step.module, [places.get(name, flat.tensors[name].fqn or "input") for name in step.tensor_ids()])
        for step in flat.nodes
    ]


@pytest.mark.parametrize(("num_layers", "period"), [(2, 1), (5, 1), (6, 2), (6, 3)])
def test_folding_and_writing_out_gives_the_model_back(num_layers, period):
    flat = traced(num_layers=num_layers)
    units = num_layers // period
    folded = fold(flat, [run(units, units, period=period)])
    (repeat,) = (step for step in folded.steps if isinstance(step, TracedRepeat))
    assert repeat.count == units
    assert len(folded.bodies[0].nodes) == 4 * period
    assert num_parameters(folded) == num_parameters(flat) == num_layers * 64
    assert num_operations(folded) == num_operations(flat)
    traced_model_text(folded)
    if period == 1:
        assert written_out(folded) == written_out(flat)
    else:
        ops = [[(op, taken) for op, _, taken in written_out(each)] for each in (folded, flat)]
        assert [op for op, _ in ops[0]] == [op for op, _ in ops[1]]


def test_a_few_layers_stand_for_all():
    shallow = fold(traced(num_layers=3), [run(3, 40)])
    whole = fold(traced(num_layers=40), [run(40, 40)])
    assert num_parameters(shallow) == num_parameters(whole) == 40 * 64
    assert written_out(shallow) == written_out(whole)


def test_two_runs_fold_one_after_the_other():
    model = traced(num_layers=7, odd="3")
    folded = fold(model, [run(3, 3), run(3, 3, first=4)])
    repeats = [step for step in folded.steps if isinstance(step, TracedRepeat)]
    assert [(step.count, step.first) for step in repeats] == [(3, 0), (3, 4)]
    assert written_out(folded) == written_out(model)


@pytest.mark.parametrize("options", [{"odd": "1"}, {"reads_all": True}])
def test_layers_that_differ_are_not_folded(options):
    model = traced(num_layers=3, **options)
    assert fold(model, [run(3, 3)]) == model
    with pytest.raises(InputError, match="export the model whole"):
        fold(model, [run(3, 30)])


def test_layers_of_few_operations_are_left_as_they_are():
    model = traced(num_layers=3)
    steps = tuple(step for step in model.steps if isinstance(step, TracedNode))
    assert len(steps) == 14
    assert fold(model, [Run("layers", (("0",),), 0, 1)]) == model
