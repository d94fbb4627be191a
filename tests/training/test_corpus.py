"""The corpus: conversations are read, the split holds, and a build can be repeated."""

import json
import random
from pathlib import Path

import pytest

from tests.training.rows import single_turn
from training.corpus import CorpusError, build_corpus, read_rows
from training.corpus.rows import conversations
from training.corpus.split import (
    group_by_text,
    split_rows,
    without_near_copies,
)

DATA = Path(__file__).parents[3] / "shared" / "data"
INSTRUCT, DIALOGUE = DATA / "instruct.jsonl", DATA / "dialogue.jsonl"
needs_data = pytest.mark.skipif(
    not INSTRUCT.is_file(), reason="needs the data folder ../shared/data beside the repository"
)

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
    held = split_rows(rows, seed=0, share=0.2)
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
    rows = list(conversations(INSTRUCT))[:: request.param]
    held = split_rows(rows, seed=0, share=0.04)
    return rows, held


@needs_data
def test_every_domain_is_held_in_about_the_same_share(instruct_split):
    rows, held = instruct_split
    for domain in {row["domain"] for row in rows}:
        flags = [flag for row, flag in zip(rows, held, strict=True) if row["domain"] == domain]
        assert 0.02 < sum(flags) / len(flags) < 0.07, domain


@pytest.fixture
def some_data(tmp_path):
    """Every 20th row of the real data."""
    files = []
    for file in (INSTRUCT, DIALOGUE):
        lines = file.read_text(encoding="utf-8").split("\n")
        files.append(tmp_path / file.name)
        files[-1].write_text("\n".join(lines[::20]), encoding="utf-8")
    return files


@needs_data
def test_build_writes_both_sides_apart(some_data, tmp_path):
    stats = build_corpus(some_data, tmp_path, seed=1)
    train, held = (list(read_rows(tmp_path / f"{side}.jsonl")) for side in ("train", "held"))
    assert all(row["messages"][-1]["role"] == "assistant" for row in [*train, *held])
    assert {"dialogue", "math"} <= {row["domain"] for row in train}
    assert len(held) > 30
    assert not {row["id"] for row in train} & {row["id"] for row in held}
    assert without_near_copies(held, train) == held
    assert stats == json.loads((tmp_path / "stats.json").read_text())


def written(tmp_path, *values):
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return file


def test_the_three_forms_of_a_conversation_are_read(tmp_path):
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello "},
        {"role": "user", "content": "Bye"},
    ]
    file = written(
        tmp_path,
        {"id": "a", "domain": "math", "prompt": "1 + 1?", "response": "2", "source": "s"},
        {"messages": turns},
        {"turns": turns},
        {"prompt": "No answer"},
    )
    first, second, third = conversations(file)
    assert first == single_turn("a", "math", "s", "1 + 1?", "2")
    assert second == single_turn("chats-2", "general", "chats", "Hi", "Hello")
    assert third["messages"] == second["messages"]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"text": "x"}, "chats.jsonl, line 1: needs `prompt`"),
        ({"turns": ["Hi"]}, "chats.jsonl, line 1: a message must be an object"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "chats.jsonl, line 1: role is 'tool'"),
        (
            {"prompt": 3, "response": "x"},
            "line 1: the text of a message must be a string",
        ),
        ([], "chats.jsonl, line 1: must be a JSON object"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path, value, named):
    with pytest.raises(CorpusError, match=named):
        list(conversations(written(tmp_path, value)))


def test_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(CorpusError, match=r"nothing\.jsonl is not a file"):
        build_corpus([tmp_path / "nothing.jsonl"], tmp_path)
    with pytest.raises(CorpusError, match="no line has a prompt and an answer"):
        build_corpus([written(tmp_path, {"prompt": "x"})], tmp_path)
    row = {"id": "a", "prompt": "x", "response": "y"}
    with pytest.raises(CorpusError, match="id 'a' is given to 2 rows"):
        build_corpus([written(tmp_path, row, row)], tmp_path)
    (tmp_path / "broken.jsonl").write_text('{"domain": "math"\n')
    with pytest.raises(ValueError, match=r"broken.jsonl, line 1: not JSON"):
        build_corpus([tmp_path / "broken.jsonl"], tmp_path)
