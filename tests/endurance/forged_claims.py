"""Forgeries of what a certificate states and of its rows."""

from typing import Any

from draft import CLEAR, Draft, Forgery, need
from forger import AREA, ATTAINED, MEMORY, TDP, UPPER

from phaze_opt.certify.certificate import CERTIFICATE_FILE, SOLUTIONS_FILE
from phaze_opt.hardware.chip_template import AXIS
from phaze_opt.record.plain_data import from_plain
from phaze_opt.space.search_space import SearchSpace

NO_BOUND = {"bound": "none", UPPER: 0.0, "multipliers_index": -1}
LAYERED = ("num_layers", "ffn_size", "vocab_size")
"""Sizes of models that the time of every step hangs on."""


def faster(draft: Draft) -> None:
    claim, more = dict(draft.claimed), 1.0 + CLEAR + draft.share()
    for name in ("value", "throughput_samples_per_s"):
        claim[name] *= more
    claim["value_upper"] = max(claim["value_upper"], claim["value"])
    claim["gap"] = claim["value_upper"] / claim["value"] - 1.0 if not claim.get("front") else claim["gap"]
    draft.put("claim", claim)


def closer(draft: Draft) -> None:
    """A bound on all designs between what is attained and what rows leave open."""
    claim = dict(draft.claimed)
    need(claim["value_upper"] > claim["value"] * (1.0 + 10 * CLEAR))
    claim["value_upper"] = claim["value"] + draft.rng.uniform(0.0, 0.9) * (claim["value_upper"] - claim["value"])
    if not claim.get("front"):
        claim["gap"] = claim["value_upper"] / claim["value"] - 1.0
        claim["is_proved"] = claim["gap"] <= claim["tolerance"] + 1e-8
    draft.put("claim", claim)


def smaller_gap(draft: Draft) -> None:
    claim = dict(draft.claimed)
    need(claim["gap"] > 10 * CLEAR)
    claim["gap"] *= draft.rng.uniform(0.0, 0.9)
    claim["is_proved"] = claim["gap"] <= claim["tolerance"] + 1e-8
    draft.put("claim", claim)


def second_for_first(draft: Draft) -> None:
    claim = dict(draft.claimed)
    values = draft.values(draft.rows, ATTAINED)
    first = claim["incumbent"]
    row = draft.pick(row for row in draft.solved if values[row] < values[first] * (1.0 - CLEAR))
    claim |= {"incumbent": row, "value": float(values[row])}
    claim["point"] = {name: draft.rows[name][row] for name in claim["point"]}
    claim["throughput_samples_per_s"] = draft.rows[ATTAINED][row]
    if not claim.get("front"):
        claim["gap"] = claim["value_upper"] / claim["value"] - 1.0
        claim["is_proved"] = claim["gap"] <= claim["tolerance"] + 1e-8
    draft.put("claim", claim)


def proved_within_less(draft: Draft) -> None:
    claim = draft.claimed
    need(claim["gap"] > 10 * CLEAR)
    draft.claim(tolerance=claim["gap"] * draft.rng.uniform(0.0, 0.9), is_proved=True)


def count_otherwise(draft: Draft) -> None:
    name = draft.rng.choice(("num_points", "num_solved"))
    draft.claim(**{name: draft.claimed[name] + draft.rng.choice((-1, 1, 7))})


def front_of_fewer(draft: Draft) -> None:
    front = draft.claimed.get("front", [])
    row = draft.pick(front[:] if len(front) > 1 else [])
    draft.claim(front=[each for each in front if each != row])
    draft.cells(row, arch="")


def front_of_more(draft: Draft) -> None:
    front = draft.claimed.get("front", [])
    row = draft.pick(row for row in draft.solved if front and row not in front)
    draft.claim(front=sorted([*front, row]))
    draft.cells(row, arch=draft.point(row).inline())


def another_point(draft: Draft) -> None:
    name = draft.rng.choice(("num_tc", "num_vc", "tc_width", "tc_depth", "glb_bytes", "hbm_bytes", "micro_batch"))
    draft.put(f"claim.point.{name}", lambda value: value * 2)


def another_model(draft: Draft) -> None:
    number = draft.rng.randrange(len(draft.before["scenario"]["models"]))
    more = draft.rng.choice((1, 64))
    name = draft.rng.choice(LAYERED)
    draft.pose(f"scenario.models.{number}.{name}", lambda size: size + (1 if name == "num_layers" else 64 * more))


def another_batch(draft: Draft) -> None:
    draft.pose("scenario.global_batch", lambda batch: batch * draft.rng.choice((2, 3)))


