"""`bench serve`: its arithmetic, and real requests to a real engine over a socket."""

import json
from dataclasses import replace

import pytest
import stand_in
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ops.bench import serve_runs
from ops.bench.serve_runs import (
    Answer,
    Plan,
    Served,
    figures_of,
    objectives,
    poisson,
    ratios,
    requests_of,
    same_text,
)
from ops.common.boundary import InputError
from ops.common.chat_client import Reply
from ops.common.prompts import Prompt
from ops.common.running_service import running_service

PLAN = Plan([], 2, {}, None, 1, 0)


def answer(prompt="p", seconds=1.0, tokens=10, *, late=0.0, first=0.1, repeat=0, turn=0, **more):
    asked = Prompt(prompt, more.pop("domain", "math"), ({"role": "user", "content": "?"},))
    usage = {
        "completion_tokens": tokens,
        "prompt_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": more.pop("cached", 0)},
    }
    headers = {"x-specadapt-method": "ngram"}
    text = more.pop("text", "yes")
    reply = Reply(headers, usage, text, tokens, first, seconds)
    return Answer(asked, repeat, turn, late, reply, **more)


def test_an_arm_is_summed_up():
    answers = [answer(), answer("q", turn=1, cached=5), answer("r", error="429: too many")]
    figures = figures_of(Served(answers, 2.0), 2, {"ttft": 200.0})
    assert (figures["requests"], figures["errors"]) == (3, {"429": 1})
    assert (figures["tokens_per_s"], figures["requests_per_s"]) == (10.0, 1.0)
    assert figures["goodput_per_s"] == 1.0
    assert figures["ttft_ms_p50"] == pytest.approx(100.0)
    assert figures["tpot_ms_p99"] == pytest.approx(100.0)
    assert figures["e2el_ms_mean"] == pytest.approx(1000.0)
    assert figures["methods"] == {"ngram": 2}
    assert [turn["cached"] for turn in figures["by_turn"]] == [0.0, 0.25]


async def test_a_conversation_has_its_files_turns_and_then_its_prompt_again(monkeypatch):
    asked = []

    async def ask(_, *told):
        asked.append(told[3][-1]["content"])
        return answer()

    monkeypatch.setattr(serve_runs._Conversations, "ask", ask)
    first, second = ({"role": "user", "content": text} for text in "ab")
    talks = serve_runs._Conversations(None, None, replace(PLAN, turns=3), "")
    await talks._converse(Prompt("p", "edit", (first,), later=(second,)), 0, 0.0)
    assert asked == ["a", "b", "a"]


def test_a_late_request_took_as_long_as_its_client_waited():
    one = answer(late=2.0)
    assert (one.seconds, one.ttft, one.tpot) == (3.0, 2.1, pytest.approx(0.1))
    assert answer(first=None).ttft is answer(tokens=1).tpot is None


@given(st.floats(0.01, 10.0), st.integers(2, 40), st.floats(1.0, 2e4), st.floats(1.0, 2e4))
def test_a_good_answer_meets_every_objective(seconds, tokens, tpot, e2el):
    one = answer(seconds=0.1 + seconds, tokens=tokens)
    within = one.tpot * 1e3 <= tpot, one.seconds * 1e3 <= e2el
    assert one.meets({"tpot": tpot, "e2el": e2el}) == all(within)
    assert one.meets({})
    assert not answer(error="ReadTimeout").meets({})


def test_objectives_are_read_as_vllm_writes_them():
    assert objectives("ttft:500 tpot:50,e2el:1e4") == {"ttft": 500.0, "tpot": 50.0, "e2el": 1e4}
    assert objectives(None) == {}
    for wrong in ("ttft", "ttft:x", "ttft:-1", "tbt:5", "ttft:inf", "ttft:nan"):
        with pytest.raises(InputError, match="--goodput"):
            objectives(wrong)


