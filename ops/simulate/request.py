"""One simulated request on its way."""

from ops.load.policies import Question
from ops.simulate.controller import Answer
from ops.simulate.workload import Path
from schemas import Decision

NEVER = float("inf")


class Request:
    """Times are seconds of the run; NEVER has not happened.

    number: of all requests, in the order of their arrival. ways: the path by method. method, path:
    of the one that answers. line: the methods (indices) to ask after it. decision: the router's,
    where it learns. answer: what is said, where drafts are chosen at every step. handed: when a
    replica had it first. prompt: tokens to read. said: tokens that replicas which died have
    emitted. batch_steps: by method the sequences in each of its decode steps, summed;
    stalled_seconds: while others' prompts were read between them. Both are whole at its end.
    """

    __slots__ = (
        *("number", "arrival", "question", "ways", "line", "method", "path", "prompt", "unread"),
        *("decision", "answer", "handed", "admitted", "first", "end", "said", "failures"),
        *("batch_steps", "stalled_seconds"),
    )

    def __init__(
        self, number: int, arrival: float, question: Question, ways: tuple[Path, ...]
    ) -> None:
        self.number, self.arrival = number, arrival
        self.question, self.ways = question, ways
        self.line: list[int] = []
        self.method, self.path = -1, ways[0]
        self.prompt = self.unread = question.features.prompt_tokens
        self.decision: Decision | None = None
        self.answer: Answer | None = None
        self.handed = self.admitted = self.first = NEVER
        self.end = 0
        """Its replica's count of steps at its last token; 0 while its prompt is not read."""
        self.said = self.failures = 0
        self.batch_steps: dict[str, int] = {}
        self.stalled_seconds = 0.0

    def answered_by(self, method: int) -> None:
        """The method that is asked now: it goes on behind what was said. What is left of its path
        is taken to be like the whole."""
        path = self.ways[method]
        if self.said:
            left = max(1, path.tokens - self.said)
            steps = max(1, round((left - 1) / path.rate)) if left > 1 else 0
            path = Path(left, steps, path.width)
        self.method, self.path, self.end = method, path, 0

    def lost(self, emitted: int) -> None:
        """Its replica has died, which had emitted so many tokens."""
        self.said += emitted
        self.prompt = self.question.features.prompt_tokens + self.said
        self.failures += 1
