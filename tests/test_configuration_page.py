"""docs/configuration.md, written from the models: `python tests/test_configuration_page.py`."""

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas import AppConfig, MethodDeployment, MethodSpec

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
MOST = 75
INTRODUCTION = (
    "# Settings\n\n"
    "Use this page to look up a setting. A YAML file for `specadapt serve --config`, the `args` of "
    "a Ray Serve configuration and the flags of commands set the same fields. `specadapt config "
    "validate FILE` names a wrong one, `specadapt config show FILE` prints all of them. `methods` "
    "is a list; `shared` has the same fields as its items. "
    "[operations.md](operations.md#changing-it-while-it-runs) lists those that change without a "
    "restart.\n\n"
    "| setting | default | what it does |\n|---|---|---|\n"
)


def page() -> str:
    rows = (f"| `{name}` | {default} | {said} |\n" for name, default, said in settings())
    return INTRODUCTION + "".join(rows)


def settings() -> Iterator[tuple[str, str, str]]:
    """Yield each field's dotted name, its default and its description."""
    for name, field in AppConfig.model_fields.items():
        if name == "methods":
            yield name, "", field.description or ""
            yield from fields(MethodDeployment, "methods[].")
        elif name == "shared":
            yield name, "", field.description or ""
        else:
            yield from leaves(name, field)


def fields(model: type[BaseModel], above: str) -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        yield from leaves(above + name, field)


def leaves(name: str, field: FieldInfo) -> Iterator[tuple[str, str, str]]:
    inner = [one for one in parts(field.annotation) if is_model(one)]
    if inner:
        yield from fields(inner[0], f"{name}.")
        return
    said = (field.description or "").replace("|", "\\|")
    literal = [p for p in parts(field.annotation) if get_origin(p) is Literal]
    values = [repr(value) for one in literal for value in get_args(one)]
    choices = f" ({', '.join(values)})".replace("'", "") if values else ""
    yield name, default_of(field), said + choices


def parts(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)


def is_model(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, BaseModel) and one is not MethodSpec


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return "" if field.default in (None, (), {}) else f"`{field.default}`"


def test_the_page_is_that_of_the_models() -> None:
    assert PAGE.read_text() == page(), f"run python {Path(__file__).name} in tests/"


def test_every_setting_is_described_and_there_are_few() -> None:
    every = list(settings())
    assert [name for name, _, said in every if not said] == []
    assert len(every) <= MOST


if __name__ == "__main__":
    PAGE.write_text(page())
