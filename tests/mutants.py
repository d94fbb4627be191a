"""Modules with one thing changed, which a test has to notice."""

import inspect
import sys
from types import ModuleType
from typing import Any

import pytest

from workers.torch_engine import registry


def mutated(monkeypatch: pytest.MonkeyPatch, module: ModuleType, old: str, new: str) -> Any:
    """The module as it would be with `old` replaced by `new`, nothing of it registered; where that
    line is gone, this says so and the mutant has to be written anew."""
    registry._import_parts()  # before nothing is registered any more
    monkeypatch.setattr(registry, "register", lambda *_: lambda cls: cls)
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{module.__name__} does not say {old!r} once"
    made = ModuleType(f"{module.__name__}_mutant")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(compile(source.replace(old, new), made.__name__, "exec"), made.__dict__)
    return made
