"""Grammar checks in helper processes, which a harmful grammar may kill."""

import asyncio
import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

from deployments.api.fair_threads import FairThreads
from deployments.errors import unavailable
from deployments.guard.caller import Caller
from schemas import Grammar
from workers.bundle import Bundle
from workers.end_tokens import end_tokens
from workers.grammar.specification import GrammarError, check_size
from workers.target_sizes import target_sizes

logger = logging.getLogger(__name__)

HELPERS = 2
WAITING = 32
"""Grammars of a caller and of about one size that wait; each takes a second of CPU time at most."""
KNOWN = 1024
"""Verdicts kept, for requests that share a grammar."""
PATIENCE_SECONDS = 60.0
"""How long a helper may take to start and check a grammar before another one replaces it."""
ATTEMPTS = 2


class GrammarChecks:
    """Check grammars in a small pool of helper processes, in turn by caller. Call it from one event
    loop."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Make the pool; helpers start with the first grammar. arguments: of
        `workers.grammar.helper`."""
        self._helpers = [Helper(arguments) for _ in range(HELPERS)]
        self._threads = FairThreads(self._helpers, "grammar", WAITING)
        self._known: OrderedDict[bytes, str | None] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[str | None]] = {}

    async def check(self, caller: Caller, grammar: Grammar) -> None:
        """Raise GrammarError if the grammar is refused, ApiError 429 if too many of the caller's
        wait and 503 if no helper can check it. The caller is charged for the check."""
        check_size(grammar)
        key = hashlib.sha256(f"{grammar.kind}\0{grammar.text}".encode()).digest()
        if key in self._known:
            self._known.move_to_end(key)
            why = self._known[key]
        else:
            # Others may wait for the same grammar: a client that leaves does not cancel it.
            why = await asyncio.shield(self._checking(key, caller, grammar))
        if why is not None:
            raise GrammarError(why)

    def _checking(self, key: bytes, caller: Caller, grammar: Grammar) -> asyncio.Task[str | None]:
        if key not in self._under_way:
            self._under_way[key] = asyncio.create_task(self._checked(key, caller, grammar))
        return self._under_way[key]

    async def _checked(self, key: bytes, caller: Caller, grammar: Grammar) -> str | None:
        size = len(grammar.text)
        try:
            verdict = partial(Helper.verdict, grammar=grammar)
            seconds, why = await self._threads.run(caller.owner, size, verdict)
        finally:
            del self._under_way[key]
        caller.worked(seconds)
        self._known[key] = why
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)
        return why


class Helper:
    """Run one helper process, and replace it when it dies or does not answer in time."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._command = [sys.executable, "-P", "-m", "workers.grammar.helper", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def verdict(self, grammar: Grammar) -> tuple[float, str | None]:
        """Return the seconds of CPU time that a grammar took and why it is refused, None if it is
        good. Blocks. Raises ApiError 503 if the helper cannot check it."""
        line = grammar.model_dump_json().encode() + b"\n"
        for _ in range(ATTEMPTS):
            process = self._process = self._process or self._started()
            reply = self._asked(process, line)
            if reply:
                seconds, why = json.loads(reply)
                return seconds, why
            self._process = None
            process.kill()
            process.communicate()
            logger.warning("a grammar helper has died or did not answer; another one starts")
        raise unavailable("grammars cannot be checked now")

    def _asked(self, process: subprocess.Popen[bytes], line: bytes) -> bytes:
        """Return the helper's reply, empty if it dies or is killed for taking too long."""
        assert process.stdin is not None
        assert process.stdout is not None
        overdue = threading.Timer(PATIENCE_SECONDS, process.kill)
        overdue.daemon = True
        overdue.start()
        try:
            process.stdin.write(line)
            process.stdin.flush()
            return process.stdout.readline()
        except OSError:
            return b""
        finally:
            overdue.cancel()

    def _started(self) -> subprocess.Popen[bytes]:
        # This process may have found its packages in ways of its own, as Ray's workers do.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )


def helper_arguments(bundle: Bundle, tokenizer: Any) -> list[str]:
    """Return the arguments of a grammar helper: tokenizer file, vocabulary size, end tokens."""
    vocab = max(len(tokenizer), target_sizes(bundle.part("target")).vocab)
    ends = sorted(end_tokens(bundle))
    return [str(bundle.part("tokenizer") / "tokenizer.json"), str(vocab), *map(str, ends)]
