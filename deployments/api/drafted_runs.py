"""Which of an answer's text was drafted and accepted, and which the target sampled itself."""

from codecs import getincrementaldecoder
from itertools import groupby

from schemas import DecodeChunk
from workers.token_text import TokenText

Run = tuple[str, bool]


class DraftedRuns:
    """Split one answer's text into runs (text, drafted), chunk by chunk.

    A token's bytes may be part of a character, which then belongs to the token that completes it.
    Texts are the tokens' own: they can be ahead of the answer's text while it is held back for a
    stop sequence, and go beyond it if one is found.
    """

    def __init__(self, tokens: TokenText, *, hides_special: bool = True) -> None:
        """hides_special: special tokens are not in the answer's text."""
        self._tokens, self._hides_special = tokens, hides_special
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._first = True

    def of(self, chunk: DecodeChunk) -> list[Run]:
        """Return the chunk's runs, merging neighbours of one kind; empty if no token is visible."""
        said = [
            (self._decoder.decode(self._tokens.raw(token)), drafted)
            for token, drafted in zip(chunk.token_ids, chunk.drafted, strict=True)
            if not (self._hides_special and self._tokens.is_special(token))
        ]
        runs = [
            ("".join(text for text, _ in run), drafted)
            for drafted, run in groupby(said, key=lambda one: one[1])
        ]
        runs = [run for run in runs if run[0]]
        if runs and self._first:
            self._first = False
            text, drafted = runs[0]
            if text.startswith(" ") and chunk.text and not chunk.text.startswith(" "):
                # SentencePiece's space before the first word, which answers are given without
                runs[0] = (text[1:], drafted)
        return runs
