"""Spans for the traces that Ray Serve makes.

Ray Serve traces requests from its proxy to the replicas if the environment variable
RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH names a function that makes span processors, such as `otlp`
here. RAY_SERVE_TRACING_SAMPLING_RATIO sets the share of requests. Without the variable these
functions cost next to nothing.
"""

import time
from collections.abc import Sequence
from typing import Any

from opentelemetry import trace

from schemas import Decision, DecodeStats

_TRACER = trace.get_tracer("specadapt")
_NANOSECONDS = 1e9


def trace_id() -> str | None:
    """Return the current trace's id as traces write it; None outside a trace."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else None


def decided(decision: Decision, seconds: float) -> None:
    """Write a span for a decision that has just been made and took `seconds`."""
    if not _traced():
        return
    attributes = {
        "specadapt.method": decision.method,
        "specadapt.cluster": decision.cluster,
        "specadapt.reason": decision.reason,
        "specadapt.propensity": decision.propensity,
        "specadapt.table_version": decision.table_version,
    }
    _span("decide", time.time() - seconds, seconds, attributes)


def decoded(stats: DecodeStats) -> None:
    """Write spans for a response that has just ended: queue, prefill, decode."""
    if not _traced():
        return
    began = time.time() - stats.total_seconds
    admitted, first = stats.queue_seconds, stats.first_token_seconds
    _span("queue", began, admitted, {})
    _span("prefill", began + admitted, first - admitted, {"tokens": stats.prompt_tokens})
    attributes = {
        "specadapt.method": stats.method,
        "tokens": stats.output_tokens,
        "target_steps": stats.target_steps,
        "drafted_tokens": stats.drafted_tokens,
        "accepted_tokens": stats.accepted_tokens,
        "finish_reason": stats.finish_reason,
    }
    _span("decode", began + first, stats.decode_seconds, attributes)


def otlp(_file: str) -> Sequence[Any]:
    """Return span processors that send to the collector of OTEL_EXPORTER_OTLP_ENDPOINT.

    Raises ImportError without the package opentelemetry-exporter-otlp-proto-http.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return [BatchSpanProcessor(OTLPSpanExporter())]


def _traced() -> bool:
    return trace.get_current_span().get_span_context().trace_flags.sampled


def _span(name: str, began: float, seconds: float, attributes: dict[str, Any]) -> None:
    start = int(began * _NANOSECONDS)
    span = _TRACER.start_span(f"specadapt.{name}", start_time=start, attributes=attributes)
    span.end(start + int(max(0.0, seconds) * _NANOSECONDS))
