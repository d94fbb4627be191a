// One answer on the page: its text, tinted, and what is known of how it came about.

import { answers } from "./api.js";
import { element, following, speed } from "./dom.js";
import { markdown } from "./markdown.js";
import { tinted } from "./tint.js";

const REASONS = {
  preferred: "fastest for prompts like this",
  load: "the preferred method is busy",
  exploration: "trying it out",
  constraint: "the only one allowed",
  pinned: "your choice",
  pinned_cluster: "set for prompts like this",
  prediction: "copies the predicted answer",
  conversation: "as before in this chat",
  failover: "another one failed",
  starting: "a faster one is starting",
  slo: "fast enough for what was asked",
  degraded: "the prompt could not be read",
};

export class Answer {
  constructor(area) {
    this.area = area;
    this.text = "";
    this.runs = [];
    this.thought = "";
    this.usage = null;
    this.body = element("div", "text");
    this.facts = element("div", "facts");
    this.turn = element("article", "turn assistant");
    this.turn.setAttribute("aria-label", "Answer");
    this.turn.append(this.body, this.facts);
  }

  // Streams the answer to `request`; rejects where it breaks off, with what came before kept.
  async read(request, signal) {
    this.turn.classList.add("busy");
    try {
      for await (const event of answers(request, signal)) {
        following(this.area, () => this.add(event));
      }
    } finally {
      this.turn.classList.remove("busy");
      this.body.hidden = !this.text;
    }
  }

  add(event) {
    if (event.method) return this.show([["method", event.method, "method"], ...choice(event)]);
    const said = event.choices[0];
    if (said?.delta.reasoning_content) this.think(said.delta.reasoning_content);
    this.text += said?.delta.content ?? "";
    this.runs.push(...(said?.drafted ?? []));
    // runs are of all tokens, also of the reasoning, which is not in the text
    const runs = this.thought ? [] : this.runs;
    this.body.replaceChildren(markdown(this.text, tinted(this.text, runs)));
    if (event.usage) {
      this.usage = event.usage;
      this.show(measured(event.usage));
    }
  }

  think(text) {
    if (!this.thought) {
      this.thoughts = element("div", "thoughts");
      const details = element("details");
      details.append(element("summary", "", "Reasoning"), this.thoughts);
      this.turn.prepend(details);
    }
    this.thought += text;
    this.thoughts.textContent = this.thought;
  }

  note(message, className = "") {
    this.turn.append(element("div", `facts ${className}`, message));
  }

  show(facts) {
    this.facts.replaceChildren(...facts.map(([name, value, className]) => {
      const fact = element("span", "", `${name} `);
      fact.append(element("b", className, value));
      return fact;
    }));
  }
}

function choice({ cluster, reason }) {
  return [
    ["cluster", Number(cluster) < 0 ? "none" : String(cluster)],
    ["why", REASONS[reason] ?? reason],
  ];
}

function measured(usage) {
  const s = usage.speculative;
  // tinted as the text is, so that it says what the tint means
  const drafts = s.drafted_tokens
    ? ["accepted", `${Math.round(100 * s.accepted_tokens / s.drafted_tokens)}% of ${s.drafted_tokens} drafted`, "drafted"]
    : ["drafted", "nothing"];
  return [
    ["method", s.method, "method"],
    ["tokens/s", speed(s.tokens_per_s)],
    ["tokens/step", s.mean_acceptance_length.toFixed(2)],
    drafts,
    ["tokens", String(usage.completion_tokens)],
    ...choice(s),
  ];
}
