// A conversation: ask, stop, ask again.

import { Answer } from "./answer.js";
import { $, element, grow, say } from "./dom.js";
import { fell } from "./routing.js";

const EXAMPLES = [
  ["Write an advertisement", "Write a short advertisement for soap from a tailor in Madrid. Use the words fresh, simple and true."],
  ["Document some code", "Add a docstring to this function.\ndef count_small(values):\n    count = 0\n    for x in values:\n        if x < 28:\n            count += 1\n    return count"],
  ["Solve a word problem", "Ivan collects 7 shells. He buys 5 more shells. Then he gives half of the shells away. How many shells does he have at the end?"],
  ["Turn text into a list", "Make a list of who has what.\nPaula bought 67 peaches. Anna bought 24 sandwiches. Zoe bought 18 tickets."],
];

const log = $("log"), prompt = $("prompt");
const again = element("button", "", "Answer again");
again.type = "button";
again.id = "again";
let messages = [], abort = null, last = null;

function working(on) {
  $("send").hidden = on;
  $("stop").hidden = !on;
  $("fresh").disabled = on;
  if (on) again.remove();
}

function addUser(text) {
  $("hint").hidden = true;
  const turn = element("article", "turn user");
  turn.setAttribute("aria-label", "You");
  turn.append(element("div", "text", text));
  log.append(turn);
}

function send() {
  const text = prompt.value.trim();
  if (!text || abort) return;
  prompt.value = "";
  grow(prompt);
  addUser(text);
  answer([...messages, { role: "user", content: text }]);
}

// A conversation alternates: an answer without text takes its question with it.
async function answer(question) {
  const shown = new Answer(log);
  last = { question, shown };
  log.append(shown.turn);
  log.scrollTop = log.scrollHeight;
  abort = new AbortController();
  working(true);
  say("Answering");
  const given = $("temperature").valueAsNumber;
  const temperature = Number.isNaN(given) ? null : given; // null: the model's default
  try {
    await shown.read({ model: $("model").value, messages: question, temperature }, abort.signal);
    say(`Answer: ${shown.body.innerText}`);
    fell(question, shown.usage.speculative);
  } catch (error) {
    if (error.name === "AbortError") {
      shown.note("You stopped this answer.");
      say("Stopped");
    } else {
      shown.note(error.message, "error");
      say(`Error: ${error.message}`);
      if (!shown.text && !prompt.value) prompt.value = question.at(-1).content;
    }
  } finally {
    messages = shown.text
      ? [...question, { role: "assistant", content: shown.text }]
      : question.slice(0, -1);
    abort = null;
    working(false);
    shown.facts.append(again);
    grow(prompt);
    log.scrollTop = log.scrollHeight;
    prompt.focus();
  }
}

function regenerate() {
  last.shown.turn.remove();
  if (prompt.value === last.question.at(-1).content) prompt.value = "";
  answer(last.question);
}

function fresh() {
  messages = [];
  log.querySelectorAll(".turn").forEach((turn) => turn.remove());
  $("hint").hidden = false;
  prompt.focus();
}

export function startChat() {
  for (const [title, text] of EXAMPLES) {
    const button = element("button");
    button.type = "button";
    button.append(element("b", "", title), element("span", "", text));
    button.addEventListener("click", () => { prompt.value = text; send(); });
    $("examples").append(button);
  }
  $("form").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  $("stop").addEventListener("click", () => abort?.abort());
  $("fresh").addEventListener("click", fresh);
  again.addEventListener("click", regenerate);
  prompt.addEventListener("input", () => grow(prompt));
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") abort?.abort(); });
}
