"""Heads are exchanged while answers are decoded: drafts are the bound version's, answers stay."""

import itertools
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import heads_reference
import pytest
import random_heads
import torch
from decoding import LOSSLESS, assert_greedy, hugging_face
from rig import Rig
from spoiling import changed, tensors
from test_exactness import prompts
from test_head_drafting import TREES, compare, record, spec

from workers.bundle import Bundle, BundleError
from workers.torch_engine.sequence import DecodeSequence

PARTS = ("medusa", "eagle", "eagle3")
VOCAB, CHUNK = 24, 16


@pytest.fixture
def bundle(two_dozen: Bundle) -> Bundle:
    return two_dozen


def other_heads(bundle: Bundle, folder: Path) -> Path:
    """Save heads with other weights for the bundle's target, a folder per part."""
    torch.manual_seed(9)
    random_heads.save_heads(folder, hugging_face(bundle.part("target")).config)
    return folder


def submit(rig: Rig, method: str, prompt: Sequence[int], number: int, most: int) -> DecodeSequence:
    """Submit a request whose id is its number: the hash that divides requests is known."""
    sequence = rig.submit(method, prompt, max_tokens=most)
    named = {"request_id": f"request-{number}"}
    sequence.request = sequence.request.model_copy(update=named)
    return sequence


@pytest.mark.parametrize(
    "part", ["eagle3", *(pytest.param(p, marks=pytest.mark.slow) for p in ("medusa", "eagle"))]
)
def test_each_answer_is_drafted_by_one_version(make_rig, bundle, tmp_path, monkeypatch, part):
    """Also where rows of other answers, and kept ones, hold the prompt's beginning."""
    folders = [bundle.part(part), other_heads(bundle, tmp_path / "heads") / part]
    methods = [spec(part, part, tree) for tree in TREES]
    rig = make_rig(bundle, methods, prefill_chunk=CHUNK, max_batch=4)
    drafter = rig.scheduler._rows._drafters[0]
    seen = record(rig, monkeypatch)
    rng = random.Random(3)
    beginning = [rng.randrange(VOCAB) for _ in range(40)]
    stages: list[tuple[int, Path | None, float]] = [
        (0, None, 1.0),
        (1, folders[1], 0.5),
        (1, folders[1], 1.0),
        (0, None, 1.0),
    ]
    number, asked = itertools.count(), list[list[DecodeSequence]]()
    for version, folder, share in stages:
        rig.engine.exchange(part, version, folder, share)
        own = [rng.randrange(VOCAB) for _ in range(30)]
        prompt_list = [beginning[:20] + own[:3], own, [*beginning, *own[:9]], own[:25], [1, 2]]
        names = itertools.cycle(method.name for method in methods)
        asked.append(
            [submit(rig, next(names), p, next(number), 10) for p in [*prompt_list, own[:7]]]
        )
        while not all(sequence.output_tokens for sequence in asked[-1]):
            rig.round()
    versions = list[list[int]]()
    rig.finish()
    for stage in asked:
        answers = [rig.answer(sequence) for sequence in stage]
        versions.append([answer.stats.head_versions[part] for answer in answers])
        for sequence, answer in zip(stage, answers, strict=True):
            assert_greedy(bundle, sequence.request.prompt_token_ids, answer.tokens, 10)
    assert [set(each) for each in versions] == [{0}, {0, 1}, {1}, {0}]
    assert {drafted.version for drafted in seen} == {0, 1}
    target = hugging_face(bundle.part("target"))
    heads = [heads_reference.Head(folder, target) for folder in folders]
    reference = getattr(heads_reference, part)
    with torch.inference_mode():
        for drafted in seen:
            head = heads[drafted.version]
            compare(drafted, lambda known, path, head=head: reference(head, known, path))
    drafter.versions._unload()
    assert list(drafter.versions._loaded) == [0]


def test_a_version_is_freed_before_a_sequence_that_it_failed_for_ends(make_rig, bundle, tmp_path):
    """The adaptive method goes on drafting for the sequence, with its other drafters."""
    rig = make_rig(bundle, ["adaptive"])
    first = rig.submit("adaptive", [1, 2, 3], max_tokens=30)
    rig.round()
    one = rig.engine._methods["adaptive"].plan.drafter.learned["eagle3"]
    error = ArithmeticError("broken on purpose")
    rig.engine._guard.blame(one.drafter, [first], error, again=False)
    rig.engine.exchange("eagle3", 1, other_heads(bundle, tmp_path / "heads") / "eagle3", 1.0)
    second = rig.submit("adaptive", [4, 5, 6], max_tokens=30)
    rig.finish(first, second)
    assert list(one.drafter.versions._loaded) == [1]
    assert rig.engine.load().drafter_failures == {"eagle3": 1}


