"""The registry of parts by role and name; the files under drafters/, trees/, ... register
theirs."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from schemas import MethodSpec
from schemas.base import misread
from schemas.config import Role

PartClass = TypeVar("PartClass", bound=type)

FOLDERS: dict[Role, str] = {
    "drafter": "drafters",
    "tree": "trees",
    "stop": "stops",
    "verifier": "verifiers",
}
_PARTS: dict[tuple[Role, str], type] = {}


def register(role: Role, name: str) -> Callable[[PartClass], PartClass]:
    """Register a part's class under the name that a MethodSpec gives it.

    The class is built as `cls(context, **settings)`; its keyword arguments are its settings.
    """

    def remember(cls: PartClass) -> PartClass:
        if (role, name) in _PARTS:
            raise ValueError(f"{role} {name!r} is registered twice")
        _PARTS[role, name] = cls
        return cls

    return remember


@cache
def _import_parts() -> None:
    for folder in FOLDERS.values():
        package = importlib.import_module(f"workers.torch_engine.{folder}")
        for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
            importlib.import_module(f"{package.__name__}.{module.name}")


def check_parts(spec: MethodSpec) -> None:
    """Raise ValueError, naming the method, as `check_part` does for one of its parts."""
    for role in FOLDERS:
        try:
            check_part(role, getattr(spec, role), spec.settings.get(role, {}))
        except ValueError as error:
            raise ValueError(f"method {spec.name}: {error}") from error


def build(role: Role, name: str, context: Any, settings: Mapping[str, Any]) -> Any:
    """Build a part; raises ValueError as `check_part` does."""
    return check_part(role, name, settings)(context, **settings)


def check_part(role: Role, name: str, settings: Mapping[str, Any]) -> type:
    """Return a part's class, which nothing is built of. Raises ValueError naming the part or the
    setting that does not exist, and a setting of another type than the part's."""
    _import_parts()
    if (role, name) not in _PARTS:
        known = ", ".join(sorted(n for r, n in _PARTS if r == role))
        raise ValueError(f"unknown {role} {name!r}: this engine has {known}")
    cls = _PARTS[role, name]
    parameters = list(inspect.signature(cls, eval_str=True).parameters.values())[1:]
    accepted = {parameter.name: parameter.annotation for parameter in parameters}
    for setting, value in settings.items():
        if setting not in accepted:
            has = ", ".join(accepted) or "none"
            raise ValueError(f"{role} {name!r} has no setting {setting!r}: its settings are {has}")
        if not _is_a(accepted[setting], value):
            raise ValueError(f"{role} {name!r}: {setting} is {value!r}, which is of another type")
    return cls


def _is_a(annotation: Any, value: Any) -> bool:
    if misread(annotation, value):
        return False
    try:
        TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True
