"""A cheap objective over a whole space: samples per second of one chip, every operator spread, one after another.

No placement, network or memory limit: it exists to compare encodings over thousands of short searches, and its optimum
over the space is known exactly.
"""

import numpy as np

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.graph.build import build_model_graph
from phaze_opt.hardware.constants import load_constants
from phaze_opt.record.arrays import Floats
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.workload.config import load_model
from phaze_opt.workload.training import TrainingSpec

MAX_SEQUENCE_LENGTH = 2048


def score_space(space: SearchSpace, model_name: str) -> Floats:
    """Samples per second of every point of a space, shape (size,), in index order."""
    constants = load_constants()
    model = load_model(model_name)
    sequence_length = min(model.max_sequence_length, MAX_SEQUENCE_LENGTH)
    estimator = AnalyticEstimator(constants)
    shape = (space.num_architectures, len(space.axes.hbm_bytes), len(space.axes.micro_batch))
    scores = np.empty(shape)
    for hbm, hbm_bytes in enumerate(space.axes.hbm_bytes):
        table = space.accelerator_table(constants, hbm_bytes=hbm_bytes)
        for batch, micro_batch in enumerate(space.axes.micro_batch):
            training = TrainingSpec(micro_batch=micro_batch, sequence_length=sequence_length, global_batch=4096)
            graph = build_model_graph(model, training, tensor_parallel=1)
            seconds = np.zeros(len(table))
            for index, layer in enumerate(graph.layers):
                for part in (layer.forward, layer.backward):
                    spread_s = estimator.estimate(part.operators, table).spread_s
                    seconds += graph.chain.count(index) * spread_s.sum(axis=1)
            scores[:, hbm, batch] = micro_batch / seconds
    return scores.ravel()
