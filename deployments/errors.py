"""Errors as OpenAI clients expect them: one object, one status, the parameter named."""

from typing import Any

RETRY_AFTER_SECONDS = 1
GIVEN_UP = "request_given_up"
REQUEST_FAULT = "request_fault"


class ApiError(Exception):
    """An answer other than 2xx; `status` is the HTTP status, `retry_after` the seconds to wait
    where it is 429 or 503, the rest fills OpenAI's object."""

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
        """Whether an engine has worked on the request, which is why it has no answer: its own
        deadline passed, or its own grammar let it go no further."""
        return self.status == 504 or self.code == REQUEST_FAULT

    def body(self) -> dict[str, Any]:
        """The JSON body: `{"error": {message, type, param, code}}`."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def headers(self) -> dict[str, str]:
        """How to ask with a key where none was accepted, and Retry-After where the same request
        may be answered later; what OpenAI's clients read where it may not: they repeat every 5xx
        by themselves, a missed deadline and what two methods failed of too."""
        if self.status == 504 or self.code == GIVEN_UP:
            return {"x-should-retry": "false"}
        if self.status == 401:
            return {"www-authenticate": "Bearer"}
        if self.status == 408:  # the rest of the body is not waited for
            return {"connection": "close"}
        later = self.status in (429, 503)
        return {"retry-after": str(self.retry_after)} if later else {}


def line_full() -> ApiError:
    """Every admissible method's waiting line is full."""
    return overloaded("every replica's waiting line is full; try again shortly")


def overloaded(message: str) -> ApiError:
    """More is asked for than may wait."""
    return ApiError(429, message, code="server_busy")


def unavailable(message: str) -> ApiError:
    """No method can answer now."""
    return ApiError(503, message, code="unavailable")


def given_up(failures: int) -> ApiError:
    """So many replicas failed on the request, which may be what they failed of."""
    return ApiError(500, f"{failures} replicas failed on this request", code=GIVEN_UP)


def request_fault(message: str) -> ApiError:
    """The answer cannot go on for a reason that lies in the request."""
    return ApiError(400, message, code=REQUEST_FAULT)


def broken_off(method: str) -> ApiError:
    """The answer's beginning is out and its end will not come."""
    return ApiError(500, f"{method} failed in the middle of the answer", code="answer_broken_off")
