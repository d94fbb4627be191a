"""Base classes of all schemas."""

import types
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator


class Schema(BaseModel):
    """Immutable, and strict about names: an unknown field is an error that names it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Message(Schema):
    """A schema that processes send each other, which may run different versions of the code."""

    def __setstate__(self, state: dict[Any, Any]) -> None:
        """Take a message that an older version of the code has pickled: fields that it lacks get
        their defaults."""
        told, fields = state["__dict__"], type(self).model_fields
        newer = {n: fields[n].get_default(call_default_factory=True) for n in fields.keys() - told}
        super().__setstate__({**state, "__dict__": told | newer})


class Settings(Schema):
    """A schema for YAML files: a number is finite, and never true or false.

    YAML reads `yes`, `no`, `on` and `off` as true and false, which pydantic takes for 1 and 0.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        if misread(cls.model_fields[str(info.field_name)].annotation, value):
            raise ValueError(MISREAD)
        return value


MISREAD = (
    "expected a number or text, not true or false (YAML reads yes, no, on and off as those; put "
    "text in quotes)"
)


def misread(annotation: Any, value: Any) -> bool:
    """Return whether a value holds true or false where its annotation has a number or text."""
    of_items = get_args(annotation)
    if isinstance(value, dict) and get_origin(annotation) is dict and of_items:
        keys, values = of_items
        return any(misread(keys, key) or misread(values, item) for key, item in value.items())
    types_of = _types(annotation)
    return isinstance(value, bool) and bool not in types_of and bool(types_of & {int, float, str})


def _types(annotation: Any) -> set[Any]:
    """Return the types that an annotation is made of, such as float and None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _types(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return set().union(*map(_types, get_args(annotation)))
    return {annotation}


def problems(error: ValidationError) -> list[str]:
    """Return `field: problem` for each error; a message about several fields names them itself."""
    found = []
    for item in error.errors(include_url=False):
        unknown = item["type"] == "extra_forbidden"
        said = "unknown field" if unknown else item["msg"].removeprefix("Value error, ")
        found.append(": ".join(filter(None, (".".join(map(str, item["loc"])), said))))
    return found
