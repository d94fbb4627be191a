"""The corpus: what generators promise, that the split holds, that a build can be repeated."""

import ast
import hashlib
import itertools
import json
import random
import re
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.text_files import text_lines
from training.demo_corpus import DOMAINS, CorpusError, build_corpus, read_rows, repeats
from training.demo_corpus.build import _TOPICS, generated_samples
from training.demo_corpus.python_source import permissive, python_samples
from training.demo_corpus.rows import row_text, single_turn
from training.demo_corpus.shared_data import instruct_rows
from training.demo_corpus.split import (
    RARE,
    SAME,
    group_by_text,
    shingles,
    split_corpus_rows,
    without_near_copies,
)

SHARED = Path(__file__).parents[3] / "shared"
GENERATORS = [generator for _, generators, _ in _TOPICS for generator, _ in generators]
needs_data = pytest.mark.skipif(
    not (SHARED / "data" / "instruct.jsonl").is_file(),
    reason="needs the data folder ../shared/data beside the repository",
)


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda one: one.__name__)
@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_every_task_gives_a_usable_sample(generator, seed):
    sample = generator(random.Random(seed))
    assert sample.domain in DOMAINS
    assert sample.prompt.strip() == sample.prompt != ""
    assert sample.response.strip() == sample.response != ""
    assert len(sample.prompt) + len(sample.response) < 4000
    assert not re.search(r"\{\w+\}", sample.prompt + sample.response) or sample.domain in (
        "code",
        "edit",
        "tool_use",
        "general",
    )


def samples(*tasks, seeds=300):
    wanted = [generator for generator in GENERATORS if generator.__name__ in tasks]
    assert len(wanted) == len(tasks)
    for generator in wanted:
        for seed in range(seeds):
            yield generator(random.Random(seed))


def test_every_equation_of_a_math_answer_is_true():
    seen = 0
    for sample in samples(
        "change_story", "shopping", "containers", "compare", "rate", "ages", "percent",
        "geometry", "expression",
    ):  # fmt: skip
        for left, right in re.findall(
            r"((?:\(?\$?-?\d+\)?(?: [-+x/] )?|/)+) = \$?(-?\d+)", sample.response
        ):
            seen += 1
            assert eval(left.replace("x", "*").replace("$", "")) == int(right), sample.response
        assert re.search(r"\n#### -?\d+$", "\n" + sample.response)
    assert seen > 3000


def test_a_math_answer_ends_with_the_result_of_its_last_line():
    for sample in samples("change_story", "shopping", "compare", "rate", "percent", "geometry"):
        *_, last, answer = sample.response.split("\n")
        assert re.findall(r"-?\d+", last.split(" = ")[1])[0] == answer.removeprefix("#### ")


def run(code, name, *arguments):
    scope = {}
    exec(code, scope)
    return scope[name](*arguments)


def test_written_programs_parse_and_do_what_is_asked():
    counted = 0
    for sample in samples("write_program", seeds=3000):
        if sample.response.startswith(("def ", "class ")):
            ast.parse(sample.response)
        found = re.search(r"counts the numbers greater than (\d+) in a list", sample.prompt)
        if found and "def " in sample.response:
            name = re.match(r"def (\w+)", sample.response)[1]
            limit = int(found[1])
            assert run(sample.response, name, [limit - 1, limit, limit + 1, limit + 5]) == 2
            counted += 1
    assert counted


def test_edits_repeat_what_they_were_given():
    for sample in samples("rename", "add_parameter", "add_docstring", "fix_bug", "fix_typos"):
        given_lines = set(sample.prompt.split("\n")[1:])
        answer_lines = sample.response.split("\n")
        kept = sum(
            any(len(set(line.split()) & set(old.split())) * 2 >= len(line.split())
                for old in given_lines)
            for line in answer_lines
            if line.strip()
        )  # fmt: skip
        written = sum(bool(line.strip()) for line in answer_lines)
        assert kept >= written - 2, f"{sample.prompt}\n---\n{sample.response}"


def test_a_quoted_sentence_stands_in_the_text():
    for sample in samples("quote"):
        for line in sample.response.split("\n"):
            assert line in sample.prompt


def test_json_answers_are_json():
    for sample in samples("call_tool", "to_json"):
        assert isinstance(json.loads(sample.response), dict)


def test_the_same_seed_gives_the_same_samples():
    first = list(generated_samples(600, seed=3))
    assert first == list(generated_samples(600, seed=3))
    assert first != list(generated_samples(600, seed=4))
    assert len({sample.prompt for sample in first}) == len(first)


def test_the_samples_stay_those_that_the_demo_family_was_trained_on():
    """Wherever their code lives: the lists of profiled prompts name them."""
    first = itertools.islice(generated_samples(3000, seed=0), 2000)
    digest = hashlib.sha256("".join(sample.prompt for sample in first).encode())
    assert digest.hexdigest().startswith("c204d7dceb4c")


def test_only_permissive_packages_are_read():
    class Distribution:
        def __init__(self, *licences):
            from email.message import Message

            self.metadata = Message()
            for licence in licences:
                self.metadata["Classifier"] = f"License :: OSI Approved :: {licence}"

    assert permissive(Distribution("MIT License"))
    assert permissive(Distribution("GNU General Public License (GPL)")) is None
    assert permissive(Distribution("MIT License", "Mozilla Public License 2.0 (MPL 2.0)")) is None
    assert permissive(Distribution()) is None