def shorter_sequences(draft: Draft) -> None:
    draft.pose("scenario.sequence_length", lambda length: length // 2)


def too_few_devices(draft: Draft) -> None:
    """Fewer than the best design's plan uses."""
    (best,) = (each for each in draft.solutions if each["index"] == draft.claimed["incumbent"])
    used = max(map(devices_of, best["models"]))
    need(used > 1)
    draft.pose("scenario.cluster.num_devices", used - 1)


def devices_of(model: dict[str, Any]) -> int:
    if "plan" not in model:
        return int(model["tensor_parallel"] * model["data_parallel"] * len(model["stages"]))
    plan = model["plan"]["plan"]
    return int(plan["tensor"] * plan["pipeline"] * plan["data"] * plan["context"])


def a_budget_that_the_best_breaks(draft: Draft) -> None:
    column, place = draft.rng.choice((("tdp_w", "max_tdp_w"), ("area_mm2", "max_area_mm2")))
    draft.pose(f"scenario.{place}", draft.rows[column][draft.claimed["incumbent"]] * (1.0 - CLEAR - draft.share()))


def a_space_without_the_best(draft: Draft) -> None:
    area_um2 = 1e6 * draft.rows["area_mm2"][draft.claimed["incumbent"]]
    draft.pose("space.area_budget_um2", area_um2 * (1.0 - CLEAR - draft.share()))


def another_axis(draft: Draft) -> None:
    name = draft.rng.choice(("num_tc", "num_vc", "tc_width"))
    draft.pose(f"space.axes.{name}.-1", lambda value: value + draft.rng.choice((1, 8)))


def a_longer_axis(draft: Draft) -> None:
    """More points than the rows are of."""
    name = draft.rng.choice(("num_tc", "num_vc", "tc_width", "glb_bytes", "micro_batch"))
    values = draft.before["space"]["axes"][name]
    draft.pose(f"space.axes.{name}.+", values[-1] * 2 if name == "glb_bytes" else values[-1] + 1)
    space = from_plain(SearchSpace, draft.read(CERTIFICATE_FILE)["space"])
    need(space.size != draft.claimed["num_points"])


def slots_in_another_order(draft: Draft) -> None:
    slots = list(draft.before["slots"])
    need(len(slots) > 1)
    one, other = draft.rng.sample(range(len(slots)), 2)
    slots[one], slots[other] = slots[other], slots[one]
    draft.put("slots", slots)


def another_slot(draft: Draft) -> None:
    number = draft.pick(range(len(draft.before["slots"])))
    name = draft.rng.choice(("topology", "block", "layer", "model"))
    draft.put(f"slots.{number}.{name}", lambda value: value + 1)


def another_goal(draft: Draft) -> None:
    """The same numbers said of another."""
    need(not draft.claimed.get("front"))
    names = [name for name in ("throughput", "throughput_per_tdp") if name != draft.before["goal"]]
    draft.pose("goal", draft.rng.choice(names))


def another_estimator(draft: Draft) -> None:
    draft.pose("scenario.estimator", lambda name: "calibrated" if name == "analytic" else "analytic")


def other_constants(draft: Draft) -> None:
    draft.put("constants_digest", lambda digest: digest[1:] + digest[:1])


def another_format(draft: Draft) -> None:
    draft.put("format", draft.rng.choice((1, 3, 2.0)))


def bound_below(draft: Draft) -> None:
    draft.below(draft.pick(draft.pruned))


def bound_of_a_solved_below(draft: Draft) -> None:
    draft.below(draft.pick(draft.solved))


def no_memory(draft: Draft) -> None:
    row = draft.pick(draft.pruned)
    draft.rate(row)
    draft.cells(row, reason=MEMORY, **{UPPER: 0.0})
    draft.claim_again()


def over_a_budget(draft: Draft) -> None:
    row = draft.pick(draft.pruned)
    draft.cells(row, reason=draft.rng.choice((AREA, TDP)), **NO_BOUND)
    draft.claim_again()


def attains_too_much(draft: Draft) -> None:
    draft.lie(draft.pick(draft.solved))


def attains_a_little_more(draft: Draft) -> None:
    row = draft.pick(draft.solved)
    more = draft.rows[ATTAINED][row] * (1.0 + draft.share(-7.0, -4.0))
    draft.cells(row, **{ATTAINED: more, UPPER: max(more, draft.rows[UPPER][row])})
    draft.claim_again()


def takes_otherwise(draft: Draft) -> None:
    column = draft.rng.choice([name for name in ("area_mm2", "tdp_w", "cost_usd") if name in draft.rows])
    more = 1.0 + draft.rng.choice((-1.0, 1.0)) * (CLEAR + draft.share())
    draft.cells(draft.rng.randrange(len(draft.rows["index"])), **{column: lambda value: value * more})
    draft.claim_again()


def another_design(draft: Draft) -> None:
    row = draft.rng.randrange(len(draft.rows["index"]))
    name = draft.rng.choice([name for name in AXIS if name in draft.rows])
    draft.cells(row, **{name: lambda value: value + draft.rng.choice((1, 2, 8))})
    draft.claim_again()


def bounds_swapped(draft: Draft) -> None:
    """One falls below what its design attains."""
    one = draft.pick(draft.pruned)
    rate = draft.rate(one)
    other = draft.pick(row for row in draft.pruned if draft.rows[UPPER][row] < rate * (1.0 - CLEAR))
    draft.cells(one, **{UPPER: draft.rows[UPPER][other]})
    draft.cells(other, **{UPPER: draft.rows[UPPER][one]})
    draft.claim_again()


def row_dropped(draft: Draft) -> None:
    """Of spaces where every point has a row; solutions are numbered again."""
    need(draft.before["space"]["silicon"] is None)
    row = draft.pick(draft.pruned)
    draft.points(lambda columns: [column.pop(row) for column in columns.values()])
    draft.points(lambda columns: columns.update(index=list(range(len(columns["index"])))))

    def renumber(data: Any) -> None:
        for each in data["solutions"]:
            each["index"] -= each["index"] > row

    draft.json(SOLUTIONS_FILE, renumber)
    draft.claimed["incumbent"] -= draft.claimed["incumbent"] > row
    draft.rows = draft.columns()
    draft.claim_again()


def best_dropped(draft: Draft) -> None:
    """The second best is called the best, and no bound is left that the best stays within."""
    best = draft.claimed["incumbent"]
    need(draft.before["space"]["silicon"] is not None and best == len(draft.rows["index"]) - 1)
    others = [row for row in range(best) if draft.rows[UPPER][row] < draft.rows[ATTAINED][best] * (1.0 - CLEAR)]
    need(len(others) == best and draft.before["goal"] == "throughput")
    draft.points(lambda columns: [column.pop() for column in columns.values()])
    draft.json(SOLUTIONS_FILE, lambda data: data["solutions"].pop())
    draft.claimed["num_left_out"] = draft.claimed.get("num_left_out", 0) + 1
    draft.claim_again()


def row_twice(draft: Draft) -> None:
    row = draft.rng.randrange(len(draft.rows["index"]))
    draft.points(lambda columns: [column.append(column[row]) for column in columns.values()])
    draft.points(lambda columns: columns.update(index=list(range(len(columns["index"])))))
    draft.claim_again()


def solved_without_solution(draft: Draft) -> None:
    row = draft.pick(draft.pruned)
    draft.cells(row, status="solved", **{ATTAINED: draft.rate(row) * 0.999})
    draft.claim_again()


def no_such_multipliers(draft: Draft) -> None:
    row = draft.pick(row for row, bound in enumerate(draft.rows["bound"]) if bound != "none")
    draft.cells(row, multipliers_index=draft.rng.choice((-1, -7, 1000, 2**31 - 1)))


def others_multipliers(draft: Draft) -> None:
    row = draft.pick(draft.pruned)
    draft.cells(row, multipliers_index=draft.pick(set(draft.rows["multipliers_index"]) - {-1}))
    draft.below(row)


def no_number(draft: Draft) -> None:
    row, column = draft.pick(draft.solved), draft.rng.choice((UPPER, ATTAINED, "area_mm2", "tdp_w"))
    draft.cells(row, **{column: draft.rng.choice((float("nan"), float("inf"), -1.0))})


def another_arch(draft: Draft) -> None:
    need("arch" in draft.rows)
    row, other = draft.pick(draft.claimed["front"]), draft.rng.randrange(len(draft.rows["index"]))
    need(row != other)
    draft.cells(row, arch=draft.point(other).inline())


STATEMENTS: tuple[Forgery, ...] = (
    faster, closer, smaller_gap, second_for_first, proved_within_less, count_otherwise, front_of_fewer,
    front_of_more, another_point, another_model, another_batch, shorter_sequences, too_few_devices,
    a_budget_that_the_best_breaks, a_space_without_the_best, another_axis, a_longer_axis, slots_in_another_order,
    another_slot, another_goal, another_estimator, other_constants, another_format,
)  # fmt: skip
ROWS: tuple[Forgery, ...] = (
    bound_below, bound_of_a_solved_below, no_memory, over_a_budget, attains_too_much, attains_a_little_more,
    takes_otherwise, another_design, bounds_swapped, row_dropped, best_dropped, row_twice, solved_without_solution,
    no_such_multipliers, others_multipliers, no_number, another_arch,
)  # fmt: skip
