"""Teach the learned fuser what the exact program makes of drawn chains; writes schedule/learned_fusion.json.

    python experiments/layer_fusion/train.py [--chains 4000] [--epochs 60] [--output FILE]

Needs torch (`pip install 'phaze-opt[torch]'`); one thread and fixed seeds, so that the same torch writes the same file.
A chain repeats up to four kinds of layers, each with its own compute, traffic, border and weights; times are the larger
of compute and what is still moved, and rise where a reserve takes buffer away. None is of a model. A tenth is kept
apart, and its regret told.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from phaze_opt.schedule import learned_fusion
from phaze_opt.schedule.layer_fusion import (
    ALONE,
    FIRST,
    INNER,
    LAST,
    NUM_PLACES,
    ExactFuser,
    FusionChoice,
    FusionProblem,
    group_layers_s,
)

CAPACITY_BYTES = 1 << 27
NUM_SLICES = 8
WIDTH = 32
TRAINED_SHARE = 0.9


def draw_chain(seed: int) -> FusionProblem:
    """A chain as stages have them: a pattern of kinds, repeated."""
    generator = np.random.default_rng(seed)
    num_kinds, num_layers = int(generator.integers(1, 5)), int(generator.integers(2, 49))
    pattern = generator.integers(0, num_kinds, generator.integers(1, 6))
    kinds = np.resize(pattern, num_layers)
    _, kinds = np.unique(kinds, return_inverse=True)
    parts = (1, 2, 4, 8)[: generator.integers(1, 5)]
    choices = tuple(FusionChoice(each, holds) for each in parts for holds in ((False, True) if each > 1 else (False,)))
    border = np.exp(generator.uniform(np.log(1e-3), np.log(1.5), num_kinds))
    weight = np.exp(generator.uniform(np.log(1e-3), np.log(3.0), num_kinds))
    # Layers hand on one tensor each; a few borders are of several tensors.
    sizes = (border[kinds[:-1]] * CAPACITY_BYTES).astype(np.int64)
    sizes[generator.random(num_layers - 1) < generator.choice([0.0, 0.0, 0.05])] = -1
    weights = (weight[kinds] * CAPACITY_BYTES).astype(np.int64)
    seconds = np.stack([_kind_s(generator, border[k], weight[k], choices) for k in range(num_kinds)])
    return FusionProblem(kinds, sizes, weights, choices, CAPACITY_BYTES, seconds)


def _kind_s(
    generator: np.random.Generator, border: float, weight: float, choices: tuple[FusionChoice, ...]
) -> np.ndarray:
    """Times of a kind of layer, by choice, place and slices; traffic is counted in buffers."""
    rate = np.exp(generator.uniform(np.log(0.1), np.log(30.0)))
    inside = border * generator.uniform(0.0, 6.0)
    is_written = generator.random() < 0.5
    compute = generator.uniform(0.2, 3.0) * (2.0 * border + inside + weight) / rate
    overhead, spill = generator.uniform(0.0, 0.05), generator.choice([0.0, 0.0, 0.3, 1.0])
    found = np.empty((len(choices), NUM_PLACES, NUM_SLICES))
    for number, choice in enumerate(choices):
        n = choice.num_parts
        for place in (ALONE, FIRST, LAST, INNER):
            spared = border * (place in (LAST, INNER)) + border * (place in (FIRST, INNER) and not is_written)
            loaded = weight * (1 if choice.holds_weights else n)
            fits = inside / n <= 1.0 - np.arange(NUM_SLICES) / NUM_SLICES
            moved = 2.0 * border - spared + loaded + inside * np.where(fits, 0.1, 1.0 + spill)
            found[number, place] = np.maximum(compute * (1.0 + overhead * (n - 1)), moved / rate)
    return found


def inside_of(problem: FusionProblem) -> np.ndarray:
    """Which borders the exact program puts inside a group."""
    found = np.ones(problem.num_layers - 1)
    for group in ExactFuser().fuse(problem)[:-1]:
        found[group.stop - 1] = 0.0
    return found


def train(features: np.ndarray, labels: np.ndarray, *, epochs: int) -> list[dict[str, list]]:
    """Weights and biases of a network of two hidden layers; rounded, so that the file is small.

    Raises:
        SystemExit: torch is not installed.
    """
    try:
        import torch  # noqa: PLC0415 - an extra, which nothing else here needs
    except ImportError as error:
        message = "training needs torch: pip install 'phaze-opt[torch]'; the weights that come with the package do not"
        raise SystemExit(message) from error
    torch.manual_seed(0)
    torch.set_num_threads(1)
    inputs, wanted = torch.tensor(features), torch.tensor(labels)[:, None]
    sizes = (features.shape[1], WIDTH, WIDTH, 1)
    linear = [torch.nn.Linear(a, b, dtype=torch.float64) for a, b in zip(sizes[:-1], sizes[1:], strict=True)]
    network = torch.nn.Sequential(linear[0], torch.nn.Tanh(), linear[1], torch.nn.Tanh(), linear[2])
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for chosen in torch.randperm(len(inputs)).split(1024):
            optimizer.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(network(inputs[chosen]), wanted[chosen]).backward()
            optimizer.step()
        decay.step()
    return [
        {name: np.round(values.detach().numpy(), 5).tolist() for name, values in pairs}
        for pairs in ((("weights", each.weight.T), ("bias", each.bias)) for each in linear)
    ]


def regrets_of(problems: list[FusionProblem]) -> np.ndarray:
    """How much longer groups in one look take than the best ones."""
    pairs = [
        [group_layers_s(each, fuser.fuse(each)).sum() for fuser in (learned_fusion.LearnedFuser(), ExactFuser())]
        for each in problems
    ]
    return np.array([learned / exact - 1.0 for learned, exact in pairs])


def main() -> None:
    """Draw, teach, write, and tell the regret on chains that were kept apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=60)
    weights = Path(learned_fusion.__file__).with_name("learned_fusion.json")
    parser.add_argument("--output", type=Path, default=weights)
    arguments = parser.parse_args()
    started = time.process_time()
    problems = [draw_chain(seed) for seed in range(arguments.chains)]
    known = problems[: int(TRAINED_SHARE * len(problems))]
    features = np.concatenate([learned_fusion.border_features(each) for each in known])
    labels = np.concatenate([inside_of(each) for each in known])
    layers = train(features, labels, epochs=arguments.epochs)
    meta = {"made_by": "experiments/layer_fusion/train.py", "chains": len(known), "epochs": arguments.epochs}
    arguments.output.write_text(json.dumps({"_meta": meta, "layers": layers}) + "\n")
    print(f"{len(labels)} borders, {labels.mean():.2f} inside groups, {time.process_time() - started:.0f} s")
    if arguments.output == weights:
        learned_fusion._network.cache_clear()
        regrets = regrets_of(problems[len(known) :])
        print(f"regret on {len(regrets)} kept apart: mean {regrets.mean():.2%}, largest {regrets.max():.2%}")


if __name__ == "__main__":
    main()
