"""A model of a made-up document, with a field for every rule that `phaze_opt.record.model_faults` words."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(default="p", min_length=1, max_length=5)
    size: Annotated[int, Field(gt=0, le=10**6)] = 1


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    count: Annotated[int, Field(ge=2, lt=9)]
    rate: float = Field(default=1.0, allow_inf_nan=False)
    lax: Annotated[int, Field(strict=False)] = 1
    is_on: bool = True
    word: Literal["SGD", "Adam"] = "SGD"
    never: Literal[False] = False
    colour: Annotated[Colour, Field(strict=False)] = Colour.RED
    by_colour: dict[Annotated[Colour, Field(strict=False)], float] = {}
    option: int | str = 1
    sizes: Annotated[list[int], Field(min_length=1, max_length=3)] = [1]
    pair: Annotated[list[int], Field(min_length=2)] = [1, 2]
    parts: list[Part] = []
    named: dict[str, list[Part]] = {}

    @model_validator(mode="after")
    def _check(self) -> "Whole":
        if self.count == 7:
            message = "needs luck"
            raise ValueError(message)
        return self
