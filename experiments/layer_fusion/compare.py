"""Exact and genetic layer fusion of training steps: what they save, the regret of the latter, and their time.

    python experiments/layer_fusion/compare.py bert-large gpt2-xl gpt3-175b ...

Chips of 16 arrays of 128x128, 16 vector cores and 128 MB; HBM of 1,600, 820 and 400 GB/s; 1,024 devices, a global
batch of 4,096 (of traced models 32,768), the best plan with stages in one chunk (interleave 1). Seconds are of the
processor; "table" is what schedules of layers with the buffer in part reserved take.
"""

import sys
import time

from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.layer_fusion import FusedChain, FusedStep, fuse_step
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.schedule.genetic_fusion import GeneticFuser
from phaze_opt.schedule.layer_fusion import ExactFuser, Fuser, groups_s

CHIP = "num_tc=16, num_vc=16, tc_width=128, tc_depth=128, glb_mb=128, hbm_gb=80, hbm_gb_per_s={}"
HBM_GB_PER_S = (1600, 820, 400)
IMAGES_AT_ONCE, SAMPLES_AT_ONCE = 32768, 4096


def fuser_ms(fuser: Fuser, chain: FusedChain) -> float:
    """Processor time of one fuser on a table that is ready, ms."""
    problem = chain.problem
    _ = problem.group_s
    started = time.process_time()
    fuser.fuse(problem)
    return 1e3 * (time.process_time() - started)


def compare(model: str, rate: int, **choices: object) -> str:
    """One row of the table."""
    is_traced = model.endswith(".json")
    batch = IMAGES_AT_ONCE if is_traced else SAMPLES_AT_ONCE
    objective = Objective(make_scenario(model, devices=1024, global_batch=batch, **choices))
    chip = load_architecture(CHIP.format(rate), constants=objective.constants)
    found = objective.plan(chip)
    if found is None:
        return f"{model:24} {rate:5} nothing fits"
    clock, step = objective._clock(chip), found.step
    network = plan_network(objective.scenario.cluster.network, found.ranked.plan)
    started = time.process_time()
    exact, bred = (
        fuse_step(step, clock, found.layer_times, network=network, name=name) for name in ("exact", "genetic")
    )
    taken = time.process_time() - started
    plan = step.plan
    degrees = f"t{plan.tensor} p{plan.pipeline} v{plan.interleave} mb{plan.micro_batch}"
    return f"{model.rpartition('/')[2]:24} {rate:5} {degrees:18} {figures(exact, bred)} both with tables {taken:.2f} s"


def figures(exact: FusedStep, bred: FusedStep) -> str:
    """What two fusers make of one job."""
    chain = max(exact.chains, key=lambda each: each.problem.num_layers)
    pairs = zip(exact.chains, bred.chains, strict=True)
    regret = max(groups_s(b.problem, b.groups) / groups_s(a.problem, a.groups) - 1.0 for a, b in pairs)
    gains = [exact.unfused_s / each.time.seconds - 1.0 for each in (exact, bred)]
    times = [fuser_ms(each, chain) for each in (ExactFuser(), GeneticFuser())]
    return (
        f"layers {chain.problem.num_layers:3} exact +{gains[0]:.2%} genetic +{gains[1]:.2%} regret {regret:.2%} "
        f"exact {times[0]:.2f} ms genetic {times[1]:.1f} ms"
    )


def main() -> None:
    """Print a row for every model and rate."""
    for model in sys.argv[1:]:
        for rate in HBM_GB_PER_S:
            print(compare(model, rate, interleave=(1,)), flush=True)


if __name__ == "__main__":
    main()
