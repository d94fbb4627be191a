"""A service whose bundle has no heads makes one from its answers and drafts with it."""

import asyncio
import json
import shutil
import time
from collections.abc import Sequence

import pytest
from conftest_bundle import byte_tokenizer
from decoding import SMALL, decode
from stored_heads import TARGET
from tuning_setting import PATIENCE_SECONDS

from deployments.head_training import trainer as training
from deployments.head_training.samples import Samples
from deployments.head_training.trainer import HeadTrainer, trained_parts
from deployments.head_training.versions import VersionStore
from deployments.replica.heads import HeadFollower
from schemas import AppConfig, DecodeStats, EngineConfig, FeedbackConfig, MethodDeployment, Sample
from tests.training.counting import make_samples
from workers.loader import load_engine
from workers.portfolio import served_bundle
from workers.torch_engine.engine import TorchEngine

METHODS = ("eagle3", "adaptive")


@pytest.fixture
def config(counting_bundle, tmp_path):
    """A service of the counting target alone, which trains."""
    bundle = tmp_path / "bundle"
    shutil.copytree(counting_bundle / "target", bundle / "target")
    byte_tokenizer().save_pretrained(bundle / "tokenizer")
    body = {"name": "bare", "parts": {part: part for part in ("target", "tokenizer")}}
    (bundle / "bundle.json").write_text(json.dumps(body))
    feedback = FeedbackConfig(state_uri=str(tmp_path / "state"), drafter_training=True)
    methods = tuple(MethodDeployment(name=name) for name in METHODS)
    return AppConfig(bundle=bundle, methods=methods, feedback=feedback)


@pytest.fixture
def bundle(config):
    return served_bundle(config)


@pytest.fixture
def engine(bundle):
    loaded = load_engine(METHODS, bundle, EngineConfig.model_validate(SMALL | {"max_waiting": 300}))
    assert isinstance(loaded, TorchEngine)
    yield loaded
    loaded.close()


@pytest.mark.slow
async def test_a_running_engine_drafts_with_a_head_that_its_own_answers_made(
    config, bundle, engine, tmp_path, monkeypatch
):
    monkeypatch.setattr(training, "LOOK_SECONDS", 0.0)
    assert trained_parts(config, bundle) == ["eagle3"]
    versions = VersionStore(config.feedback, bundle.name, TARGET)
    samples = Samples(config.feedback, bundle.name, TARGET)
    follower = HeadFollower(engine, config.feedback, bundle.name, TARGET)
    trainer = HeadTrainer(config, bundle, samples, versions, lambda: False, tmp_path / "tuning")

    questions = make_samples(300)
    answered = await answers(engine, "adaptive", questions[:260])
    samples.take([sample for sample, _ in answered])
    versions.train("eagle3")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not versions.all():
            trainer.step()
            await asyncio.sleep(0.1)
    (version,) = versions.all()
    assert version.parent == 0
    assert versions.in_force().training is None

    before = await answers(engine, "eagle3", questions[260:])
    follower.follow()  # as a canary
    versions.promote(version.number)
    follower.follow()
    after = await answers(engine, "eagle3", questions[260:])
    drafted = [[stats.head_versions["eagle3"] for _, stats in stage] for stage in (before, after)]
    assert [set(numbers) for numbers in drafted] == [{0}, {version.number}]
    assert tokens_per_step(before) == 1.0
    assert tokens_per_step(after) > 1.5
    for (one, _), (other, _) in zip(before, after, strict=True):
        assert one.answer_token_ids == other.answer_token_ids


async def answers(
    engine: TorchEngine, method: str, questions: Sequence[Sample]
) -> list[tuple[Sample, DecodeStats]]:
    """Answer the questions' prompts, and return samples of the answers."""

    async def one(question: Sample) -> tuple[Sample, DecodeStats]:
        prompt = list(question.prompt_token_ids)
        answer = await decode(engine, method, prompt, max_tokens=40, ignore_eos=True)
        assert answer.stats is not None
        update = {"answer_token_ids": tuple(answer.tokens), "temperature": 0.0}
        update |= {"time": time.time(), "method": method}
        return question.model_copy(update=update), answer.stats

    return list(await asyncio.gather(*map(one, questions)))


def tokens_per_step(answered: Sequence[tuple[Sample, DecodeStats]]) -> float:
    stats = [one for _, one in answered]
    return sum(s.output_tokens - 1 for s in stats) / sum(s.target_steps - 1 for s in stats)