def test_a_ratio_pairs_prompt_repeat_and_turn():
    slow = [answer(seconds=2.0), answer(seconds=8.0, turn=1), answer("q", seconds=4.0, repeat=1)]
    fast = [answer(seconds=1.0), answer(seconds=4.0, turn=1), answer("q", seconds=2.0, repeat=1)]
    fast += [answer("q", seconds=9.0), answer("r", error="500")]
    found = ratios({"naive": slow, "routed": fast}, "naive", PLAN)
    assert found["routed"]["over_baseline"] == pytest.approx(2.0)
    assert found["routed"]["over_baseline_ci95"] == pytest.approx((2.0, 2.0))
    assert found["naive"]["over_baseline"] == 1.0
    assert ratios({"naive": slow, "x": [answer(tokens=7)]}, "naive", PLAN)["x"] == {
        "over_baseline": None,
        "over_baseline_ci95": None,
    }


def test_two_arms_of_one_method_are_equally_fast_however_noisy_their_seconds():
    one = [answer(seconds=1.0), answer("q", seconds=4.0)]
    other = [answer(seconds=4.0), answer("q", seconds=1.0)]
    found = ratios({"a": one, "b": other}, "a", PLAN)
    assert found["b"]["over_baseline"] == pytest.approx(1.0)
    low, high = found["b"]["over_baseline_ci95"]
    assert low <= 1.0 <= high


def test_the_same_text_is_that_of_all_arms():
    arms = [answer("p"), answer("q")], [answer("p"), answer("q", text="no")]
    assert same_text(arms) == 0.5
    assert same_text([arms[0], [answer("p"), answer("q", error="500")]]) == 1.0
    assert same_text([arms[0], []]) is None


def test_arms_take_turns_prompt_by_prompt_or_in_a_dozen_rounds():
    requests = requests_of([answer(name).prompt for name in "abc"], 48)
    assert [(prompt.id, repeat) for prompt, repeat in requests[2:5]] == [
        *(("c", 0), ("a", 1), ("b", 1))
    ]
    for concurrency, arms, size in ((1, 2, 1), (2, 2, 4), (16, 2, 16), (1, 1, 48)):
        rounds = Plan(requests, 1, {}, None, concurrency, 0).rounds(arms)
        assert len(rounds[0]) == size
        assert [each for one in rounds for each in one] == requests


def test_poisson_arrivals_come_at_their_rate():
    arrivals = poisson(20_000, seed=1)
    assert arrivals[0] == 0.0
    assert arrivals[-1] == pytest.approx(20_000, rel=0.03)
    assert (poisson(20_000, seed=1) == arrivals).all()
    assert (poisson(20_000, seed=2) != arrivals).any()


@pytest.fixture
def serve(specadapt, prompts_file, tmp_path):
    """The figures that `bench serve` writes, and what it prints."""

    def run(*arguments):
        file = tmp_path / "figures.json"
        command = ["bench", "serve", "--dataset-path", prompts_file, "--json", file]
        result = specadapt(*command, *arguments)
        assert result.exit_code == 0, result.stderr
        return json.loads(file.read_text()), result

    return run


def test_arms_answer_the_same_prompts_in_turns(serve, listening):
    arms = ["routed", "naive", "ngram", listening]
    figures, result = serve(
        *["--url", listening, "--arms", ",".join(arms), "--baseline", "naive"],
        *["--num-prompts", 3, "--max-tokens", 12, "--turns", 2, "--goodput", "ttft:60000"],
    )
    assert [*figures["arms"]] == arms
    for arm in figures["arms"].values():
        assert (arm["requests"], arm["errors"]) == (6, {})
        assert 0.0 < arm["ttft_ms_p50"] <= arm["e2el_ms_p50"]
        assert arm["goodput_per_s"] == arm["requests_per_s"]
        assert arm["by_turn"][0]["cached"] == 0.0 or arm is figures["arms"][listening]
        assert arm["by_turn"][1]["cached"] > 0.3
        assert arm["by_turn"][1]["prefix_cached"] > 0.5
    assert figures["arms"]["ngram"]["methods"] == {"ngram": 6}
    assert figures["arms"]["naive"]["over_baseline"] == 1.0
    assert figures["same_text"] == 1.0
    assert "Speed over naive" in result.stdout


