"""The passes in their order."""

from collections.abc import Callable

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise.after_loss import end_at_losses
from phaze_opt.graph.traced.normalise.attention_core import join_attention
from phaze_opt.graph.traced.normalise.dependence import drop_unused, fold_constants
from phaze_opt.graph.traced.normalise.gates import join_gates
from phaze_opt.graph.traced.normalise.identities import elide_identities
from phaze_opt.graph.traced.normalise.names import plain_names
from phaze_opt.graph.traced.normalise.norm_weights import absorb_norm_weights
from phaze_opt.graph.traced.normalise.regions import collapse_regions
from phaze_opt.graph.traced.normalise.splits import join_splits
from phaze_opt.graph.traced.normalise.views import sink_views

PASSES: tuple[Callable[[FlatGraph], FlatGraph], ...] = (
    plain_names,
    drop_unused,
    elide_identities,
    fold_constants,
    end_at_losses,
    join_attention,
    collapse_regions,
    absorb_norm_weights,
    join_gates,
    join_splits,
    drop_unused,
    sink_views,
)


def normalised(graph: FlatGraph) -> FlatGraph:
    """The graph in the form that operator rules know."""
    for each in PASSES:
        graph = each(graph)
    return graph
