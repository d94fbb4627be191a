"""The command and the middleware of `vllm serve` with several drafters, without vLLM's engine."""

import json
import shlex

import pytest
from conftest_bundle import DEMO

from ops.main import app
from workers.vllm_engine.drafting.portfolio import KEY, REQUESTS, Portfolio
from workers.vllm_engine.front_door import serve_command
from workers.vllm_engine.middleware import with_method

SALTS = {"naive": None, "ngram": None, "eagle3": "eagle3", "adaptive": "adaptive"}


@pytest.fixture(autouse=True)
def _any_release(monkeypatch):
    """Leave the installed vLLM out: test_vllm_versions.py tests it."""
    monkeypatch.setattr("workers.vllm_engine.front_door.require", lambda *_: None)


def flag(words, name: str) -> str:
    return words[words.index(name) + 1]


def asked(body, default: str = "adaptive"):
    return json.loads(with_method(json.dumps(body).encode(), SALTS, default))


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
    assert words[words.index("serve") + 1] == str(DEMO / "target")
    assert flag(words, "--port") == "8001"
    assert "--max-model-len=64" in words
    config = json.loads(flag(words, "--additional-config"))
    portfolio = Portfolio.from_config(config[KEY])
    assert set(portfolio.methods) == {"ngram", "medusa", "eagle3", "adaptive"}
    assert [one.method for one in portfolio.adaptive.learned] == ["medusa", "eagle3"]
    salts = SALTS | {"medusa": None}
    assert config[REQUESTS] == {"default": "adaptive", "salts": salts}
    assert json.loads(flag(words, "--speculative-config"))["model"] == str(DEMO / "eagle3")


def test_a_model_of_the_hub_has_weights_by_name_and_look_ups_without_a_host():
    words = serve_command("org/model", ["eagle3=org/head"], "eagle3", ["-tp", "2"]).arguments
    assert words[:4] == ("serve", "org/model", "-tp", "2")
    assert json.loads(flag(words, "--speculative-config"))["model"] == "org/head"
    words = serve_command("org/model", ["ngram"], "ngram", []).arguments
    assert json.loads(flag(words, "--speculative-config"))["method"] == "custom_class"


@pytest.mark.parametrize(
    ("model", "methods", "default", "flags", "message"),
    [
        ("m", ["magic"], "naive", [], "'magic' is unknown: choose from ngram, suffix"),
        ("m", ["eagle3"], "naive", [], "eagle3 needs weights, and the model is no bundle"),
        ("m", ["eagle3=no folder"], "naive", [], "neither a folder nor a name"),
        ("m", ["ngram=org/head"], "naive", [], "ngram reads no weights"),
        ("m", ["ngram"], "suffix", [], "--default-method: 'suffix' is not served"),
        ("m", ["ngram"], "naive", ["--speculative_config.method=x"], "leave it out"),
        ("m", ["ngram"], "naive", ["--async-scheduling"], "leave it out"),
        ("--port", ["ngram"], "naive", ["1", "m"], "name the model before"),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_line(model, methods, default, flags, message):
    with pytest.raises(ValueError, match=message) as refused:
        serve_command(model, methods, default, flags)
    assert "\n" not in str(refused.value)


def test_a_request_without_a_method_has_the_default_and_its_salt():
    body = asked({"prompt": "é", "vllm_xargs": None, "n": 2})
    assert body["vllm_xargs"] == {"specadapt_method": "adaptive"}
    assert body | {"vllm_xargs": 0} == {
        "prompt": "é",
        "n": 2,
        "vllm_xargs": 0,
        "cache_salt": "adaptive",
    }


def test_methods_without_kv_share_a_tenants_cache_and_others_have_their_own():
    def salt(method: str, tenant: str | None = None):
        extra = {"specadapt_method": method}
        given = {} if tenant is None else {"cache_salt": tenant}
        return asked({"vllm_xargs": extra, **given}).get("cache_salt")

    assert salt("naive") is salt("ngram") is None
    assert salt("naive", "a") == salt("ngram", "a") == "a"
    salts = [salt(m, t) for m in ("eagle3", "adaptive") for t in (None, "a", "b", "x" * 128)]
    assert len(set(salts)) == 8
    assert all(len(one) <= 128 for one in salts), "vLLM takes no longer one"
    body = asked({"cache_salt": "a"})
    assert body["vllm_xargs"]["specadapt_scope"] == "a", "past answers are the tenant's own"


@pytest.mark.parametrize("method", ["magic", ["eagle3"], 1, None, {}])
def test_an_unknown_method_is_refused(method):
    with pytest.raises(ValueError, match="is not served; methods: naive, ngram, eagle3, adaptive"):
        asked({"vllm_xargs": {"specadapt_method": method}})


def test_a_request_cannot_set_what_the_engine_reads():
    for name in ("specadapt_predicted", "specadapt_scope", "specadapt_request"):
        with pytest.raises(ValueError, match=f"{name} is unknown"):
            asked({"vllm_xargs": {name: ["a"]}})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'{"vllm_xargs": 3}', b"[" * 100_000])
def test_a_body_that_vllm_refuses_is_left_as_it_is(body):
    assert with_method(body, SALTS, "adaptive") == body
