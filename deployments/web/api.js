// The service's endpoints, as the page calls them. Everything rejects with a message for people.

// Kept until the tab is closed, and sent to this service alone.
const KEY = "specadapt-key";

async function asked(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { ...options.headers, authorization: `Bearer ${key}` } : options.headers;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached. Is it running?");
  }
  if (response.ok) return response;
  if (response.status === 401) {
    const given = window.prompt("This service asks for an API key.")?.trim();
    if (given) {
      sessionStorage.setItem(KEY, given);
      return asked(path, options);
    }
  }
  let message;
  try {
    message = (await response.json()).error.message;
  } catch {
    message = `the server answered ${response.status}`;
  }
  throw new Error(message);
}

function posted(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return asked(path, { method: "POST", headers, signal, body: JSON.stringify(body) });
}

export async function models() {
  return (await (await asked("v1/models")).json()).data;
}

export async function routing() {
  return (await asked("v1/routing")).json();
}

export async function explain(messages) {
  return (await posted("v1/routing/explain", { messages })).json();
}

// An answer: first { method, cluster, reason }, then the stream's events. A stream whose first token
// is late says it in its first event instead of in the headers.
export async function* answers(request, signal) {
  const options = { include_usage: true, include_drafted: true };
  const body = { ...request, stream: true, stream_options: options };
  const response = await posted("v1/chat/completions", body, signal);
  const [method, cluster, reason] = ["method", "cluster", "reason"]
    .map((name) => response.headers.get(`x-specadapt-${name}`));
  if (method) yield { method, cluster, reason };
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    if (event.specadapt) yield event.specadapt;
    yield event;
  }
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    let read;
    try {
      read = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The connection broke off.");
    }
    if (read.done) throw new Error("The answer broke off.");
    buffer += read.value;
    const parts = buffer.split("\n\n");
    buffer = parts.pop();
    for (const part of parts) {
      if (part === "data: [DONE]") return;
      if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
    }
  }
}
