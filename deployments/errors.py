"""Errors as clients expect them: one object, one status, the parameter named. And those of repeated
work, as the log has them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

RETRY_AFTER_SECONDS = 1
GIVEN_UP = "request_given_up"
REQUEST_FAULT = "request_fault"
ANTHROPIC = "/v1/messages"
"""The path whose errors have Anthropic's form."""
_ANTHROPIC_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ApiError(Exception):
    """Represent a response other than 2xx.

    status: the HTTP status. retry_after: seconds to wait, sent with 429 and 503.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int = RETRY_AFTER_SECONDS,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        if self.status == 429:
            return "rate_limit_error"
        return "server_error" if self.status >= 500 else "invalid_request_error"

    @property
    def worked_on(self) -> bool:
        """Return whether an engine worked on the request and it has no response because of its own
        objectives.

        Its deadline passed, or its grammar could not be continued.
        """
        return self.status == 504 or self.code == REQUEST_FAULT

    def body(self, path: str = "") -> dict[str, Any]:
        """Return the JSON body: `{"error": {message, type, param, code}}`.

        path: of the request; below ANTHROPIC the body is `{"type": "error", "error": {type,
        message}}`.
        """
        if path == ANTHROPIC or path.startswith(f"{ANTHROPIC}/"):
            other = "api_error" if self.status >= 500 else "invalid_request_error"
            kind = _ANTHROPIC_KINDS.get(self.status, other)
            return {"type": "error", "error": {"type": kind, "message": self.message}}
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def headers(self) -> dict[str, str]:
        """Return the headers that tell a client how to go on.

        OpenAI's clients repeat every 5xx by themselves. A missed deadline and a request that
        failed twice must not be repeated.
        """
        if self.status == 504 or self.code == GIVEN_UP:
            return {"x-should-retry": "false"}
        if self.status == 401:
            return {"www-authenticate": "Bearer"}
        if self.status == 408:  # the rest of the body is not waited for
            return {"connection": "close"}
        later = self.status in (429, 503)
        return {"retry-after": str(self.retry_after)} if later else {}


def invalid(param: str, why: str, code: str = "invalid_value") -> ApiError:
    """Return the error for a parameter whose value is not possible."""
    return ApiError(400, f"{param}: {why}", param=param, code=code)


def no_model(why: str) -> ApiError:
    """Return the error for a model that does not answer the request."""
    return ApiError(404, why, param="model", code="model_not_found")


def overloaded(message: str) -> ApiError:
    """Return the error for more requests than may wait."""
    return ApiError(429, message, code="server_busy")


def unavailable(message: str) -> ApiError:
    """Return the error for a time in which no method can answer."""
    return ApiError(503, message, code="unavailable")


class Troubles:
    """Log what keeps repeated work from being done, once for each kind of error in a row.

    meaning: what is so until it is fixed.
    """

    def __init__(self, logger: logging.Logger, meaning: str) -> None:
        self._logger, self._meaning = logger, meaning
        self._last: type[Exception] | None = None

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Do the work in the block, which raises nothing."""
        kind: type[Exception] | None = None
        try:
            yield
        except Exception as error:  # file systems and actors have exceptions of their own
            kind = type(error)
            if kind is not self._last:
                why = str(error) or kind.__name__
                self._logger.warning("%s until this is fixed: %s", self._meaning, why)
        self._last = kind
