"""`generate` and `bench decode` on a tiny bundle: the real engine, the real transformers."""

import time

import pytest
import torch

from ops.bench.decode.lockstep import Asked, in_lockstep
from ops.bench.stats import STAGES
from ops.common.decoding import encode
from ops.common.prompts import Prompt
from ops.common.settings import Setup
from schemas import EngineConfig, SamplingParams
from workers.bundle import load_bundle
from workers.methods import get_method
from workers.torch_engine.target import Target


@pytest.fixture
def small(tiny_bundle):
    return ["--bundle", tiny_bundle.path, "--dtype", "float32", "--max-tokens", 12]


def test_generate_streams_text_and_returns_its_stats(specadapt, small):
    arguments = ["generate", "--method", "naive", "--prompt", "Hello", *small]
    figures = specadapt.json(*arguments)
    assert figures["stats"]["method"] == "naive"
    assert 1 <= figures["stats"]["output_tokens"] <= 12
    shown = specadapt(*arguments).stdout
    assert shown.startswith(figures["text"][:10])
    assert "target_steps" in shown


@pytest.mark.slow
def test_bench_decode_compares_methods_with_hugging_face(specadapt, small, prompts_file):
    figures = specadapt.json(
        *["bench", "decode", "--methods", "draft_verify,ngram", "--prompts", prompts_file],
        *["--limit", 4, "--repeats", 2, *small],
    )
    assert list(figures["methods"]) == ["naive", "draft_verify", "ngram"]
    assert set(figures["peers"]) == {"hf", "hf-assisted", "hf-prompt-lookup"}
    assert all(mode["tokens_per_s"] > 0 for mode in figures["peers"].values())
    naive = figures["methods"]["naive"]
    drafted = figures["methods"]["draft_verify"]
    assert min(drafted[f"{stage}_s"] for stage in STAGES) > 0.0
    assert naive["draft_s"] < drafted["draft_s"]
    assert drafted["speedup_vs_naive"] == drafted["over"]["naive"]["speedup"]
    assert drafted["speedup_vs_hf"] == drafted["over"]["hf"]["speedup"]
    assert naive["over"]["naive"]["speedup"] == pytest.approx(1.0)
    assert naive["mat"] == pytest.approx(1.0)
    for name, method in figures["methods"].items():
        assert method["match_rate"] == 1.0, (name, method["divergences"])
        assert method["same_text_rate"] == 1.0
        assert method["over"]["hf"]["speedup"] > 0
        assert set(method["by_domain"]) == {"edit", "math"}
    settings = figures["settings"]
    assert settings["dtype"] == "float32"
    assert settings["threads"] == 1
    assert settings["repeats"] == 2
    assert len(settings["prompts"]["ids"]) == 4


@pytest.mark.slow
def test_bench_decode_leaves_out_what_is_not_asked_of_hugging_face(specadapt, small, prompts_file):
    command = ["bench", "decode", "--methods", "naive", "--prompts", prompts_file]
    command += ["--limit", 2, "--repeats", 1, *small]
    alone = specadapt.json(*command, "--peers", "none", "--concurrency", 3)
    assert alone["peers"] == {}
    assert alone["methods"]["naive"]["match_rate"] is None
    assert alone["methods"]["naive"]["throughput_tokens_per_s"] > 0
    plain = specadapt.json(*command, "--peers", "hf")
    assert set(plain["peers"]) == {"hf"}
    assert plain["methods"]["naive"]["match_rate"] == 1.0
    assert "--peers: llama.cpp" in specadapt.refusal(*command, "--peers", "llamacpp")
    assert "--peers: 'beams'" in specadapt.refusal(*command, "--peers", "beams")


def test_bench_decode_samples_as_requests_ask(specadapt, small, prompts_file):
    command = ["bench", "decode", "--methods", "ngram", "--prompts", prompts_file]
    command += ["--peers", "none", "--limit", 2, "--repeats", 1, *small]
    greedy = specadapt.json(*command)
    drawn = specadapt.json(*command, "--temperature", 0.01, "--seeded")
    assert (drawn["settings"]["temperature"], drawn["settings"]["seeded"]) == (0.01, True)
    assert drawn["methods"]["ngram"]["mat"] == greedy["methods"]["ngram"]["mat"]


