"""What follows a loss: sums and weights of single numbers, which cost nothing; every loss is an end of its own."""

from dataclasses import replace

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.traced_model import TracedNode

LOSSES = {
    "aten.cross_entropy_loss",
    "aten.nll_loss",
    "aten.nll_loss_nd",
    "aten.mse_loss",
    "aten.l1_loss",
    "aten.smooth_l1_loss",
    "aten.huber_loss",
    "aten.binary_cross_entropy",
    "aten.binary_cross_entropy_with_logits",
    "aten.kl_div",
}


def end_at_losses(graph: FlatGraph) -> FlatGraph:
    """The graph that ends with its losses; one that has none is left as it is."""
    producers = graph.producers()
    ends: list[str] = []
    gone: set[int] = set()
    for name in graph.ends:
        losses, passed = _losses_above(graph, producers, name)
        ends += losses
        gone.update(id(node) for node in passed)
    kept = tuple(node for node in graph.nodes if id(node) not in gone)
    return replace(graph, nodes=kept, ends=tuple(dict.fromkeys(ends)))


def _losses_above(graph: FlatGraph, producers: dict[str, TracedNode], end: str) -> tuple[list[str], list[TracedNode]]:
    """Losses that a number is made of, and what makes it of them; itself if anything else goes in."""
    losses: list[str] = []
    passed: list[TracedNode] = []
    waiting, seen = [end], {end}
    while waiting:
        name = waiting.pop()
        node = producers.get(name)
        if node is not None and node.op in LOSSES:
            losses.append(name)
            continue
        if node is None or graph.tensors[name].shape:
            return [end], []
        passed.append(node)
        waiting += [above for above in graph.varying(node) if above not in seen]
        seen.update(waiting)
    return (losses, passed) if losses else ([end], [])
