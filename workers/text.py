"""Text from tokens as they come: whole characters only, and nothing of a stop string."""

from collections.abc import Collection, Sequence

from tokenizers import Tokenizer

from workers.engine import EngineRefusedError

BROKEN = "\ufffd"
"""What decoders put for bytes that are not (yet) a character."""


CONTEXT = 4
"""Tokens decoded again before new ones."""


class Detokenizer:
    """Turns a growing list of tokens into text, holding back a character until it is whole.

    Decodes only the tokens since the last clean cut, after a few before it: some tokenizers
    treat the first token of a text differently.
    """

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend
        self._context: list[int] = []
        self._before = 0
        self._pending: list[int] = []
        self._given = 0

    def push(self, tokens: Sequence[int]) -> str:
        """The characters these tokens complete; may be empty."""
        self._pending.extend(tokens)
        text: str = self._backend.decode(self._context + self._pending)[self._before :]
        if text.endswith(BROKEN):
            fresh, self._given = text[self._given : -1], len(text) - 1
            return fresh
        fresh = text[self._given :]
        self._context = (self._context + self._pending)[-CONTEXT:]
        self._before = len(self._backend.decode(self._context))
        self._pending, self._given = [], 0
        return fresh


class StopStrings:
    """Withholds text while it may be the start of a stop string.

    The answer ends before the stop string that is complete first, the longest one where several
    end with the same character: so it does not depend on how the text was cut into pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.hit = False

    def push(self, text: str) -> str:
        """The text that is safe to emit; sets `hit` and drops the rest at a stop string."""
        if not self._stops:
            return text
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.hit, self._held = True, ""
            return text[: min(found)[1]]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was withheld, once the answer has ended without a stop string."""
        held, self._held = self._held, ""
        return held

    @property
    def watching(self) -> bool:
        """Whether there is any stop string."""
        return bool(self._stops)


class AnswerText:
    """An answer's text as its tokens come, up to an end token or a stop string."""

    def __init__(self, backend: Tokenizer, eos: Collection[int], stops: Sequence[str]) -> None:
        self.ended = False
        self._eos = frozenset(eos)
        self._detokenizer = Detokenizer(backend)
        self._stops = StopStrings(stops)

    def push(self, tokens: Sequence[int]) -> tuple[int, str]:
        """How many of the tokens belong to the answer, and their text; sets `ended`."""
        end = next((i for i, token in enumerate(tokens) if token in self._eos), None)
        spoken = tokens if end is None else tokens[:end]
        if not self._stops.watching:
            text = self._detokenizer.push(spoken)
        else:
            text = ""
            for position, token in enumerate(spoken):
                text += self._stops.push(self._detokenizer.push([token]))
                if self._stops.hit:
                    self.ended = True
                    return position + 1, text
        if end is None:
            return len(tokens), text
        self.ended = True
        return end + 1, text

    def go_on(self, tokens: Sequence[int]) -> None:
        """Go on behind an answer's beginning, whose text was given elsewhere; raises
        EngineRefusedError where the answer has ended with it."""
        self.push(tokens)
        if self.ended:
            raise EngineRefusedError("answered_token_ids: the answer has ended with them")

    def flush(self) -> str:
        """What was withheld, once the answer has ended; nothing of it after a stop string."""
        return self._stops.flush()


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    longest = min(len(stop) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)
