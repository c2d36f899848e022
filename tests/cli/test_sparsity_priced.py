"""``evaluate --sparsity``: recipes are means over phases that stand alone, and what is refused says so."""

from fractions import Fraction

import pytest
from command_runs import printed, refused, run_json

from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.operator import VectorKind
from phaze_opt.objective.recipe import prunable_flops
from phaze_opt.workload.config import load_model
from phaze_opt.workload.sparsity import Pattern, SparseWeights
from phaze_opt.workload.training import TrainingSpec

CHIP = "num_tc=2,tc_width=64,tc_depth=64,num_vc=2,glb_mb=8,hbm_gb=32"
JOB = ["--model", "tiny", "--devices", "2", "--global-batch", "8", "--no-range", "--tp", "1", "--mbs", "2"]


@pytest.fixture(name="priced")
def _priced(capsys):
    def price(*more, arch=f"{CHIP},sparse_array=any:8"):
        return run_json(["evaluate", *JOB, "--arch", arch, *more], capsys)

    return price


def test_a_recipe_is_the_mean_of_its_phases(priced):
    dense, eighth, fourth, half = (
        priced(*more) for more in ((), ("--sparsity", "1:8"), ("--sparsity", "2:8"), ("--sparsity", "4:8"))
    )
    most = priced("--sparsity", "7:8")
    found = priced("--sparsity", "1:8,recipe=stepwise,dense=0.2")
    share = 0.2
    for name in ("iteration_time_s", "energy_per_iteration_j"):
        expected = share * sum(each[name] for each in (dense, most, half, fourth, eighth))
        assert found[name] == pytest.approx(expected, rel=1e-12)
    assert sum(found["breakdown"].values()) == pytest.approx(found["iteration_time_s"], rel=1e-9)
    assert found["throughput_samples_per_s"] == pytest.approx(8 / found["iteration_time_s"], rel=1e-12)
    assert found["sparsity"]["mean_density"] == pytest.approx(0.2 + 0.8 * 0.4375)
    assert found["sparsity"]["dense_iteration_time_s"] == dense["iteration_time_s"]
    assert dense["iteration_time_s"] > eighth["iteration_time_s"]
    assert found["sparsity"]["training_flops"] < found["sparsity"]["dense_flops"]
    assert "sparsity" not in dense


def test_the_answer_is_of_all_phases_and_its_plan_is_said_to_be_of_the_last(priced, capsys):
    """The sentence begins with the rate that ``--json`` has, not with that of the phase whose plan it gives."""
    recipe = ("--sparsity", "1:8,dense=0.75")
    found, last = priced(*recipe), priced("--sparsity", "1:8")
    rates = [f"{each['throughput_samples_per_s']:,.4g} samples/s" for each in (found, last)]
    assert rates[0] != rates[1]
    arch = ["--arch", f"{CHIP},sparse_array=any:8"]
    said = " ".join(printed(["evaluate", *JOB, *arch, *recipe], capsys).split())
    assert said.startswith(f"All phases together train {rates[0]}. In the last, 1:8 forward, 25.0% of the steps: Run")
    assert printed(["evaluate", *JOB, *arch, "--sparsity", "1:8"], capsys).startswith("Run tiny")


def test_dense_arrays_are_said_to_skip_nothing(capsys):
    said = [
        " ".join(printed(["evaluate", *JOB, "--sparsity", "1:8", "--arch", f"{CHIP}{kind}"], capsys).split())
        for kind in ("", ",sparse_array=any:8")
    ]
    assert ["whose arrays skip no zeros" in each for each in said] == [True, False]


def test_dense_weights_are_priced_alike_on_any_kind_of_array(priced):
    assert priced()["iteration_time_s"] == priced(arch=CHIP)["iteration_time_s"]


def test_products_that_may_be_thinned_are_those_of_the_blocks():
    model = load_model("tiny")
    weights = model.hidden_size * (
        2 * model.hidden_size + 2 * model.num_kv_heads * model.hidden_size // model.num_heads
    )
    num_matrices = 3 if model.is_mlp_gated else 2
    per_block = weights + num_matrices * model.hidden_size * model.ffn_size
    assert prunable_flops(model, 64) == 6 * 64 * model.num_layers * per_block


def test_which_products_are_sparse():
    model = load_model("tiny")
    for is_transposable in (False, True):
        sparse = SparseWeights(Pattern(2, 4), is_transposable)
        training = TrainingSpec(1, 64, 1, sparsity=sparse)
        thin, full = (build_model_graph(model, each, tensor_parallel=1) for each in (training, TrainingSpec(1, 64, 1)))
        block, own = thin.layers[1], full.layers[1]
        marked = {
            one.name
            for phase in (block.forward, block.backward)
            for one in phase.operators
            for x in one.matmuls
            if x.pattern
        }
        assert any(name.endswith("input_gradient") for name in marked) is is_transposable
        assert not any("weight_gradient" in name for name in marked)
        update, dense = block.update.operators[0], own.update.operators[0]
        pruned = sum(x.k * x.n * x.batch for one in block.forward.operators for x in one.matmuls if x.pattern)
        extra = sum(work.elements for work in update.vector_works if work.kind is VectorKind.ADD)
        assert Fraction(extra) == Fraction(9, 2) * pruned
        assert update.bytes_written - dense.bytes_written == 0.5625 * 2 * pruned * (1 + is_transposable)
        assert thin.layers[0] == full.layers[0]
        assert thin.layers[-1] == full.layers[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", *JOB, "--arch", CHIP, "--sparsity", "2:4,recipe=quick"], "is unknown"),
        (["evaluate", *JOB, "--arch", CHIP, "--sparsity", "2:4,dense=0.5", "--as", "phaze"], "leave out Phaze's"),
        (["evaluate", *JOB, "--arch", "h100-sxm", "--sparsity", "2:4"], "is for designed chips"),
        (
            ["search", *JOB[:6], "--sparsity", "2:4,dense=0.5,transposable=yes"],
            "'2:4,dense=0.5,transposable=yes' has 2 phases of different weights, and searches, certificates and "
            "studies are of one; give 2:4,transposable=yes, which it ends with, or price the recipe on one chip with "
            "`phaze-opt evaluate`",
        ),
        (["search", *JOB[:6], "--sparsity", "2:4,recipe=mask-decay"], "multiplies all weights in every step"),
        (["evaluate", *JOB, "--arch", f"{CHIP},sparse_array=3:5"], "must be one of dense, 1:2, 2:4"),
    ],
)  # fmt: skip
def test_what_cannot_be_priced_is_refused_in_one_sentence(capsys, arguments, words):
    refused(arguments, capsys, words)