def test_an_engine_gains_its_first_head_while_it_decodes(make_rig, bundle, tmp_path):
    """Answers that began without a head end without one; then versions of other vocabularies
    serve side by side, on rows that hold no pairs; and the engine can return to none."""
    grown = ("eagle3",)
    without = {name: part for name, part in bundle.parts.items() if name not in (*grown, "medusa")}
    bare = replace(bundle, parts=without, growing=frozenset(grown))
    rig = make_rig(bare, ["eagle3", "adaptive"], prefill_chunk=CHUNK, max_batch=4)
    target = hugging_face(bundle.part("target")).config
    random_heads.save_eagle3(tmp_path / "whole", target, reduced=False)
    rng = random.Random(4)
    beginning = [rng.randrange(VOCAB) for _ in range(40)]
    numbers, drafted = itertools.count(), list[set[tuple[int, bool]]]()
    for version, folder, share in (
        (0, None, 1.0),
        (1, bundle.part("eagle3"), 1.0),
        (2, tmp_path / "whole", 0.5),
        (0, None, 1.0),
    ):
        rig.engine.exchange("eagle3", version, folder, share)
        asked = [
            submit(rig, method, [*beginning, *prompt], next(numbers), 12)
            for prompt in prompts(3, VOCAB, seed=version)
            for method in ("eagle3", "adaptive")
        ]
        while not all(sequence.output_tokens for sequence in asked):
            rig.round()
        drafted.append(set())
        for sequence, answer in zip(asked, rig.finish(*asked), strict=True):
            assert_greedy(bundle, sequence.request.prompt_token_ids, answer.tokens, 12)
            by_head = answer.stats.drafted_tokens > 0
            if sequence.request.method == "eagle3":
                drafted[-1].add((answer.stats.head_versions["eagle3"], by_head))
    assert drafted == [{(0, False)}, {(1, True)}, {(1, True), (2, True)}, {(0, False)}]
    assert not rig.engine.load().drafter_failures


def test_any_method_stays_exact(make_rig, six: Bundle, tmp_path: Path) -> None:
    """Exchange heads of all parts before rounds, at every share, for all methods at once."""
    heads = other_heads(six, tmp_path / "heads")
    rig = make_rig(six, LOSSLESS, prefill_chunk=CHUNK, max_waiting=64)
    assert rig.engine.exchangeable == {*PARTS}
    rng = random.Random(5)
    wanted = [(name, prompt) for prompt in prompts(6, 4, seed=2) for name in LOSSLESS]
    asked = list[DecodeSequence]()
    while len(asked) < len(wanted) or any(rig.scheduler.underway()):
        part, version = rng.choice(PARTS), rng.randrange(3)
        folder = heads / part if version else None
        rig.engine.exchange(part, version, folder, rng.choice([0.1, 0.5, 1.0]))
        for _ in range(3):
            if len(asked) < len(wanted):
                asked.append(submit(rig, *wanted[len(asked)], len(asked), rng.randrange(2, 40)))
        rig.round()
    drafted_by = set[tuple[str, int]]()
    for sequence in asked:
        answer = rig.answer(sequence)
        prompt, most = sequence.request.prompt_token_ids, sequence.sampling.max_tokens
        assert_greedy(six, prompt, answer.tokens, most)
        drafted_by |= {*answer.stats.head_versions.items()}
    for served in ([0], [1, 2]):
        assert {part for part, version in drafted_by if version in served} == {*PARTS}


@pytest.mark.parametrize(
    ("part", "tensor", "change", "said"),
    [
        ("eagle3", "norm.weight", lambda w: w / 0.0, "norm.weight holds NaN or infinite values"),
        ("eagle3", "d2t", lambda w: w + 99, "the draft vocabulary maps to tokens"),
        (
            "eagle3",
            "d2t",
            lambda w: w - torch.eye(len(w))[1].long() * (w[1] + 1 - w[0]),
            "gives a token to several rows",
        ),
        ("medusa", "token_map", lambda w: w[1:] + 99, "'token_map' maps to tokens"),
    ],
)
def test_a_spoilt_head_is_refused(make_rig, bundle, tmp_path, part, tensor, change, said):
    folder = other_heads(bundle, tmp_path / "heads") / part
    rig = make_rig(bundle, [spec(part, part, "chain")])
    rig.engine.exchange(part, 1, folder, 1.0)
    spoilt = shutil.copytree(folder, tmp_path / "spoilt")
    tensors(changed(tensor, change))(spoilt)
    for share in (0.5, 1.0):
        with pytest.raises(BundleError, match=f"{spoilt}.*{said}"):
            rig.engine.exchange(part, 2, spoilt, share)
    sequence = rig.submit(f"{part}_chain", [1, 2, 3], max_tokens=4)
    assert rig.finish(sequence)[0].stats.head_versions == {part: 1}


def test_a_head_of_another_shape_is_refused(make_rig, bundle: Bundle, tmp_path: Path) -> None:
    target = hugging_face(bundle.part("target")).config
    target = type(target)(**target.to_dict() | {"intermediate_size": 64})
    random_heads.save_eagle3(tmp_path / "narrow", target)
    rig = make_rig(bundle, [spec("eagle3", "eagle3", "chain")])
    with pytest.raises(BundleError, match="only a head trained from that one fits"):
        rig.engine.exchange("eagle3", 1, tmp_path / "narrow", 1.0)


def test_a_part_that_nothing_drafts_with_is_refused(make_rig, bundle: Bundle) -> None:
    rig = make_rig(bundle, ["naive"])
    with pytest.raises(BundleError, match="eagle3: no method that is served here drafts with"):
        rig.engine.exchange("eagle3", 0, None, 1.0)
