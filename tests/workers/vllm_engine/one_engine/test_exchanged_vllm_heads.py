"""Heads exchanged in a real shared vLLM engine while it answers."""

import asyncio
import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from decoding import Answer, decode, decode_all, request, until
from safetensors.torch import load_file, save_file
from stored_heads import TARGET, origin, store

from deployments.replica.heads import HeadFollower
from schemas import FeedbackConfig
from workers.bundle import Bundle, BundleError
from workers.engine import HeadExchanger

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="package")]

PARTS = ("medusa", "eagle3", "eagle")
METHODS = ("vllm_naive", *(f"vllm_{part}" for part in PARTS), "vllm_adaptive")
TOKENS = 64

_version = itertools.count(1)


def changed(bundle: Bundle, part: str, folder: Path, *, spoil: float | None = None) -> Path:
    """A head of a part with shuffled matrices, or with one number replaced by `spoil`."""
    shutil.copytree(bundle.part(part), folder)
    weights = load_file(folder / "model.safetensors")
    draw = torch.Generator().manual_seed(1)
    for weight in (w for w in weights.values() if w.ndim == 2):
        if spoil is None:
            weight.view(-1)[:] = weight.flatten()[torch.randperm(weight.numel(), generator=draw)]
        else:
            weight[0, 0] = spoil
    save_file(weights, folder / "model.safetensors")
    return folder


Job = tuple[str, list[int]]


async def answers(engine, jobs: Sequence[Job]) -> list[Answer]:
    return await decode_all(engine, jobs, TOKENS)


async def interrupted(engine, jobs: Sequence[Job], heads) -> list[Answer]:
    """Answers during which the heads of all parts are exchanged, once each of them has begun."""
    made = [Answer() for _ in jobs]

    async def stream(answer: Answer, method: str, ids: list[int]) -> None:
        asked = request(method, ids, max_tokens=TOKENS, ignore_eos=True)
        async for chunk in engine.generate(asked):
            answer.add(chunk)

    streams = [asyncio.create_task(stream(one, *job)) for one, job in zip(made, jobs, strict=True)]
    await until(lambda: all(len(answer.tokens) > 3 for answer in made))
    for part, (version, folder) in heads.items():
        await asyncio.to_thread(engine.exchange, part, version, folder, 1.0)
    await asyncio.gather(*streams)
    return made


def acceptance(answers: Sequence[Answer]) -> float:
    accepted = sum(answer.stats.accepted_tokens for answer in answers)
    return accepted / sum(answer.stats.drafted_tokens for answer in answers)


def versions(answers: Sequence[Answer], part: str) -> set[int | None]:
    return {answer.stats.head_versions.get(part) for answer in answers}


async def test_answers_stay_exact_and_acceptance_follows_the_head(
    engine, bundle, prompts, tmp_path
):
    assert isinstance(engine, HeadExchanger)
    assert engine.exchangeable == set(PARTS)
    jobs = [(f"vllm_{part}", ids) for part in PARTS for ids in prompts[:3]]
    plain = await answers(engine, [("vllm_naive", ids) for ids in prompts[:3]])
    spoilt = {part: next(_version) for part in PARTS}
    own = await answers(engine, jobs)
    worse = await interrupted(
        engine, jobs, {p: (v, changed(bundle, p, tmp_path / p)) for p, v in spoilt.items()}
    )
    bad = await answers(engine, jobs)
    better = await interrupted(engine, jobs, dict.fromkeys(PARTS, (0, None)))
    again = await answers(engine, jobs)
    for run in (own, worse, bad, better, again):
        assert [answer.tokens for answer in run] == 3 * [answer.tokens for answer in plain]
    for place, part in enumerate(PARTS):
        of_part = slice(3 * place, 3 * place + 3)
        assert [versions(run[of_part], part) for run in (own, bad, again)] == [
            *({0}, {spoilt[part]}, {0})
        ]
        # Two heads have drafted for these, so they count for neither.
        assert versions([*worse[of_part], *better[of_part]], part) == {None}
        assert acceptance(bad[of_part]) < 0.1 * acceptance(own[of_part])
        assert acceptance(again[of_part]) == pytest.approx(acceptance(own[of_part]), rel=0.03)


