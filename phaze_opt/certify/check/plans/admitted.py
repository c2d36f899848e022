"""The parallel plans that a scenario admits: rules of models, batches and devices, one after the other."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd, prod

from phaze_opt.graph.operator import ShardingOptions
from phaze_opt.graph.recorded import as_recorded
from phaze_opt.workload.block_spec import BlockSpec, QueryKeyNorm
from phaze_opt.workload.end_specs import TokenFront
from phaze_opt.workload.model import transformer_of
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.software import DEGREES, LaunchRule
from phaze_opt.workload.workload import Workload

_RECOMPUTE = tuple(Recompute)


def admitted_plans(
    model: Workload,
    choices: PlanChoices,
    *,
    num_devices: int,
    global_batch: int,
    sequence_length: int,
    rules: Sequence[LaunchRule] = (),
    has_cuts: bool = False,
) -> tuple[ParallelPlan, ...]:
    """Every plan, each once, by rising degrees.

    Args:
        model: what is trained.
        choices: what each field of a plan may be.
        num_devices: of the cluster.
        global_batch: samples a step.
        sequence_length: tokens a sample.
        rules: of the software's launcher.
        has_cuts: whether stages may be cut unevenly: then embedding and head may be stages of their own, and count as
            blocks of equal chunks.
    """
    ends = 2 if has_cuts else 0
    found = set()
    degrees = ((tensor, *each) for tensor in choices.tensor for each in _expert_degrees(model, choices, tensor))
    for (tensor, expert, split), context in product(degrees, choices.context):
        if sequence_length % context or not is_shardable(model, tensor=tensor, expert=expert, split=split):
            continue
        if _is_left_out(model, choices, tensor=tensor, expert=expert, split=split):
            continue
        devices = num_devices // (tensor * context)
        for pipeline, data, micro_batch in _spreads(choices, devices, (model.num_units, ends), global_batch):
            # Devices with tokens of their own for the experts, and those of them that hold the same.
            routing = data * context * (tensor // split if split else 1)
            if routing % expert:
                continue
            copies = routing // expert if split or expert > 1 else 0
            replicas = max(data * context, copies)
            num_micro = global_batch // (data * micro_batch)
            for interleave in _chunk_counts(model, choices, pipeline, num_micro, ends):
                for (zero, shards), recompute in product(_states(choices, data, replicas, copies), choices.recompute):
                    found.add(
                        ParallelPlan(
                            tensor,
                            pipeline,
                            data,
                            context,
                            expert,
                            interleave,
                            micro_batch,
                            zero,
                            shards,
                            recompute,
                            is_sequence_parallel=choices.is_sequence_parallel and tensor > 1,
                            expert_tensor=split,
                        )  # fmt: skip
                    )
    batch = (global_batch, sequence_length)
    return tuple(sorted((plan for plan in found if _is_launched(rules, plan, model, batch)), key=_rank))


def _is_launched(rules: Sequence[LaunchRule], plan: ParallelPlan, model: Workload, batch: tuple[int, int]) -> bool:
    """Whether a launcher starts a plan; batches are of so many samples of so many tokens."""
    spec, (samples, tokens) = transformer_of(model), batch
    heads = [each.num_kv_heads for block in spec.kinds for each in block.attentions] if spec else []
    known = {name: int(getattr(plan, name)) for name in DEGREES}
    known |= {"sequence_length": tokens, "experts": model.num_experts, "micro_batches": plan.num_micro_batches(samples)}
    known["key_value_heads"] = gcd(*heads)
    known["sequence_shards"] = plan.tensor if plan.is_sequence_parallel else 1
    known["expert_folds"] = plan.tensor // plan.expert_tensor if plan.expert_tensor else 1
    for rule in (rule for rule in rules if all(known[name] > 1 for name in rule.when)):
        size, unit = known[rule.size], rule.times * prod(max(known[name], 1) for name in rule.of)
        is_bound = rule.is_least or rule.is_most
        if (is_bound and (size < unit if rule.is_least else size > unit)) or (not is_bound and size % unit):
            return False
    return True


def _expert_degrees(model: Workload, choices: PlanChoices, tensor: int) -> Iterator[tuple[int, int]]:
    """Shards of the experts, and devices that split each: 0 where nothing is said of them.

    A tensor group that is free and cannot share whole experts among its devices splits each of them.
    """
    experts, splits = choices.expert or _divisors(model.num_experts), choices.expert_tensor or (0, 1)
    if not choices.expert_tensor and model.num_experts % tensor:
        splits = (*splits, tensor)
    if not model.has_experts:
        splits = tuple({0 if split == 1 else split for split in splits})
    yield from product(experts, splits)


def _is_left_out(model: Workload, choices: PlanChoices, *, tensor: int, expert: int, split: int) -> bool:
    """Whether leaving out who splits the experts, which is among the choices, puts them on the same devices.

    Where nothing is said at all, whole experts go round a tensor group before any is copied.
    """
    if split and not choices.expert_tensor and expert * split < tensor:
        return True
    if split == 0 or 0 not in (choices.expert_tensor or (0, 1)):
        return False
    has_one = 1 in (choices.expert or _divisors(model.num_experts))
    return (split == tensor and expert > 1) or (split == 1 and expert == tensor and has_one)


def is_shardable(model: Workload, *, tensor: int, expert: int, split: int) -> bool:
    """Whether heads, key-value heads or their copies, channels or whole experts, and shards of experts divide.

    A model that is no transformer says so itself.
    """
    spec = transformer_of(model)
    if spec is None:
        own = ShardingOptions(
            expert=expert if expert > 1 or split else None, has_kv_replicas=True, expert_tensor=split or None
        )
        return as_recorded(model).sharding_obstacle(tensor, own) is None
    if (expert > 1 or split > 1) and not spec.has_experts:
        return False
    if spec.num_experts % expert or (split and tensor % split):
        return False
    front = spec.stack.front
    is_front_divided = not isinstance(front, TokenFront) or front.embedding_size in (
        front.hidden_size,
        front.embedding_size // tensor * tensor,
    )
    return is_front_divided and all(
        _is_block_shardable(block, tensor=tensor, expert=expert, split=split) for block in spec.kinds
    )


def _is_block_shardable(block: BlockSpec, *, tensor: int, expert: int, split: int) -> bool:
    """Whether a tensor degree divides a kind of block."""
    divided = [mlp.width for mlp in block.dense_mlps]
    for attention in block.attentions:
        divided.append(attention.num_heads)
        if tensor % attention.num_kv_heads:
            divided.append(attention.num_kv_heads)
        if attention.qk_norm is QueryKeyNorm.WHOLE:
            divided.append(attention.num_kv_heads * attention.head_size)
    if block.experts is not None:
        width, number = block.experts.expert.width, block.experts.num_experts
        if split and width % split:
            return False
        if not split:
            divided.append(number if expert == 1 else width)
    return all(count % tensor == 0 for count in divided)


def even_blocks(num_layers: int, stages: int) -> tuple[int, ...]:
    """Blocks of each stage; stages differ by one at most, the larger come first."""
    return tuple(len(range(stage, num_layers, stages)) for stage in range(stages))


def chunk_cuts(num_layers: int, stages: int, chunks: int) -> tuple[tuple[int, ...], ...]:
    """Blocks of each stage for every way to cut equal chunks, so many a stage; even ones come first.

    The embedding, the head, or both may count as a block, so that the first or the last stage has one fewer.
    """
    if stages == 1:
        return ((num_layers,),)
    found = []
    for embedding, head in ((0, 0), (1, 0), (0, 1), (1, 1)):
        whole = num_layers + embedding + head
        if whole % (stages * chunks) == 0:
            cut = [whole // stages] * stages
            cut[0] -= embedding
            cut[-1] -= head
            found.append(tuple(cut))
    return tuple(found)


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(each for each in range(1, number + 1) if number % each == 0)


def _spreads(
    choices: PlanChoices, devices: int, layers: tuple[int, int], global_batch: int
) -> Iterator[tuple[int, int, int]]:
    """Stages, replicas and micro-batches on the devices that tensor and context groups leave, a batch of whole ones.

    Where nothing is said of replicas, no more of them would fit beside the stages; where nothing is said of stages
    either, no more stages beside the replicas, be it of ``layers``, the blocks, or of these and the ends, unless each
    replica has one micro-batch. Stages that nothing is said of divide the devices beside given replicas, or are the
    most.
    """
    for micro_batch in choices.micro_batch:
        fits = [each for each in _divisors(global_batch) if global_batch % (each * micro_batch) == 0]
        for data in fits if not choices.data else [each for each in choices.data if each in fits]:
            room = min(devices // data, sum(layers))
            for pipeline in choices.pipeline or range(1, room + 1):
                is_held = pipeline <= room
                is_most = choices.data or not any(data < other <= devices // pipeline for other in fits)
                is_free = not choices.pipeline and pipeline not in (room, min(room, layers[0]))
                may_be = devices % pipeline == 0 if choices.data else data * micro_batch == global_batch
                if is_held and is_most and (may_be or not is_free):
                    yield pipeline, data, micro_batch


def _chunk_counts(model: Workload, choices: PlanChoices, pipeline: int, num_micro: int, ends: int) -> Iterator[int]:
    """Chunks a stage: equal ones, whole rounds of stages."""
    # Chunks are equal, so that blocks that differ make one a stage.
    is_equal = len(model.cut.units) == 1
    for interleave in choices.interleave or (_divisors(model.num_units) if is_equal else (1,)):
        chunks = pipeline * interleave
        divides = any((model.num_units + counted) % chunks == 0 for counted in range(ends + 1))
        is_round = pipeline > 1 and num_micro % pipeline == 0
        if interleave == 1 or (divides and is_round and is_equal):
            yield interleave


def _states(choices: PlanChoices, data: int, replicas: int, copies: int) -> Iterator[tuple[int, int]]:
    """ZeRO stages and shards, but for repetitions: nobody to share with, or nothing that is shared.

    Copies of experts that are more than the shards of their state are a multiple of these.
    """
    first = (choices.zero[0], choices.state_shards[0])
    for zero, shards in product(choices.zero, choices.state_shards):
        is_first = (zero, shards) == first if replicas == 1 else zero > 0 or shards == first[1]
        if zero and 0 < shards < copies and copies % shards:
            continue
        if is_first and (shards == 0 or data % shards == 0):
            yield zero, shards


def _rank(plan: ParallelPlan) -> tuple[int, ...]:
    layers = (plan.tensor, plan.context, plan.expert, plan.expert_tensor, plan.micro_batch)
    rest = (plan.pipeline, plan.data, plan.interleave, plan.zero, plan.state_shards)
    return (*layers, *rest, _RECOMPUTE.index(plan.recompute))
