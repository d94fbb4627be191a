import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.common.boundary import InputError
from ops.common.prompts import Prompt, fingerprint, parse, read, select, take
from schemas.text_files import FileError


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_every_form_of_a_line_is_read(tmp_path):
    file = lines(
        tmp_path / "p.jsonl",
        {"id": "a", "prompt": "Hello", "domain": "general", "response": "Hi"},
        {"turns": ["First", "Second"]},
        {"turns": [{"role": "assistant", "content": "Hm"}, {"role": "user", "content": "Go"}]},
        {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]},
    )
    prompts = read(file)
    assert [p.text for p in prompts] == ["Hello", "First", "Go", "U"]
    assert [[m["content"] for m in p.later] for p in prompts] == [[], ["Second"], [], []]
    assert prompts[0].id == "a"
    assert prompts[0].response == "Hi"
    assert [m["role"] for m in prompts[3].messages] == ["system", "user"]
    assert len({p.id for p in prompts}) == 4


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"text": "x"}, "needs one of the fields prompt, turns, messages"),
        ({"prompt": 3}, "prompt: expected text, got 3"),
        ({"prompt": " "}, "prompt: expected text"),
        ({"messages": []}, "messages: expected a list"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "the last one must be the user's"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "message 0: needs role"),
        ({"turns": [{"role": "assistant", "content": "x"}]}, "turns: none is the user's"),
        ({"prompt": "x", "domain": 4}, "domain: expected text, got 4"),
        ({"prompt": "x", "id": {"a": 1}}, "id: expected text or a whole number"),
        ({"prompt": "x", "id": True}, "id: expected text or a whole number, got true"),
        ({"prompt": "x", "id": ""}, "id: expected text or a whole number"),
        (7, "expected a JSON object"),
        (["x"], "expected a JSON object"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, row, problem):
    file = lines(tmp_path / "p.jsonl", {"prompt": "fine"}, row)
    with pytest.raises(InputError, match="line 2") as caught:
        read(file)
    assert problem in str(caught.value)


def test_malformed_json_and_empty_files_are_named(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n{"prompt": \n')
    with pytest.raises(FileError, match=r"bad\.jsonl, line 2"):
        read(tmp_path / "bad.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="no prompts"):
        read(tmp_path / "empty.jsonl")


def test_an_id_that_is_given_twice_names_both_lines(tmp_path):
    one = lines(tmp_path / "one.jsonl", {"id": "a", "prompt": "1"}, {"id": 7, "prompt": "2"})
    two = lines(tmp_path / "two.jsonl", {"prompt": "3"}, {"id": "7", "prompt": "4"})
    assert len(select([one])) == len(select([two])) == 2
    for files in ([one, two], [one, one]):
        with pytest.raises(InputError) as caught:
            select(files)
        assert "is given twice, first in" in str(caught.value)
    assert f"{one}, line 1: id 'a'" in str(caught.value)
    with pytest.raises(InputError, match=r"two\.jsonl, line 2: id '7' .*one\.jsonl, line 2"):
        read(one, two)


def test_lines_without_an_id_may_repeat_a_prompt(tmp_path):
    assert len(read(lines(tmp_path / "p.jsonl", {"prompt": "x"}, {"prompt": "x"}))) == 2


def of_domains(**counts):
    return [
        Prompt(f"{domain}-{i}", domain, ({"role": "user", "content": f"{domain} {i}"},))
        for domain, count in counts.items()
        for i in range(count)
    ]


@settings(deadline=None)
@given(
    counts=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 8), min_size=1),
    limit=st.integers(1, 40),
    seed=st.integers(0, 5),
)
def test_taking_is_equal_per_domain_and_a_prefix_of_taking_more(counts, limit, seed):
    prompts = of_domains(**counts)
    taken = take(prompts, limit, seed)
    assert len(taken) == min(limit, len(prompts))
    assert taken == take(list(reversed(prompts)), limit + 1, seed)[: len(taken)]
    per_domain = {d: sum(p.domain == d for p in taken) for d in counts}
    fullest = max(per_domain.values())
    assert all(n >= min(counts[d], fullest - 1) for d, n in per_domain.items())


def test_the_seed_decides_which():
    prompts = of_domains(a=30, b=30)
    assert take(prompts, 10, 1) != take(prompts, 10, 2)
    assert fingerprint(take(prompts, 10, 1)) != fingerprint(take(prompts, 10, 2))


def test_ids_pick_and_missing_ids_are_named(tmp_path):
    file = lines(tmp_path / "p.jsonl", *({"id": str(i), "prompt": f"p{i}"} for i in range(5)))
    (tmp_path / "ids").write_text("3\n1\n")
    assert [p.id for p in select([file], tmp_path / "ids")] == ["3", "1"]
    (tmp_path / "ids").write_text("3\n9\n")
    with pytest.raises(InputError, match="first 9"):
        select([file], tmp_path / "ids")
    (tmp_path / "ids").write_text("3 1\n\n3\n")
    with pytest.raises(InputError, match=r"ids, line 3: id '3' is given twice, first in .*line 1"):
        select([file], tmp_path / "ids")


def test_prompts_come_through_pipes(tmp_path, monkeypatch):
    text = '{"prompt": "What is 12 + 30?"}\n'
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=[text])
    writer.start()
    assert [p.text for p in read(pipe)] == ["What is 12 + 30?"]
    writer.join()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{text}{{".encode())))
    with pytest.raises(ValueError, match="-, line 2: not JSON"):
        read(Path("-"))


def test_a_prompt_of_a_command_line_that_is_not_utf8_is_refused():
    with pytest.raises(ValueError, match=r"prompt: \\udcff is half a surrogate pair"):
        parse({"prompt": os.fsdecode(b"Caf\xff")})


def test_parse_gives_equal_prompts_equal_ids():
    assert parse({"prompt": "x"}).id == parse({"prompt": "x"}).id != parse({"prompt": "y"}).id
