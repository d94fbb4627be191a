"""Parts by role and name: a file under drafters/, trees/, ... registers what it defines."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from schemas.method import Role

PartClass = TypeVar("PartClass", bound=type)

FOLDERS: dict[Role, str] = {
    "drafter": "drafters",
    "tree": "trees",
    "stop": "stops",
    "verifier": "verifiers",
}
_PARTS: dict[tuple[Role, str], type] = {}


def register(role: Role, name: str) -> Callable[[PartClass], PartClass]:
    """Class decorator: makes a part known under the name that a MethodSpec gives it.

    The class is built as `cls(materials, **settings)`; its keyword arguments are its settings.
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
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")


def build(role: Role, name: str, materials: Any, settings: Mapping[str, Any]) -> Any:
    """Build a part; raises ValueError naming the part or the setting that does not exist."""
    _import_parts()
    if (role, name) not in _PARTS:
        known = ", ".join(sorted(n for r, n in _PARTS if r == role))
        raise ValueError(f"unknown {role} {name!r}: this engine has {known}")
    cls = _PARTS[role, name]
    accepted = list(inspect.signature(cls).parameters)[1:]
    for setting in settings:
        if setting not in accepted:
            has = ", ".join(accepted) or "none"
            raise ValueError(f"{role} {name!r} has no setting {setting!r}: its settings are {has}")
    return cls(materials, **settings)
