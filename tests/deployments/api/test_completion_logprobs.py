"""Log probabilities of completions, where tokens are parts of characters."""

from deployments.api.logprobs import CompletionLogprobs
from schemas import DecodeChunk, TokenLogprobs
from workers.text import TokenText

TEXT = "a😀é你b"


def test_offsets_are_within_the_text_and_parts_of_characters_stay_apart(tiny_bundle):
    tokenizer = tiny_bundle.tokenizer()
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    tokens = TokenText(tokenizer)
    parts = [token for token in ids if "\ufffd" in tokens.text(token)]
    assert len(set(parts)) > 2
    top = tuple((token, -1.0 - n) for n, token in enumerate(dict.fromkeys(parts)))
    said = tuple(TokenLogprobs(chosen=-9.0, top=top) for _ in ids)
    chunk = DecodeChunk(request_id="1", text=TEXT, token_ids=tuple(ids), logprobs=said)
    written = CompletionLogprobs(tokens).of(chunk)
    assert written["text_offset"] == sorted(written["text_offset"])
    assert written["text_offset"][-1] == len(TEXT) - 1
    assert written["tokens"][1].startswith("bytes:\\x")
    for token, alternatives in zip(written["tokens"], written["top_logprobs"], strict=True):
        assert len(alternatives) >= len(top)
        assert alternatives[token] in (-9.0, *dict(top).values())
