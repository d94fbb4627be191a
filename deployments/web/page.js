// The page's three views, and what they need to know first.

import { models } from "./api.js";
import { startChat } from "./chat.js";
import { startCompare } from "./compare.js";
import { $, element, grow, say } from "./dom.js";
import { showRouting } from "./routing.js";

const FIELDS = { chat: "prompt", compare: "question" };

function show() {
  const view = ["compare", "routing"].find((name) => location.hash === `#${name}`) ?? "chat";
  for (const name of ["chat", "compare", "routing"]) $(name).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showRouting(view === "routing");
  const field = $(FIELDS[view]);
  if (field) grow(field);
  // On a phone the keyboard would cover what there is to read first.
  if (matchMedia("(min-width: 30rem)").matches) field?.focus();
}

async function start() {
  const pinned = [];
  startChat();
  startCompare(pinned);
  window.addEventListener("hashchange", show);
  show();
  try {
    const [bundle, ...others] = await models();
    $("model").append(new Option("best for each prompt", bundle.id));
    // The encoder is listed too, for embeddings only.
    for (const { id, parent } of others.filter((model) => model.id.includes(":"))) {
      $("model").append(new Option(`${parent ? "adapter" : "only"} ${id.split(":")[1]}`, id));
      if (!parent) pinned.push(id);
    }
    $("note").hidden = !["demo", "smollm2"].includes(bundle.id);
  } catch (error) {
    $("log").append(element("div", "facts error", error.message));
    say(`Error: ${error.message}`);
  }
}

start();