def test_requests_come_at_a_rate_and_errors_are_counted(serve, listening, tmp_path):
    file = tmp_path / "prompts.jsonl"
    long = {"id": "long", "domain": "a", "prompt": "many words " * 600}
    rows = [long, {"id": "short", "domain": "b", "prompt": "Hello"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    figures, result = serve(
        *["--url", listening, "--request-rate", 50, "--num-prompts", 4, "--max-tokens", 4],
        *["--dataset-path", file],
    )
    routed = figures["arms"]["routed"]
    assert (routed["requests"], routed["errors"]) == (4, {"400": 2})
    assert "routed: long: 400" in result.stderr


def test_what_cannot_be_asked_is_refused(specadapt, listening):
    asked = ["bench", "serve", "--url", listening]
    assert "fast is not served" in specadapt.refusal(*asked, "--arms", "fast")
    assert "--baseline: naive" in specadapt.refusal(*asked, "--baseline", "naive")
    away = "http://127.0.0.1:9"
    assert "no service answers" in specadapt.refusal(*asked, "--arms", f"routed,{away}")


class Recording(stand_in.StandIn):
    """Another OpenAI-compatible server; it notes each request's key."""

    def get(self):
        self.server.seen.append(self.headers["authorization"])
        self.reply({"data": [{"id": "model"}]})

    def post(self, _):
        self.server.seen.append(self.headers["authorization"])
        event = {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}
        self.reply(f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize(
    ("more", "sent"), [([], None), (["--other-key", "OTHER_KEY"], "Bearer other")]
)
def test_a_key_goes_to_the_server_that_it_is_meant_for(serve, specadapt, monkeypatch, more, sent):
    monkeypatch.setenv("OPENAI_API_KEY", "own")
    monkeypatch.setenv("OTHER_KEY", "other")
    with stand_in.listening(Recording) as own, stand_in.listening(Recording) as other:
        arms = ["--url", own.address, "--arms", f"routed,{other.address}"]
        serve(*arms, "--num-prompts", 1, *more)
        assert {*own.seen} == {"Bearer own"}
        assert {*other.seen} == {sent}
        wrong = specadapt.refusal("bench", "serve", *arms, "--other-key", "MISSING_KEY")
    assert "--other-key: the environment has no variable MISSING_KEY" in wrong


@pytest.mark.slow
def test_without_an_address_a_service_is_started(serve, served_config, tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(served_config.model_dump(mode="json") | {"layout": "shared"}))
    figures, _ = serve("--config", file, "--num-prompts", 2, "--max-tokens", 4)
    routed = figures["arms"]["routed"]
    assert (routed["requests"], routed["errors"]) == (2, {})
    assert figures["settings"]["started_by"] == "this command"


def test_a_service_that_cannot_start_says_why(tiny_bundle, tmp_path):
    file, routing = tmp_path / "serve.yaml", str(tmp_path / "nowhere")
    body = {"bundle": str(tiny_bundle.path), "router": {"routing": routing}}
    file.write_text(yaml.safe_dump(body))
    with (
        pytest.raises(InputError, match=r"ended before it was ready.*nowhere"),
        running_service(None, file),
    ):
        pass


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-command", "no-such-command cannot be started: No such file or directory"),
        ("sh -c 'echo out of memory >&2; exit 1' --", "ended before it was ready: out of memory"),
        ("vllm serve /nowhere", "ended before it was ready: "),  # this environment's, not PATH's
    ],
)
def test_another_server_that_does_not_start_is_one_line(specadapt, listening, command, said):
    asked = ("bench", "serve", "--url", listening, "--against", command)
    assert said in specadapt.refusal(*asked)
