"""Stages of a pipeline that a user states: blocks and recomputation of each, as text and as a plan has them."""

import re

from phaze_opt.errors import InputError
from phaze_opt.objective.scenario_options import ScenarioOptions
from phaze_opt.record.suggestions import parse_word
from phaze_opt.workload.plan import Recompute

MAX_STAGES = 10_000
"""Stages that a text may name: far more than any model has blocks."""
_RUN = re.compile(r"\s*(?:(?P<count>[0-9]{1,6})\s*x\s*)?(?P<word>[a-z0-9]{1,20})\s*")
_BLOCKS = re.compile(r"[0-9]{1,7}")
_RECOMPUTE = ScenarioOptions().recompute


def given_stages(options: ScenarioOptions) -> tuple[tuple[int, ...], tuple[Recompute, ...]]:
    """Blocks and recomputation of each stage where they are given, else none.

    Raises:
        InputError: one is no list of stages, or does not go with the other, or with another option.
    """
    if not options.stage_blocks:
        if options.stage_recompute:
            message = "is for stages that are given; give --stage-blocks too, or leave it out"
            raise InputError(message, source="--stage-recompute")
        return (), ()
    words = _read_stages(options.stage_blocks, "--stage-blocks")
    if not all(map(_BLOCKS.fullmatch, words)):
        message = f"'{options.stage_blocks[:60]}' must be numbers of blocks, such as 7,8x14,7"
        raise InputError(message, source="--stage-blocks")
    if options.pipeline and len(words) not in options.pipeline:
        message = f"names {len(words)} stages, not the {' or '.join(map(str, options.pipeline))} of --pipeline"
        raise InputError(message, source="--stage-blocks")
    return tuple(map(int, words)), _given_recomputes(options, len(words))


def _given_recomputes(options: ScenarioOptions, num_stages: int) -> tuple[Recompute, ...]:
    """What each of the stages that are given recomputes; none where that is free."""
    if not options.stage_recompute:
        return ()
    source = "--stage-recompute"
    words = _read_stages(options.stage_recompute, source)
    if len(words) != num_stages:
        message = f"names {len(words)} stages, not the {num_stages} of --stage-blocks"
        raise InputError(message, source=source)
    if options.recompute != _RECOMPUTE:
        message = "says what --recompute says of all stages; leave one of them out"
        raise InputError(message, source=source)
    return tuple(parse_word(Recompute, word, source=source) for word in words)


def _read_stages(text: str, source: str) -> tuple[str, ...]:
    """A word for each stage: a count before an ``x`` stands for as many stages.

    Raises:
        InputError: a word is missing or a count is none, or there are more than `MAX_STAGES`.
    """
    found: list[str] = []
    for part in text.split(","):
        run = _RUN.fullmatch(part)
        repeats = int(run["count"] or 1) if run else 0
        if run is None:
            message = f"'{part[:60]}' in '{text[:60]}' is no stage, nor several such as 8x14; separate them by commas"
            raise InputError(message, source=source)
        if not 1 <= repeats <= MAX_STAGES - len(found):
            message = f"'{text[:60]}' must name 1 to {MAX_STAGES:,} stages, such as 7,8x14,7"
            raise InputError(message, source=source)
        found += [run["word"]] * repeats
    return tuple(found)
