"""Seconds of layers as a software runs them on many chips at once, collectives and launches included.

Arrays end with an axis of chips.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

import numpy as np

from phaze_opt.certify.check.plans.layer_sets import AGAIN, BACKWARD, EVERY, FORWARD, HEAD, PARTLY, UPDATE, LayerSet
from phaze_opt.certify.check.plans.wires import Sent, Wires, together
from phaze_opt.graph.operator import Collective, CollectiveGroup
from phaze_opt.record.arrays import Floats, Indices
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import TrainingStack

_ALONE: Mapping[tuple[int, int], float] = MappingProxyType({})
LAUNCH_POWER = 12.0
"""Device and host run side by side: a pass takes this norm of their times (decision 0196)."""


@dataclass(frozen=True, slots=True)
class PassTraffic:
    """What passes of parts send and launch, each of shape (parts, `EVERY`), s.

    Attributes:
        between_s: collectives that the layer waits for.
        beside_s: collectives beside its compute.
        tokens_s: tokens to experts and back.
        host_s: the host's launches.
    """

    between_s: Floats
    beside_s: Floats
    tokens_s: Floats
    host_s: Floats

    @property
    def key(self) -> tuple[bytes, ...]:
        """Equal for equal traffic."""
        return tuple(getattr(self, each.name).tobytes() for each in fields(self))


def pass_traffic(layers: LayerSet, plan: ParallelPlan, stack: TrainingStack, wires: Wires) -> PassTraffic:
    """Traffic of a set under a plan: where its groups lie may depend on the plan's stages and replicas."""
    groups = {group: wires.layer_group(plan, group) for group in CollectiveGroup}

    def all_of(collectives: Sequence[Collective]) -> Sent:
        return together(wires.collective(each.kind, each.payload_bytes, groups[each.group]) for each in collectives)

    def exchange(each: Collective) -> Sent:
        group = groups[each.group]
        sent = wires.collective(each.kind, each.payload_bytes, group)
        if not stack.sends_once_a_node:
            return sent
        return replace(sent, outer_s=wires.once_a_node(group, layers.num_active, layers.groups) * sent.outer_s)

    # Hosts take exponential times to launch a collective; the group waits for the slowest: H(t), one of it its own.
    slowest_s = stack.host_s_per_collective * (sum(1.0 / rank for rank in range(1, plan.tensor + 1)) - 1.0)
    shape = len(layers.parts), len(EVERY)
    between_s, beside_s, tokens_s, host_s = (np.zeros(shape) for _ in range(4))
    for part, all_places in enumerate(layers.parts):
        for column, each_pass in enumerate(EVERY):
            places = layers.inner_places[part] if each_pass in (AGAIN, PARTLY) else all_places
            sent = [layers.collectives[place][column] for place in places]
            between = all_of([each for own in sent for each in own.between])
            between_s[part, column] = (1.0 - stack.tensor_overlap) * between.called_seconds(stack)
            tokens = together(exchange(each) for own in sent for each in own.tokens)
            slower = replace(tokens, inner_s=tokens.inner_s / stack.expert_efficiency)
            slower = replace(slower, outer_s=tokens.outer_s / stack.expert_efficiency)
            tokens_s[part, column] = slower.called_seconds(stack)
            beside_s[part, column] = all_of([each for own in sent for each in own.beside]).seconds(stack)
            launches = sum(layers.launches[place][column] for place in places)
            number = between.number + tokens.number
            host_s[part, column] = launches * stack.host_s_per_operator + number * slowest_s
    return PassTraffic(between_s, beside_s, tokens_s, host_s)


@dataclass(frozen=True, slots=True)
class LayerPace:
    """Seconds of embedding, block and head on chips, each of shape (parts, chips).

    Attributes:
        forward, backward: passes of a micro-batch.
        again: forward as full recomputation runs it.
        attention: what selective recomputation adds.
        update: optimizer, once a step.
    """

    forward: Floats
    backward: Floats
    again: Floats
    attention: Floats
    update: Floats

    def of_chips(self, chosen: Indices) -> "LayerPace":
        """Some of the chips."""
        return LayerPace(
            self.forward[:, chosen],
            self.backward[:, chosen],
            self.again[:, chosen],
            self.attention[:, chosen],
            self.update[:, chosen],
        )

    def run_s(self, recompute: Recompute) -> Floats:
        """Forward and backward of each layer with what is recomputed, shape (layers, chips), s."""
        total = self.forward + self.backward
        if recompute is Recompute.SELECTIVE:
            total += self.attention
        elif recompute is Recompute.FULL:
            total += self.again
        return total


def layer_pace(
    layers: LayerSet,
    traffic: PassTraffic,
    stack: TrainingStack,
    makespan_s: Floats,
    attention_s: Floats,
    *,
    grouped_s: Mapping[tuple[int, int], float] = _ALONE,
) -> LayerPace:
    """Parts at the pace of their layers, one after the other.

    Args:
        layers: the set.
        traffic: of `pass_traffic`.
        stack: training software.
        makespan_s: on cores, shape (layers, 3 or 4, chips), s.
        attention_s: of the operators that selective recomputation runs again, shape (layers, chips), s.
        grouped_s: of parts and passes whose layers run in groups, what these take in place of their makespans, s.
    """
    update_s = layers.in_parts(makespan_s[:, UPDATE])
    forward_s, backward_s = layers.in_parts(makespan_s[:, FORWARD]), layers.in_parts(makespan_s[:, BACKWARD])
    for (part, column), seconds in grouped_s.items():
        (forward_s if column == FORWARD else backward_s)[part] = seconds
    # A schedule of forward serves what is left of it too.
    has_again = makespan_s.shape[1] > AGAIN
    again_s = layers.in_parts(
        np.minimum(makespan_s[:, FORWARD], makespan_s[:, AGAIN if has_again else FORWARD]), is_again=True
    )
    if layers.key.tensor == 1:
        forward_s[HEAD] /= stack.lone_head_efficiency
        backward_s[HEAD] /= stack.lone_head_efficiency
    # Gradients are added up at the rate of the update.
    backward_s += stack.accumulation_bytes / layers.update_bytes * update_s
    passes = enumerate((forward_s, backward_s, again_s, layers.in_parts(attention_s, is_again=True)))
    taken = [_taken(on_cores, traffic, column, stack) for column, on_cores in passes]
    return LayerPace(taken[0], taken[1], taken[2], taken[3], update_s)


def _taken(on_cores_s: Floats, traffic: PassTraffic, column: int, stack: TrainingStack) -> Floats:
    """A pass of all layers: on cores, what it sends, and the host where that is slower, shape (layers, chips), s."""
    between_s, beside_s, tokens_s, host_s = (getattr(traffic, each.name)[:, column, None] for each in fields(traffic))
    device_s = on_cores_s + between_s + np.maximum(beside_s - on_cores_s, 0.0)
    # What tokens hide behind hides nothing else.
    idle_s = np.maximum(on_cores_s - beside_s, 0.0)
    device_s = device_s + tokens_s - stack.expert_overlap * np.minimum(tokens_s, idle_s)
    if not traffic.host_s[:, column].any():
        return np.asarray(device_s)
    slower, faster = np.maximum(device_s, host_s), np.minimum(device_s, host_s)
    ratio = np.divide(faster, slower, out=np.zeros_like(slower), where=slower > 0.0)
    return np.asarray(slower * (1.0 + ratio**LAUNCH_POWER) ** (1.0 / LAUNCH_POWER))
