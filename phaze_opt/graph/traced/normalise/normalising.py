"""The passes in their order."""

from collections.abc import Callable

from phaze_opt.errors import InputError
from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise.attention_core import combine_qkv, join_attention
from phaze_opt.graph.traced.normalise.dependence import drop_unused, fold_constants, plain_products
from phaze_opt.graph.traced.normalise.expert_sums import absorb_expert_biases, join_expert_sums
from phaze_opt.graph.traced.normalise.identities import elide_identities, end_at_losses, plain_names
from phaze_opt.graph.traced.normalise.regions import absorb_norm_weights, collapse_regions, join_gates
from phaze_opt.graph.traced.normalise.views import join_splits, lend_lookups, sink_views

OF_OTHER_FORM = (IndexError, KeyError, StopIteration, TypeError, ValueError, AttributeError)
"""What a pass may raise of operations without the arguments that their names need."""
PASSES: tuple[Callable[[FlatGraph], FlatGraph], ...] = (
    plain_names,
    drop_unused,
    elide_identities,
    fold_constants,
    plain_products,
    end_at_losses,
    join_attention,
    absorb_expert_biases,
    join_expert_sums,
    collapse_regions,
    absorb_norm_weights,
    join_gates,
    join_splits,
    drop_unused,
)


def normalised(graph: FlatGraph, *, has_combined_qkv: bool = False) -> FlatGraph:
    """The graph in the form that operator rules know.

    Args:
        graph: as it was traced.
        has_combined_qkv: whether query, key and value of an attention are made by one product.

    Raises:
        InputError: operations have not the arguments that their names need, or nothing is left of them.
    """
    for each in (*PASSES, *(combine_qkv,) * has_combined_qkv, sink_views, lend_lookups):
        try:
            graph = each(graph)
        except OF_OTHER_FORM as error:
            raise form_fault(error, each.__name__) from error
    if not graph.nodes:
        message = "the traced model has no operation that its loss and its parameters depend on; extract it again"
        raise InputError(message)
    return graph


def form_fault(error: Exception, step: str) -> InputError:
    """The error of a file whose operations are not what their names say."""
    message = (
        f"the traced model has operations without the arguments that their names need ({step}: "
        f"{type(error).__name__}: {error}); extract it again"
    )
    return InputError(message)
