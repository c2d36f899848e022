"""What a study adds to its searches: reference machines, true optima and the table of the generality question."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.serialize import evaluation_to_json
from phaze_opt.search.goals import goal_directions
from phaze_opt.study.cell_log import replace_file
from phaze_opt.study.config import StudyConfig
from phaze_opt.study.directory import StudyDirectory
from phaze_opt.study.engine import StudyEngine
from phaze_opt.study.load import references_path, truth_path
from phaze_opt.study.plain import to_plain
from phaze_opt.study.plan import Condition
from phaze_opt.study.progress import Stage
from phaze_opt.study.result import Truth


@dataclass(frozen=True, slots=True)
class Conclusion:
    """Adds what is missing; everything found from an earlier run stays.

    Attributes:
        config, conditions, directory, engine: of the study.
        on_item: told of a stage, what is at hand, how many items are done and of how many.
    """

    config: StudyConfig
    conditions: tuple[Condition, ...]
    directory: StudyDirectory
    engine: StudyEngine
    on_item: Callable[[Stage, str, int, int], None]

    def add_all(self) -> None:
        """References, then true optima if they are asked for, then the generality question if it is asked."""
        self.add_references()
        if self.config.judgement.truth == "enumerate":
            self.add_truths()

    def add_references(self) -> None:
        """Evaluate the reference machines, once for conditions that differ in goal or budgets of the space only."""
        if self.engine.find_references is None:
            return
        found: dict[tuple[str, tuple[int, ...]], Mapping[str, Evaluation]] = {}
        for number, condition in enumerate(self.conditions):
            path = references_path(self.directory, condition.key)
            if path.exists():
                continue
            self.on_item(Stage.REFERENCES, condition.key, number, len(self.conditions))
            key = (condition.evaluations_digest, condition.space.axes.micro_batch)
            if key not in found:
                found[key] = self.engine.find_references(condition)
            rows = {name: evaluation_to_json(evaluation) for name, evaluation in found[key].items()}
            replace_file(path, json.dumps(rows) + "\n")

    def add_truths(self) -> None:
        """Find the true optimum of every condition of one objective."""
        for number, condition in enumerate(self.conditions):
            path = truth_path(self.directory, condition.problem_digest)
            if path.exists() or len(goal_directions(condition.goal)) > 1:
                continue
            self.on_item(Stage.TRUTHS, condition.key, number, len(self.conditions))
            truth = self.engine.find_truth(condition, self.directory.truths)
            replace_file(path, json.dumps(to_plain(Truth, truth)) + "\n")
