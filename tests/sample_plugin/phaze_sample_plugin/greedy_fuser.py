"""A fuser: every layer joins the group before it where the two together take less time than apart."""

from phaze_opt.schedule.layer_fusion import FusionGroup, FusionProblem


class GreedyFuser:
    """One pass from the first layer to the last."""

    name = "greedy"
    is_exact = False

    def fuse(self, problem: FusionProblem, *, seed: int = 0) -> tuple[FusionGroup, ...]:
        """Groups grown one layer at a time."""
        del seed
        least, way = problem.group_s.min(axis=-1), problem.group_s.argmin(axis=-1)
        first, groups = 0, []
        for layer in range(1, problem.num_layers + 1):
            is_last = layer == problem.num_layers
            if is_last or least[first, layer] + least[layer, layer + 1] <= least[first, layer + 1]:
                groups.append(FusionGroup(first, layer, int(way[first, layer])))
                first = layer
        return tuple(groups)