def test_python_samples_complete_a_documented_function():
    found = list(python_samples(20_000, seed=1))
    assert found
    for _, sample in found:
        if sample.task == "complete":
            assert sample.response.startswith(sample.prompt.split("\n", 1)[1])
            ast.parse(sample.response)


SENTENCE = "the cat sat on a mat while it rained in town and nobody came by"
WORDS = SENTENCE.split()


def test_rows_that_share_their_text_share_a_group():
    texts = [" ".join(WORDS), " ".join(["rename", *WORDS[:-1], "here"]), "something else entirely"]
    assert group_by_text(texts) == [0, 0, 2]


def test_the_wording_of_a_task_joins_nothing():
    texts = [f"{' '.join(WORDS)} {number} " + "abc " * 3 + str(number) for number in range(40)]
    assert len(set(group_by_text(texts))) > 30


def test_a_derived_row_is_on_the_side_of_its_text():
    rng = random.Random(0)
    rows = []
    for number in range(400):
        text = " ".join(rng.choice(WORDS) + str(rng.randrange(99)) for _ in range(30))
        rows.append(single_turn(f"a{number}", "creative", "a", "Tell me something.", text))
        rows.append(single_turn(f"b{number}", "edit", "b", f"Correct this.\n{text}x", text))
    held = split_corpus_rows(rows, seed=0, share=0.2)
    assert held[::2] == held[1::2]
    assert 40 < sum(held) < 320


def test_a_held_row_that_a_train_row_gives_away_is_left_out():
    def row(name, answer):
        return single_turn(name, "code", "s", "Do it.", answer)

    other = " ".join(reversed(WORDS))
    train = [row("t", SENTENCE)]
    held = [row("same", SENTENCE), row("near", f"{SENTENCE} but"), row("new", other)]
    assert [one["id"] for one in without_near_copies(held, train)] == ["new"]


@pytest.fixture(
    scope="module",
    params=[pytest.param(4, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)],
)
def instruct_split(request):
    """Every so many-th row of the real data, and which of them are held."""
    rows = list(instruct_rows(SHARED))[:: request.param]
    held = split_corpus_rows(rows, seed=0, share=0.04)
    return rows, held


@needs_data
def test_held_rows_share_few_rare_8_grams_with_train_rows(instruct_split):
    """Measured on prompt and response together, in words. Rare 8-grams (at most RARE rows of
    the corpus have them) are the text itself: a held row shares less than SAME of them with any
    one train row. With all train rows together the free texts share hardly any; logic and
    tool_use rows are filled templates, and code shares its page frames and imports."""
    rows, held = instruct_split
    holders = defaultdict(list)
    for index, row in enumerate(rows):
        for shingle in shingles(row_text(row)):
            holders[shingle].append(index)
    own, shared = defaultdict(int), defaultdict(int)
    worst = 0.0
    for index, row in enumerate(rows):
        if not held[index]:
            continue
        rare = [found for s in shingles(row_text(row)) if len(found := holders[s]) <= RARE]
        if not rare:
            continue
        own[row["domain"]] += len(rare)
        shared[row["domain"]] += sum(any(not held[other] for other in found) for found in rare)
        others = defaultdict(int)
        for found in rare:
            for other in found:
                if not held[other]:
                    others[other] += 1
        worst = max(worst, max(others.values(), default=0) / len(rare))
    assert worst < SAME
    shares = {domain: shared[domain] / own[domain] for domain in own}
    templated = {"logic": 0.35, "tool_use": 0.25, "code": 0.20, "edit": 0.10}
    assert all(share < templated.get(domain, 0.015) for domain, share in shares.items()), shares


@needs_data
def test_every_domain_is_held_in_about_the_same_share(instruct_split):
    rows, held = instruct_split
    for domain in {row["domain"] for row in rows}:
        flags = [flag for row, flag in zip(rows, held, strict=True) if row["domain"] == domain]
        assert 0.02 < sum(flags) / len(flags) < 0.07, domain


@pytest.fixture
def some_shared(tmp_path):
    """Every 20th row of the real data."""
    (tmp_path / "data").mkdir()
    for name in ("instruct.jsonl", "dialogue.jsonl"):
        lines = [line for _, line in text_lines(SHARED / "data" / name)]
        (tmp_path / "data" / name).write_text("".join(lines[::20]), encoding="utf-8")
    return tmp_path


@needs_data
def test_build_writes_both_sides_apart(some_shared, tmp_path):
    stats = build_corpus(some_shared, tmp_path, seed=1, generated_rows=3000, python_chars=30_000)
    train, held = (list(read_rows(tmp_path / f"{side}.jsonl")) for side in ("train", "held"))
    for row in [*train, *held]:
        roles = [message["role"] for message in row["messages"]]
        assert roles[-1] == "assistant"
        assert row["domain"] in DOMAINS
        assert repeats(row) > 0
    assert {row["domain"] for row in train} == set(DOMAINS)
    assert len(held) > 100
    assert not {row["id"] for row in train} & {row["id"] for row in held}

    def generated(rows):
        return {row_text(row) for row in rows if row["source"].startswith("generated:")}

    assert not generated(train) & generated(held)
    assert without_near_copies(held, train) == held
    assert stats == json.loads((tmp_path / "stats.json").read_text())


def test_a_missing_data_folder_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"instruct\.jsonl"):
        build_corpus(tmp_path / "nothing", tmp_path)


def test_a_broken_line_is_named(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "instruct.jsonl").write_text('{"domain": "math"\n')
    with pytest.raises(ValueError, match=r"instruct.jsonl, line 1: not JSON"):
        list(instruct_rows(tmp_path))
