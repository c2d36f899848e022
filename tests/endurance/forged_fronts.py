"""Forgeries of the statement of a front over worlds."""

import random
from collections.abc import Callable
from typing import Any

from draft import CLEAR, need

Content = dict[str, Any]
FrontForgery = Callable[[Content, random.Random], object]
COSTS = ("tdp_w", "area_mm2", "cost_usd")


def more(rng: random.Random) -> float:
    """A factor above one."""
    return float(1.0 + CLEAR + 10.0 ** rng.uniform(-5.0, -0.5))


def a_design_less(content: Content, rng: random.Random) -> None:
    content["designs"].remove(rng.choice(content["designs"]))


def a_design_twice(content: Content, rng: random.Random) -> None:
    content["designs"].append(rng.choice(content["designs"]))


def safer(content: Content, rng: random.Random) -> None:
    """In every world alike."""
    design, factor = rng.choice(content["designs"]), more(rng)
    design["share"] *= factor
    design["share_upper"] = max(design["share"], design["share_upper"])
    design["shares"] = [share * factor for share in design["shares"]]


def better_in_a_world(content: Content, rng: random.Random) -> None:
    shares = rng.choice(content["designs"])["shares"]
    shares[rng.choice([at for at, share in enumerate(shares) if share])] *= more(rng)


def bounded_by_less(content: Content, rng: random.Random) -> None:
    rng.choice(content["designs"])["share_upper"] /= more(rng)


def faster(content: Content, rng: random.Random) -> None:
    rng.choice(content["designs"])["throughput_samples_per_s"] *= more(rng)


def takes_less(content: Content, rng: random.Random) -> None:
    design = rng.choice(content["designs"])
    design[rng.choice([name for name in COSTS if design[name] is not None])] /= more(rng)


def another_design(content: Content, rng: random.Random) -> None:
    rng.choice(content["designs"])["point"][rng.choice(("num_tc", "tc_width", "glb_bytes", "hbm_stacks"))] *= 2


def another_row(content: Content, rng: random.Random) -> None:
    rng.choice(content["designs"])["row"] += rng.choice((-1, 1, 100))


def another_worst_world(content: Content, rng: random.Random) -> None:
    design = rng.choice(content["designs"])
    better = [at for at, share in enumerate(design["shares"]) if share > design["share"] * (1.0 + CLEAR)]
    need(better)
    design["worst_world"] = rng.choice(better)


def shares_in_another_order(content: Content, rng: random.Random) -> None:
    shares = rng.choice(content["designs"])["shares"]
    one, other = rng.sample(range(len(shares)), 2)
    need(abs(shares[one] - shares[other]) > CLEAR)
    shares[one], shares[other] = shares[other], shares[one]


def smaller_gap(content: Content, rng: random.Random) -> None:
    need(content["gap"] > 10 * CLEAR)
    content["gap"] *= rng.uniform(0.0, 0.9)


def larger_gap(content: Content, rng: random.Random) -> None:
    content["gap"] += more(rng) - 1.0


def otherwise_proved(content: Content, _: random.Random) -> None:
    content["is_proved"] = not content["is_proved"]


def within_less(content: Content, rng: random.Random) -> None:
    """Less than what the worlds were proved within."""
    need(content["tolerance"] > 0.0)
    content["tolerance"] *= rng.uniform(0.0, 0.9)


def another_optimum(content: Content, rng: random.Random) -> None:
    world = rng.choice([world for world in content["worlds"] if world["value"]])
    world[rng.choice(("value", "value_upper"))] *= rng.choice((more(rng), 1.0 / more(rng)))


def another_name(content: Content, rng: random.Random) -> None:
    """Of a world: another stands for it."""
    one, other = rng.sample(range(len(content["worlds"])), 2)
    worlds = content["worlds"]
    worlds[one]["name"], worlds[other]["name"] = worlds[other]["name"], worlds[one]["name"]


def another_certificate(content: Content, rng: random.Random) -> None:
    names = sorted({world["certificate"] for world in content["worlds"]})
    world = rng.choice(content["worlds"])
    world["certificate"] = rng.choice([name for name in names if name != world["certificate"]])


def a_world_less(content: Content, rng: random.Random) -> None:
    at = rng.randrange(1, len(content["worlds"]))
    content["worlds"].pop(at)
    for design in content["designs"]:
        design["shares"].pop(at)
        design["worst_world"] -= design["worst_world"] > at


def other_samples(content: Content, rng: random.Random) -> None:
    content["num_samples"] += rng.choice((-1, 1, 2))


def other_counts(content: Content, rng: random.Random) -> None:
    content[rng.choice(("num_points", "num_solved"))] += rng.choice((-1, 1))


def another_batch(content: Content, rng: random.Random) -> None:
    content["scenario"]["global_batch"] *= rng.choice((2, 3))


def digests_swapped(content: Content, rng: random.Random) -> None:
    files = content["files"]
    one, other = rng.sample(sorted(files), 2)
    files[one], files[other] = files[other], files[one]


FRONTS: tuple[FrontForgery, ...] = (
    a_design_less, a_design_twice, safer, better_in_a_world, bounded_by_less, faster, takes_less, another_design,
    another_row, another_worst_world, shares_in_another_order, smaller_gap, larger_gap, otherwise_proved, within_less,
    another_optimum, another_name, another_certificate, a_world_less, other_samples, other_counts, another_batch,
    digests_swapped,
)  # fmt: skip
