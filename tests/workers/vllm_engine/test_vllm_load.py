"""What a vLLM engine says of its load between two of its scheduler's steps."""

from dataclasses import dataclass

from schemas import DecodeRequest, SamplingParams
from schemas.prefixes import HASH_BYTES, REPORTED, prefix_hashes
from workers.engine_load import EngineLoad, RecentPrefixes, load_report


@dataclass
class Answer:
    request: DecodeRequest
    output_tokens: int = 0
    outstanding: int = 50


def answer(identity, output_tokens=0):
    request = DecodeRequest(
        request_id=identity,
        method="naive" if output_tokens else "eagle",
        prompt_token_ids=(1,),
        sampling=SamplingParams(max_tokens=50),
    )
    return Answer(request, output_tokens, 50 - output_tokens)


def test_a_prompt_that_is_being_read_has_a_place_and_does_not_wait():
    load = EngineLoad()
    reading, begun = answer("reading"), answer("begun", output_tokens=5)
    for one in (reading, begun):
        load.begin(one)
    for _ in range(2):
        report = load_report("r", (), load, healthy=True)
        assert (report.running, report.waiting, report.outstanding_tokens) == (2, 0, 95)
        load.iterated(running=2, waiting=0, usage=0.1)

    late = answer("late")
    load.begin(late)
    load.iterated(running=2, waiting=1, usage=0.1)
    report = load_report("r", (), load, healthy=True)
    assert (report.running, report.waiting, report.outstanding_tokens) == (2, 1, 145)
    assert list(report.requests) == ["begun", "reading", "late"]
    assert report.running_by_method == {"naive": 1, "eagle": 1}
    load.end(reading)
    load.end(begun)
    assert [len(each) for each in load.underway()] == [0, 1]


def test_who_decodes_is_counted_as_answers_begin_and_end():
    load = EngineLoad()
    answers = [answer("a", 1), answer("b", 1), answer("c"), answer("d")]
    for one in answers:
        load.begin(one)
    assert load.decoding() == {}
    for one in answers[:3]:
        load.begun(one)
    assert load.decoding() == {"naive": 2, "eagle": 1}
    load.end(answers[3])
    load.end(answers[2])
    load.end(answers[2])
    load.end(answers[0])
    assert load.decoding() == {"naive": 1}


def test_answers_without_a_step_are_a_stall():
    load = EngineLoad()
    assert not load.stalled(-1.0), "nothing is asked of it"
    load.begin(answer("first"))
    assert load.stalled(-1.0)
    assert not load.stalled(1e6)
    load._moved -= 100.0
    assert load.stalled(50.0)
    load.begin(answer("second"))
    assert load.stalled(50.0), "who comes later changes nothing"
    load.iterated(running=2, waiting=0, usage=0.1)
    assert not load.stalled(50.0)


def test_the_prefixes_of_the_newest_texts_are_reported_while_the_cache_has_room():
    recent, texts = RecentPrefixes(), [[n, *range(1_000)] for n in range(200)]
    for text in texts:
        recent.add(text, "acme", slots=100_000)
    found = recent.hashes()
    assert len(found) == REPORTED * HASH_BYTES
    newest = prefix_hashes(texts[-1], "acme")
    assert found.startswith(b"".join(newest))
    recent.add([7] * 1_000, "", slots=1_500)
    assert recent.hashes() == b"".join(prefix_hashes([7] * 1_000, ""))
