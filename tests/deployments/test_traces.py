"""Spans of decisions and answers, in a trace like Ray Serve's."""

import pytest
from asking import answered, prompt, spoken
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

from deployments import traces


@pytest.fixture(params=[ALWAYS_ON, ALWAYS_OFF], ids=["sampled", "not sampled"])
def exported(request, monkeypatch):
    """What is exported, and the tracer that a request's span is made with."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=request.param)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(traces, "_TRACER", provider.get_tracer("specadapt"))
    return exporter, provider.get_tracer("ray"), request.param is ALWAYS_ON


async def test_a_prompts_way(ingress, exported):
    exporter, tracer, sampled = exported
    assert traces.trace_id() is None
    await spoken(await answered(ingress, prompt()))
    assert exporter.get_finished_spans() == (), "outside of a trace"
    with tracer.start_as_current_span("request") as request:
        assert traces.trace_id() == trace.format_trace_id(request.get_span_context().trace_id)
        answer = await answered(ingress, prompt())
        await spoken(answer)
        traces.decoded(answer.stats)
    spans = {span.name.removeprefix("specadapt."): span for span in exporter.get_finished_spans()}
    assert set(spans) == ({"request", "decide", "queue", "prefill", "decode"} if sampled else set())
    if not sampled:
        return
    assert {span.context.trace_id for span in spans.values()} == {request.context.trace_id}
    assert spans["decide"].attributes["specadapt.method"] == answer.method
    assert spans["decode"].attributes["tokens"] == answer.stats.output_tokens
    seconds = {name: (span.end_time - span.start_time) / 1e9 for name, span in spans.items()}
    assert seconds["decide"] == pytest.approx(answer.routed.seconds)
    assert seconds["decode"] == pytest.approx(answer.stats.decode_seconds)
    parts = seconds["queue"] + seconds["prefill"]
    assert parts == pytest.approx(answer.stats.first_token_seconds, abs=1e-6)
    assert spans["queue"].end_time <= spans["prefill"].end_time <= spans["decode"].end_time
