"""Look-ups in a datastore, in the engine: they change no answer, and no bad index stops one."""

import random
from pathlib import Path

import numpy as np
import pytest
from decoding import assert_greedy, decode

from workers.bundle import Bundle
from workers.drafting.lookup import datastore
from workers.drafting.lookup.datastore import MANIFEST, write_corpus

PROMPT = random.Random(3).sample(range(256), 12)
TOKENS = 48


@pytest.fixture(autouse=True)
def free_rows(cost) -> None:
    """Whatever is looked up pays, on any machine."""
    cost(np.ones_like)


@pytest.fixture
async def folder(load_engine, byte_bundle: Bundle, tmp_path: Path) -> Path:
    """An index of the prompt's answer and of something else."""
    engine = load_engine(["naive"], byte_bundle)
    answer = await decode(engine, "naive", PROMPT, max_tokens=TOKENS)
    texts = [[*PROMPT, *answer.tokens], list(range(256))]
    write_corpus(tmp_path, texts, byte_bundle.tokenizer_hash)
    return tmp_path


async def accepted(engine, bundle: Bundle, method: str, scope: str) -> float:
    """Return the accepted tokens per step of an answer, which is plain decoding's."""
    answer = await decode(engine, method, PROMPT, scope=scope, max_tokens=TOKENS)
    assert_greedy(bundle, PROMPT, answer.tokens, TOKENS)
    return answer.stats.accepted_tokens / answer.stats.target_steps


@pytest.mark.parametrize("method", ["suffix", "adaptive"])
async def test_an_answer_that_quotes_is_the_same_in_fewer_steps(
    load_engine, byte_bundle: Bundle, folder: Path, method: str
) -> None:
    settings = {"folder": folder, "scopes": ["tenant acme"]}
    engine = load_engine([method], byte_bundle, datastore=settings)
    without = await accepted(engine, byte_bundle, method, "tenant other")
    assert await accepted(engine, byte_bundle, method, "tenant acme") > without + 1.0


async def test_a_spoilt_replacement_ends_no_answer(load_engine, byte_bundle, folder, monkeypatch):
    engine = load_engine(["suffix"], byte_bundle, datastore={"folder": folder})
    monkeypatch.setattr(datastore, "CHECK_SECONDS", 0.0)
    engine._looking_up[0]._controller.look_ups._datastore._due = 0.0
    for spoilt in ("no JSON", None):
        if spoilt is None:
            (folder / MANIFEST).unlink()
        else:
            (folder / MANIFEST).write_text(spoilt)
        assert await accepted(engine, byte_bundle, "suffix", spoilt or "gone") > 1.0


def test_an_index_of_another_tokenizer_is_refused_at_the_start(load_engine, byte_bundle, tmp_path):
    write_corpus(tmp_path, [[1, 2, 3]], "0" * 64)
    with pytest.raises(ValueError, match=r"engine\.datastore\.folder: .* another tokenizer"):
        load_engine(["suffix"], byte_bundle, datastore={"folder": tmp_path})
