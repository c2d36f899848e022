"""A plan of a model of the zoo takes as long in `evaluate` as the row that describes it does in `validate`."""

import pytest

from phaze_opt.cost.clocks import MachineClock
from phaze_opt.cost.stacks import load_stack
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.plan_search import Machine, rank_plans
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.training.family import MODERN_TRAINING
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.training import TrainingSpec

LLAMA = "80,8192,64,8,28672,3,128256,8192"
HEADER = (
    "hardware,n_devices,layers,hidden,heads,kv_heads,ffn,mlp_matrices,vocab,seq,"
    "global_batch,micro_batch,tp,pp,interleave,sharding,seq_parallel,dtype,software,iter_time_s"
)


@pytest.mark.parametrize(("tensor", "data", "interleave"), [(8, 8, 5), (4, 16, 1)])
def test_a_row_of_a_llama_costs_what_its_plan_costs(tmp_path, tensor, data, interleave):
    plan = ParallelPlan(tensor, 4, data, interleave=interleave, zero=1, is_sequence_parallel=True)
    devices = plan.tensor * plan.pipeline * plan.data
    own = tmp_path / "own.csv"
    degrees = f"{plan.tensor},{plan.pipeline},{plan.interleave},zero{plan.zero}"
    own.write_text(f"{HEADER}\nh100,{devices},{LLAMA},256,1,{degrees},1,bf16,megatron-core,9\n", encoding="utf-8")
    datasets, _ = read_datasets(own)
    family, fitted = MODERN_TRAINING, load_fitted()
    row_s = float(family.compile(datasets[0].rows).seconds(fitted)[0])
    real = load_device("h100")
    machine = Machine(
        clock=MachineClock(real, ComputePath.BF16, fitted),
        memory_bytes=real.hbm_bytes,
        network=load_network(real.network, num_devices=devices),
        stack=load_stack("megatron-core", fitted),
    )
    training = TrainingSpec(micro_batch=1, sequence_length=8192, global_batch=256)
    found = rank_plans(load_model("llama-3-70b"), training, [plan], machine=machine).ranked[0]
    assert found.time.seconds == pytest.approx(row_s, rel=1e-9)
