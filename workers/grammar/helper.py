"""A helper process that checks grammars in children, which may crash.

`python -m workers.grammar.helper TOKENIZER_JSON VOCAB END...` reads a grammar as one line of JSON,
forks a child that compiles and tries it within limits, and writes a line of JSON: the seconds of
CPU time that this took, and the verdict, which is null or why the grammar is refused. It ends with
its input.
"""

import gc
import json
import os
import re
import resource
import signal
import sys
from pathlib import Path

from llguidance import LLTokenizer

from schemas import Grammar
from workers.engine import RequestFaultError
from workers.grammar.answer_matcher import AnswerMatcher
from workers.grammar.compiler import VERBOSE, compiled, wrapped
from workers.grammar.specification import GrammarError

MAX_BRANCHES = 16
MAX_MASKS = 64
"""Bounds of the search for a beginning that can continue."""

_ARROW = "⇦"
_START = "start"


def check_rules(log: str) -> None:
    """Raise GrammarError if the start rule derives no finite text.

    log: what llguidance writes while it compiles at its highest log level. llguidance has no other
    way to show its compiled rules, and leaves large grammars out of it: those are not checked.
    """
    rules = _rules(log)
    names, finite, found = {name for name, _ in rules}, set[str](), True
    while found:
        # Terminals, and whatever else the log may hold, are finite.
        more = {name for name, right in rules if all(s in finite or s not in names for s in right)}
        found, finite = not more <= finite, more
    if rules and _START not in finite:
        raise GrammarError("no finite answer satisfies it: every way through it recurs for ever")


def check_beginning(matcher: AnswerMatcher, vocab: int, end: frozenset[int]) -> None:
    """Raise GrammarError if every beginning of a response leads to a dead end.

    The search is exhaustive or gives up, where the grammar is taken to be good: one that is not
    ends its responses with an error.
    """
    waiting, dead = [(matcher, list[int]())], ""
    for _ in range(MAX_MASKS):
        if not waiting:
            raise GrammarError(f"no answer satisfies it: {dead.removeprefix('grammar: ')}")
        here, tokens = waiting.pop()
        try:
            here.advance(tokens)
            allowed = here.allowed(vocab).tolist()
        except RequestFaultError as error:
            dead = str(error)
            continue
        if here.ended or len(allowed) > MAX_BRANCHES or not end.isdisjoint(allowed):
            return
        waiting += [(here.copy(), [token]) for token in allowed]


def check_way_back(matcher: AnswerMatcher, vocab: int, end: frozenset[int]) -> None:
    """Raise GrammarError if a step cannot be taken back, as engines do that draft.

    matcher: at the beginning of a response; it is moved.
    """
    try:
        for token in matcher.allowed(vocab).tolist():
            if token not in end:
                matcher.advance([token])
                matcher.back()
                return
    except RequestFaultError as error:
        raise GrammarError(f"answers cannot be drafted under it: {error}") from error


def _rules(log: str) -> list[tuple[str, list[str]]]:
    """Return the last grammar of a log as pairs of a rule's name and an alternative's symbols."""
    _, found, last = log.rpartition("Grammar:\n")
    last = re.split(r"^stats:", last, maxsplit=1, flags=re.MULTILINE)[0]
    name, rules = "", list[tuple[str, list[str]]]()
    for line in last.splitlines() if found else ():
        left, arrow, right = line.partition(_ARROW)
        if arrow:
            name = left.strip() or name
            rules.append((name, right.split()))
    return rules


CPU_SECONDS = 1.0
"""CPU time for one grammar."""
MEMORY_BYTES = 512 * 1024 * 1024
"""Address space for one grammar, in addition to the tokenizer's."""
STACK_BYTES = 1024 * 1024
"""Half of the least that glibc gives a thread. What compiles here does not overflow the stack of a
replica's or vLLM's thread."""
MESSAGE_CHARACTERS = 500
"""llguidance's messages may quote the grammar."""
NICENESS = 5
"""Grammars give way to the processes that answer."""


def verdict(
    grammar: Grammar, tokenizer: LLTokenizer, end: frozenset[int]
) -> tuple[float, str | None]:
    """Return the seconds of CPU time that a grammar took and why it is refused, None if it is good.
    Forks: for a process of one thread."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _check_and_exit(grammar, tokenizer, end, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status, used = os.wait4(child, 0)
    seconds = used.ru_utime + used.ru_stime
    if os.waitstatus_to_exitcode(status) == 0:
        return seconds, json.loads(said)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return seconds, f"it takes more than {CPU_SECONDS:g} s to compile: make it smaller"
    return seconds, "it is nested too deeply or too large to compile: make it simpler"


def check(grammar: Grammar, tokenizer: LLTokenizer, end: frozenset[int]) -> None:
    """Raise GrammarError if the grammar cannot be compiled or no response satisfies it. Standard
    error is lost."""
    log = os.memfd_create("log")
    os.dup2(log, sys.stderr.fileno())
    compiled(grammar, tokenizer, VERBOSE)
    check_rules(os.pread(log, os.fstat(log).st_size, 0).decode(errors="replace"))
    # Another one: writing the log takes longer than the masks.
    matcher = AnswerMatcher(compiled(grammar, tokenizer))
    check_beginning(matcher.copy(), tokenizer.vocab_size, end)
    check_way_back(matcher, tokenizer.vocab_size, end)


def _check_and_exit(
    grammar: Grammar, tokenizer: LLTokenizer, end: frozenset[int], pipe: int
) -> None:
    """Check a grammar in the child: write a verdict and exit with status 0, or crash."""
    said: str | None = None
    try:
        _limit()
        check(grammar, tokenizer, end)
    except GrammarError as error:
        said = str(error)
    except BaseException:
        os._exit(1)
    os.write(pipe, json.dumps(said and said[:MESSAGE_CHARACTERS]).encode())
    os._exit(0)


def _limit() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for kind, most in (
        (resource.RLIMIT_STACK, STACK_BYTES),
        (resource.RLIMIT_AS, used + MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)


def main() -> None:
    """Answer grammars until the input ends."""
    file, vocab, *end = sys.argv[1:]
    ends = frozenset(map(int, end))
    tokenizer = wrapped(Path(file).read_text(encoding="utf-8"), int(vocab), ends)
    os.nice(NICENESS)
    gc.collect()
    gc.freeze()
    for line in sys.stdin.buffer:
        said = verdict(Grammar.model_validate_json(line), tokenizer, ends)
        sys.stdout.buffer.write(json.dumps(said).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