@pytest.mark.parametrize("mode", [(), ("--lockstep",)])
def test_the_threads_that_decode_are_recorded(specadapt, small, prompts_file, monkeypatch, mode):
    """Other processes keep a core busy, so that the engine uses one thread fewer."""
    monkeypatch.setattr(Target, "choose_threads", lambda _, most: torch.set_num_threads(most - 1))
    command = ["bench", "decode", "--methods", "naive", "--prompts", prompts_file, *mode, *small]
    command += ["--peers", "none", "--limit", 2, "--repeats", 1, "--threads", 3]
    settings = specadapt.json(*command)["settings"]
    torch.set_num_threads(1)
    assert (settings["threads"], settings["engine"]["threads"]) == (2, 3)


@pytest.mark.slow
def test_bench_decode_prints_tables_for_people(specadapt, small, prompts_file):
    shown = specadapt(
        *["bench", "decode", "--methods", "naive", "--prompts", prompts_file],
        *["--limit", 2, "--repeats", 1, "--temperature", 0.8, *small],
    )
    assert shown.exit_code == 0
    assert "over hf" in shown.stdout
    assert "Speedup over naive, by domain" in shown.stdout


def test_prompts_beyond_the_context_are_refused(specadapt, tiny_bundle, tmp_path):
    file = tmp_path / "long.jsonl"
    file.write_text('{"prompt": "' + "long words " * 2000 + '"}\n')
    line = specadapt.refusal("bench", "decode", "--bundle", tiny_bundle.path, "--prompts", file)
    assert "longer than" in line


def test_in_lockstep_methods_decode_the_same_answers(specadapt, small, prompts_file):
    command = ["bench", "decode", "--lockstep", "--methods", "naive,ngram,adaptive"]
    command += ["--prompts", prompts_file, "--limit", 5, "--repeats", 2, "--concurrency", 2, *small]
    figures = specadapt.json(*command)
    assert figures["peers"] == {}
    assert figures["settings"]["lockstep"]
    methods = figures["methods"]
    assert list(methods) == ["naive", "ngram", "adaptive"]
    for method in methods.values():
        assert method["prompts"] == methods["naive"]["prompts"]
        assert method["throughput_tokens_per_s"] > 0
    assert methods["naive"]["mat"] == pytest.approx(1.0)
    assert methods["ngram"]["mat"] >= 1.0
    assert "--lockstep: peers" in specadapt.refusal(*command, "--peers", "hf")


async def test_a_methods_clock_stands_still_while_others_decode(tiny_bundle):
    """All answers of a method are over when its own steps are, and each gives plain decoding's."""
    setup = Setup(
        tiny_bundle.path,
        tuple(map(get_method, ("naive", "ngram"))),
        EngineConfig(dtype="float32", threads=1, max_context=128),
    )
    bundle = load_bundle(tiny_bundle.path)
    prompts = [Prompt(str(i), "edit", ({"role": "user", "content": "a b " * i},)) for i in (1, 5)]
    encoded, _ = encode(bundle, prompts, 100)
    asked = Asked(SamplingParams(max_tokens=9, ignore_eos=True), 0)
    done, clock = [], time.perf_counter()
    found = await in_lockstep(setup, bundle, encoded, asked, 1, lambda: done.append(1))
    assert sum(seconds for _, seconds in found.values()) <= time.perf_counter() - clock
    assert len(done) == 4
    answers = {name: {run.prompt_id: run for run in runs} for name, (runs, _) in found.items()}
    for prompt in ("1", "5"):
        naive, ngram = answers["naive"][prompt], answers["ngram"][prompt]
        assert naive.token_ids == ngram.token_ids
        assert naive.tokens == naive.target_steps == 9
        assert 0 < naive.first_token_seconds < naive.seconds
    for runs, seconds in found.values():  # one after the other: together they are the method's
        assert sum(run.seconds for run in runs) == pytest.approx(seconds)
