"""Families of Hugging Face configs, and classes as configs name them: which family they are of, and what head.

What is known of a family is its row of ``families.json``.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from phaze_opt.record.model_faults import adapter


class ModelFamily(StrEnum):
    """Families of Hugging Face configs that are understood (the config's ``model_type``)."""

    BERT = "bert"
    GPT2 = "gpt2"
    OPT = "opt"
    LLAMA = "llama"
    MISTRAL = "mistral"
    QWEN2 = "qwen2"
    MIXTRAL = "mixtral"
    QWEN3 = "qwen3"
    QWEN3_MOE = "qwen3_moe"
    GEMMA = "gemma"
    GEMMA2 = "gemma2"
    GEMMA3_TEXT = "gemma3_text"
    PHI3 = "phi3"
    GPT_NEOX = "gpt_neox"
    FALCON = "falcon"
    ROBERTA = "roberta"
    DEEPSEEK_V2 = "deepseek_v2"
    DEEPSEEK_V3 = "deepseek_v3"
    GPT_OSS = "gpt_oss"
    LLAMA4_TEXT = "llama4_text"
    OLMO2 = "olmo2"
    OLMO3 = "olmo3"
    GRANITE = "granite"
    GLM4_MOE = "glm4_moe"
    ERNIE4_5 = "ernie4_5"
    ERNIE4_5_MOE = "ernie4_5_moe"
    SMOLLM3 = "smollm3"
    SEED_OSS = "seed_oss"
    EXAONE4 = "exaone4"
    MINIMAX_M2 = "minimax_m2"
    T5 = "t5"
    VIT = "vit"
    WHISPER = "whisper"


class HeadKind(StrEnum):
    """Heads of the classes that are priced, by the end of their names in transformers."""

    CAUSAL_LM = "ForCausalLM"
    LM_HEAD = "LMHeadModel"
    WITH_LM_HEAD = "WithLMHeadModel"
    MASKED_LM = "ForMaskedLM"
    PRETRAINING = "ForPreTraining"
    NEXT_SENTENCE = "ForNextSentencePrediction"
    GENERATION = "ForConditionalGeneration"
    SEQUENCE_CLASSES = "ForSequenceClassification"
    IMAGE_CLASSES = "ForImageClassification"
    TOKEN_CLASSES = "ForTokenClassification"
    ANSWERS = "ForQuestionAnswering"
    BASE = "Model"


LANGUAGE_HEADS = frozenset({HeadKind.CAUSAL_LM, HeadKind.LM_HEAD, HeadKind.WITH_LM_HEAD, HeadKind.GENERATION})
"""Heads that give every token its next."""
CLASSIFYING_HEADS = frozenset({HeadKind.SEQUENCE_CLASSES, HeadKind.IMAGE_CLASSES, HeadKind.TOKEN_CLASSES})
"""Heads of as many outputs as there are labels."""
ENCODERS = frozenset({ModelFamily.BERT, ModelFamily.ROBERTA, ModelFamily.VIT})
"""Families in which every position sees all others."""
DECODER_HEADS = (HeadKind.CAUSAL_LM, HeadKind.SEQUENCE_CLASSES, HeadKind.TOKEN_CLASSES, HeadKind.ANSWERS, HeadKind.BASE)


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """What is known of a family; ``families.json`` says what each key means."""

    prefix: str
    heads: tuple[HeadKind, ...] = DECODER_HEADS
    config: str = "decoder"
    reads: Mapping[str, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    has: Mapping[str, Any] = field(default_factory=dict)


@cache
def _table() -> Mapping[str, Any]:
    text = (files("phaze_opt.workload") / "families.json").read_text(encoding="utf-8")
    table: Mapping[str, Any] = json.loads(text)
    return table


@cache
def row_of(family: ModelFamily) -> FamilyRow:
    """What is known of a family."""
    row: FamilyRow = adapter(FamilyRow).validate_python(_table()["families"][family])
    return row


@cache
def families_by_type() -> Mapping[str, ModelFamily]:
    """Families by what configs call them; language models of some classes of several models are of another's."""
    others = {name: ModelFamily(family) for name, family in _table()["languages"].items() if name != "_meta"}
    return {family.value: family for family in ModelFamily} | others


def class_name(family: ModelFamily, head: HeadKind) -> str:
    """The class of a family with a head."""
    return f"{row_of(family).prefix}{head}"


def families_of_class(name: str) -> tuple[ModelFamily, ...]:
    """Known families that a class is of by its name: those of the longest prefix that ends before a capital."""
    prefixes = {family: row_of(family).prefix for family in ModelFamily}
    matching = [prefix for prefix in prefixes.values() if re.fullmatch(f"{prefix}([A-Z].*)?", name)]
    longest = max(matching, key=len, default="")
    return tuple(family for family, prefix in prefixes.items() if prefix == longest)


def head_of_class(name: str, family: ModelFamily) -> HeadKind | None:
    """The head of a class, if that is priced."""
    return next((head for head in row_of(family).heads if name == class_name(family, head)), None)


def family_of_class(name: str) -> ModelFamily | None:
    """The family that has a class of this very name."""
    return next((family for family in ModelFamily if head_of_class(name, family) is not None), None)
