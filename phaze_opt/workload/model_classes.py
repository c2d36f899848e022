"""Families of Hugging Face configs, and classes as configs name them: which family they are of, and what head."""

import re
from enum import StrEnum


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
    GEMMA3 = "gemma3"
    GEMMA3_TEXT = "gemma3_text"
    PHI3 = "phi3"
    GPT_NEOX = "gpt_neox"
    FALCON = "falcon"
    ROBERTA = "roberta"
    DEEPSEEK_V2 = "deepseek_v2"
    DEEPSEEK_V3 = "deepseek_v3"
    GPT_OSS = "gpt_oss"
    LLAMA4 = "llama4"
    LLAMA4_TEXT = "llama4_text"
    OLMO2 = "olmo2"
    GRANITE = "granite"
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
DECODER_HEADS = (HeadKind.CAUSAL_LM, HeadKind.SEQUENCE_CLASSES, HeadKind.TOKEN_CLASSES, HeadKind.ANSWERS, HeadKind.BASE)
ENCODER_HEADS = (HeadKind.MASKED_LM, HeadKind.SEQUENCE_CLASSES, HeadKind.TOKEN_CLASSES, HeadKind.ANSWERS, HeadKind.BASE)
_HEADS = {
    ModelFamily.BERT: (HeadKind.PRETRAINING, *ENCODER_HEADS, HeadKind.LM_HEAD, HeadKind.NEXT_SENTENCE),
    ModelFamily.ROBERTA: ENCODER_HEADS,
    ModelFamily.GPT2: (HeadKind.LM_HEAD, *DECODER_HEADS[1:]),
    ModelFamily.VIT: (HeadKind.IMAGE_CLASSES, HeadKind.BASE),
    ModelFamily.T5: (HeadKind.GENERATION, HeadKind.WITH_LM_HEAD),
    ModelFamily.WHISPER: (HeadKind.GENERATION,),
}
_PREFIXES = {
    ModelFamily.BERT: "Bert",
    ModelFamily.GPT2: "GPT2",
    ModelFamily.OPT: "OPT",
    ModelFamily.LLAMA: "Llama",
    ModelFamily.MISTRAL: "Mistral",
    ModelFamily.QWEN2: "Qwen2",
    ModelFamily.MIXTRAL: "Mixtral",
    ModelFamily.QWEN3: "Qwen3",
    ModelFamily.QWEN3_MOE: "Qwen3Moe",
    ModelFamily.GEMMA: "Gemma",
    ModelFamily.GEMMA2: "Gemma2",
    ModelFamily.GEMMA3: "Gemma3",
    ModelFamily.GEMMA3_TEXT: "Gemma3",
    ModelFamily.PHI3: "Phi3",
    ModelFamily.GPT_NEOX: "GPTNeoX",
    ModelFamily.FALCON: "Falcon",
    ModelFamily.ROBERTA: "Roberta",
    ModelFamily.DEEPSEEK_V2: "DeepseekV2",
    ModelFamily.DEEPSEEK_V3: "DeepseekV3",
    ModelFamily.GPT_OSS: "GptOss",
    ModelFamily.LLAMA4: "Llama4",
    ModelFamily.LLAMA4_TEXT: "Llama4",
    ModelFamily.OLMO2: "Olmo2",
    ModelFamily.GRANITE: "Granite",
    ModelFamily.T5: "T5",
    ModelFamily.VIT: "ViT",
    ModelFamily.WHISPER: "Whisper",
}


def heads_of(family: ModelFamily) -> tuple[HeadKind, ...]:
    """Heads of a family that are priced, the one that stands where a config names none first."""
    return _HEADS.get(family, DECODER_HEADS)


def class_name(family: ModelFamily, head: HeadKind) -> str:
    """The class of a family with a head."""
    return f"{_PREFIXES[family]}{head}"


def families_of_class(name: str) -> tuple[ModelFamily, ...]:
    """Known families that a class is of by its name: those of the longest prefix that ends before a capital."""
    matching = [prefix for prefix in _PREFIXES.values() if re.fullmatch(f"{prefix}([A-Z].*)?", name)]
    longest = max(matching, key=len, default="")
    return tuple(family for family, prefix in _PREFIXES.items() if prefix == longest)


def head_of_class(name: str, family: ModelFamily) -> HeadKind | None:
    """The head of a class, if that is priced."""
    return next((head for head in heads_of(family) if name == class_name(family, head)), None)
