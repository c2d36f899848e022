"""Notes on shapes that no measured step of a software has: attention without a causal mask, odd sizes of products."""

from collections.abc import Iterator
from dataclasses import replace

from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.sharding import unmasked_share
from phaze_opt.graph.traced.sharding_by_dataflow import vocabulary_sizes
from phaze_opt.graph.traced.traced_workload import TracedWorkload
from phaze_opt.objective.caveats import Note
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.plan_evaluation import PlannedJob
from phaze_opt.workload.model import transformer_of
from phaze_opt.workload.training import AttentionForm
from phaze_opt.workload.workload import Workload

TOLD_SHARE = 0.05
"""Share of a step that attention without a mask takes from which on it is said: at twice the time it errs by more than
steps of software that was measured do on average."""
PIECE = 8
"""16-bit elements that are read at once: 16 bytes."""
PADDED = 64
"""Multiple that sizes are padded to."""
LEAST_SHARE = 0.01
"""Share of a model's products below which an odd one is not said."""


def shape_notes(job: PlannedJob, evaluation: Evaluation) -> tuple[Note, ...]:
    """Notes on the shapes of a model on a machine that exists; none where no plan fits."""
    if not evaluation.is_feasible:
        return ()
    sentences = {"unmasked_attention": _unmasked(job, evaluation), "odd_sizes": _odd(job)}
    return tuple(Note(key, sentence) for key, sentence in sentences.items() if sentence)


def _unmasked(job: PlannedJob, evaluation: Evaluation) -> str:
    """That fused kernels skip half of the scores of causal attention alone."""
    stack, length = job.machine.stack, job.training.sequence_length
    if stack.attention is not AttentionForm.FUSED or stack.scores_share == 1:
        return ""
    taken = evaluation.breakdown.attention_s / evaluation.iteration_time_s
    share = taken * _unmasked_share(job.model, length)
    if share < TOLD_SHARE:
        return ""
    return (
        f"attention of {job.model.name} has no causal mask and is priced at the rate of causal attention: its "
        f"{share:.0%} of the step may take up to {1 / stack.scores_share:g} times as long"
    )


def _odd(job: PlannedJob) -> str:
    """That rows of a size that is no multiple of 16 bytes were never measured, and are slower on GPUs."""
    sizes = sorted(set(_odd_sizes(job)), reverse=True)[:2]
    if not sizes:
        return ""
    given = " and ".join(f"{size:,}" for size in sizes)
    padded = " and ".join(f"{-(-size // PADDED) * PADDED:,}" for size in sizes)
    return (
        f"products of {job.model.name} have sizes that are no multiple of {PIECE} ({given}), which nobody measured: "
        f"padded to {padded} they may be faster"
    )


def _odd_sizes(job: PlannedJob) -> Iterator[int]:
    """Columns and inner sizes of products with weights that are no multiple of a piece."""
    training = replace(job.training, micro_batch=1, global_batch=1)
    graph = build_model_graph(job.model, training, tensor_parallel=1)
    operators = [each for layer in graph.chain for each in graph.layers[layer].forward.operators]
    least = LEAST_SHARE * sum(each.macs for each in operators)
    padded = _vocabularies(job.model) if job.machine.stack.pads_vocabulary else frozenset()
    for each in operators:
        for matmul in each.matmuls:
            has_weight = each.parameter_bytes >= training.dtype_bytes * matmul.n * matmul.k
            if has_weight and not matmul.left_elements and matmul.macs >= least:
                yield from (size for size in (matmul.n, matmul.k) if size % PIECE and size not in padded)


def _unmasked_share(model: Workload, length: int) -> float:
    """Share of the products of attention that no causal mask halves, as far as it is known."""
    if isinstance(model, TracedWorkload):
        return model.unmasked_share
    spec = transformer_of(model)
    return 0.0 if spec is None else unmasked_share(spec, length)


def _vocabularies(model: Workload) -> frozenset[int]:
    """Outputs for every token."""
    if isinstance(model, TracedWorkload):
        return vocabulary_sizes(model.layered.graph)
    spec = transformer_of(model)
    return frozenset() if spec is None or spec.head.tokens is None else frozenset({spec.head.tokens.num_outputs})
