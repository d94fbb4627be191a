// One prompt through every method, side by side.

import { Answer } from "./answer.js";
import { $, element, grow, say, speed } from "./dom.js";
import { fell } from "./routing.js";

const question = $("question"), area = $("lanes").parentElement;
let pinned, abort = null;

function lane(model) {
  const answer = new Answer(area);
  const made = element("section");
  const name = model.slice(model.indexOf(":") + 1);
  made.setAttribute("aria-label", name);
  const bar = element("progress");
  bar.max = 1;
  bar.value = 0;
  bar.setAttribute("aria-label", `Speed of ${name} against the fastest`);
  made.append(element("h2", "", name), bar, answer.turn);
  $("lanes").append(made);
  return { model, name, answer, bar };
}

const rate = ({ answer }) => answer.usage.speculative.tokens_per_s;

function standings(lanes) {
  const done = lanes.filter(({ answer }) => answer.usage);
  const best = Math.max(...done.map(rate));
  for (const one of done) one.bar.value = rate(one) / best;
  return done;
}

function verdict(lanes) {
  const done = standings(lanes);
  if (done.length < 2) return "";
  const first = done.reduce((a, b) => (rate(b) > rate(a) ? b : a));
  const plain = done.find(({ name }) => ["naive", "vllm_naive"].includes(name));
  const times = plain && plain !== first
    ? `, ${(rate(first) / rate(plain)).toFixed(1)} times plain decoding` : "";
  return `Fastest this time: ${first.name}, ${speed(rate(first))} tokens/s${times}.`;
}

function working(on) {
  $("run").hidden = on;
  $("halt").hidden = !on;
}

async function compare() {
  const text = question.value.trim();
  if (!text || abort) return;
  abort = new AbortController();
  const { signal } = abort;
  working(true);
  $("verdict").hidden = true;
  $("lanes").replaceChildren();
  const lanes = pinned.map(lane);
  const messages = [{ role: "user", content: text }];
  for (const { model, name, answer } of lanes) {
    if (signal.aborted) {
      answer.body.hidden = true;
      continue;
    }
    say(`${name} answers`);
    try {
      await answer.read({ model, messages, temperature: 0 }, signal);
      fell(messages, answer.usage.speculative);
    } catch (error) {
      const stopped = error.name === "AbortError";
      answer.note(stopped ? "You stopped this answer." : error.message, stopped ? "" : "error");
      if (!stopped) say(`${name}: ${error.message}`);
    }
    standings(lanes);
  }
  const result = verdict(lanes);
  $("verdict").textContent = result;
  $("verdict").hidden = !result;
  $("verdict").scrollIntoView({ block: "nearest" });
  if (result || signal.aborted) say(result || "Stopped");
  abort = null;
  working(false);
  $("run").focus();
}

// models: the names that pin a method, as far as they are known by then.
export function startCompare(models) {
  pinned = models;
  $("race").addEventListener("submit", (event) => { event.preventDefault(); compare(); });
  $("halt").addEventListener("click", () => abort?.abort());
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") abort?.abort(); });
  question.addEventListener("input", () => grow(question));
}
