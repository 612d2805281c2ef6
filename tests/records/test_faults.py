"""What is wrong with a value is said in kforge's words, and never in pydantic's."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError, field_validator
from pydantic.functional_validators import BeforeValidator

from kforge.records import Count, Record
from kforge.records.faults import WrongField, first_fault


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(Record):
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class Whole(Record):
    count: Annotated[int, Field(ge=1, le=9)] = 1
    tokens: Count = 0
    colour: Colour = Colour.RED
    effort: Literal["low", "high"] = "low"
    name: Annotated[str, Field(min_length=2, max_length=4, pattern="^[a-z]+$")] = "abc"
    names: Annotated[tuple[str, ...], Field(min_length=1)] = ("a",)
    inner: Inner = Inner()
    table: dict[str, int] = Field(default_factory=dict)
    flag: bool = False
    search: str = "linear"

    @field_validator("search")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name != "linear":
            raise ValueError("there is no such search")
        return name


@pytest.mark.parametrize(
    ("given", "field", "reason"),
    [
        ({"count": 0}, "count", "must be at least 1, not 0"),
        ({"count": "0"}, "count", "must be at least 1, not '0'"),
        ({"count": 10}, "count", "must be at most 9, not 10"),
        ({"count": "many"}, "count", "must be a whole number, not 'many'"),
        ({"count": 1.5}, "count", "must be a whole number, not 1.5"),
        ({"tokens": -1}, "tokens", "it must be a count from 0 to 9223372036854775807, not -1"),
        ({"colour": "green"}, "colour", "must be 'red' or 'blue', not 'green'"),
        ({"effort": "x" * 100}, "effort", f"must be 'low' or 'high', not '{'x' * 60}...'"),
        ({"name": "a"}, "name", "must have a length of at least 2, not 'a'"),
        ({"name": "abcde"}, "name", "must have a length of at most 4, not 'abcde'"),
        ({"name": "A\x1b["}, "name", "must match ^[a-z]+$, not 'A\\x1b['"),
        ({"name": 3}, "name", "must be text, not 3"),
        ({"names": []}, "names", "must have a length of at least 1"),
        ({"names": "a"}, "names", "must be a list, not 'a'"),
        ({"inner": {"weight": 0}}, "inner.weight", "must be more than 0, not 0"),
        ({"inner": {"weight": float("nan")}}, "inner.weight", "must be a finite number, not nan"),
        ({"inner": 7}, "inner", "must be a table of names and values, not 7"),
        ({"table": 7}, "table", "must be a table of names and values, not 7"),
        ({"flag": "perhaps"}, "flag", "must be true or false, not 'perhaps'"),
        ({"search": "bogus"}, "search", "there is no such search"),
        ({"colours": 1}, "colours", "is not known"),
    ],
)  # fmt: skip
def test_says_what_is_accepted_and_what_was_given(given: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(given)
    assert first_fault(caught.value) == WrongField(field, reason)
    assert str(first_fault(caught.value)) == f"{field}: {reason}"


def test_a_fault_of_the_whole_text_has_no_field() -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.from_json("{")
    assert str(first_fault(caught.value)) == "it is not valid JSON"


def test_the_fault_inside_another_validator_is_the_one_that_is_described() -> None:
    numbers = TypeAdapter(Annotated[int, Field(ge=1)])
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Annotated[Any, BeforeValidator(numbers.validate_python)]).validate_python(0)
    assert first_fault(caught.value).reason == "must be at least 1, not 0"


def test_a_kind_without_words_of_its_own_is_described_without_pydantics_subject() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(bytes).validate_python(3)
    assert first_fault(caught.value).reason == "must be a valid bytes, not 3"
