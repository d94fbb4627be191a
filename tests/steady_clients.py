"""Clients that ask a running service again and again."""

import threading
import time

from running_service import HTTP

SAID = [{"role": "user", "content": "Write a Python function"}]


class Clients:
    """Ask until the end of the block, one client for each of the `ways` to ask.

    failed: the way, the status or the error, when it was asked (seconds of `monotonic`), and what
    came, of each request that went wrong. seconds: what each answer took. in_a_row: answers since
    the last that went wrong.
    """

    def __init__(self, url, ways):
        self.failed, self.seconds, self.in_a_row = [], [], 0
        self._url, self._over = f"{url}/v1/chat/completions", threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(way,)) for way in ways]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, way):
        body = {"model": "tiny", "messages": SAID, "max_tokens": 16} | way
        while not self._over.is_set():
            clock, failures = time.monotonic(), len(self.failed)
            try:
                answer = HTTP.post(self._url, json=body)
                whole = answer.is_success and ("stream" not in way or "[DONE]" in answer.text)
                if not whole or '"error"' in answer.text:
                    self.failed.append((way, answer.status_code, clock, answer.text[-300:]))
            except Exception as error:  # whatever it is, a client saw it
                self.failed.append((way, type(error).__name__, clock, repr(error)))
            self.seconds.append(time.monotonic() - clock)
            self.in_a_row = self.in_a_row + 1 if len(self.failed) == failures else 0
