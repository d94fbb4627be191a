"""What a step is made of: methods are timed in turns."""

import asyncio
from types import SimpleNamespace

from ops.bench import step_profile as profile


def test_methods_take_turns_prompt_by_prompt(monkeypatch):
    asked = []
    monkeypatch.setattr(profile, "read_bandwidth", lambda: 1.0)
    bench = object.__new__(profile._Bench)
    bench._stepper = SimpleNamespace(models=SimpleNamespace(methods={"a": "A", "b": "B"}))
    bench._time_drafter = lambda _: None
    bench._decode = lambda method, item, *_: asked.append(method + item)
    bench._figures = lambda *_: {}
    bench._operators = lambda *_: []
    figures = asyncio.run(bench.all_methods(["x", "y"], 8))
    warm_up, timed = asked[:2], asked[2:]
    assert warm_up == ["Ax", "Bx"]
    assert timed == ["Ax", "Bx", "Ay", "By"]
    assert list(figures) == ["a", "b"]