def reordered(bundle: Bundle, part: str, folder: Path) -> Path:
    """A head that drafts as a part's own does, with its words in another order."""
    shutil.copytree(bundle.part(part), folder)
    weights = load_file(folder / "model.safetensors")
    words = len(weights["lm_head.weight"])
    order, places = torch.arange(words).flip(0), torch.arange(words)
    weights["lm_head.weight"] = weights["lm_head.weight"][order]
    if part == "medusa":
        weights["token_map"] = weights["token_map"][order]
    else:
        weights["d2t"] = (places + weights["d2t"])[order] - places
    save_file(weights, folder / "model.safetensors")
    return folder


async def test_a_head_may_draft_other_words(engine, bundle, prompts, tmp_path):
    parts = ("medusa", "eagle3")
    jobs = [(f"vllm_{part}", prompts[0]) for part in parts]
    own = await answers(engine, jobs)
    for part in parts:
        head = reordered(bundle, part, tmp_path / part)
        await asyncio.to_thread(engine.exchange, part, next(_version), head, 1.0)
    same = await answers(engine, jobs)
    for part, before, after in zip(parts, own, same, strict=True):
        assert after.tokens == before.tokens
        assert acceptance([after]) == pytest.approx(acceptance([before]), rel=0.1) != 0.0
        await asyncio.to_thread(engine.exchange, part, 0, None, 1.0)


async def test_an_answer_names_the_heads_that_could_draft(engine, prompts):
    named = {
        method: set((await decode(engine, method, prompts[0], max_tokens=4)).stats.head_versions)
        for method in METHODS
    }
    assert named.pop("vllm_naive") == set()
    assert named.pop("vllm_adaptive") == {"medusa", "eagle3"}
    assert named == {f"vllm_{part}": {part} for part in PARTS}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda bundle, folder: changed(bundle, "eagle3", folder, spoil=float("nan")), "NaN"),
        (lambda bundle, _: bundle.part("eagle"), "in .*eagle3 it has"),
        (lambda _, folder: folder, "no .*safetensors"),
    ],
)
async def test_a_head_that_does_not_fit_changes_nothing(
    engine, bundle, prompts, tmp_path, change, said
):
    before = await answers(engine, [("vllm_eagle3", prompts[0])])
    folder = change(bundle, tmp_path / "head")
    with pytest.raises(BundleError, match=said):
        await asyncio.to_thread(engine.exchange, "eagle3", next(_version), folder, 1.0)
    after = await answers(engine, [("vllm_eagle3", prompts[0])])
    assert acceptance(after) == pytest.approx(acceptance(before), rel=0.03)
    assert versions(after, "eagle3") == {0}


async def test_a_prompt_is_read_anew_for_another_head(engine, bundle, prompts, tmp_path):
    """The cached keys and values are the earlier head's."""
    prompt = [*(prompts[0] * 12)[:300], *prompts[1][:20]]
    folder, version = changed(bundle, "eagle3", tmp_path / "head"), next(_version)

    async def cached(method: str) -> int:
        return (await decode(engine, method, prompt, max_tokens=2)).stats.cached_prompt_tokens

    for method in ("vllm_eagle3", "vllm_naive"):
        await cached(method)
    for number, head, known in ((version, folder, False), (0, None, True)):
        await asyncio.to_thread(engine.exchange, "eagle3", number, head, 1.0)
        assert (await cached("vllm_eagle3") > 0) == known
        assert await cached("vllm_eagle3") > 0
        assert await cached("vllm_naive") > 0


async def test_a_replica_follows_the_store(engine, bundle, prompts, tmp_path):
    kept = store(str(tmp_path / "state"))
    kept.add(changed(bundle, "medusa", tmp_path / "head"), origin("medusa"))
    follower = HeadFollower(
        engine, FeedbackConfig(state_uri=str(tmp_path / "state")), "tiny", TARGET
    )

    async def drafts() -> set[int | None]:
        await asyncio.to_thread(follower.follow)
        return versions([await decode(engine, "vllm_medusa", prompts[0], max_tokens=4)], "medusa")

    assert await drafts() == {0}
    kept.try_out(1, 0.999)  # nearly all requests are its turn
    assert await drafts() == {1}
    assert follower.serving == {"medusa": 0}
    kept.promote(1)
    assert await drafts() == {1}
    kept.roll_back("medusa")
    assert await drafts() == {0}
    assert follower.serving == {"medusa": 0}
