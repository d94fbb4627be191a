// The routing table in force, in figures.

import { explain, routing } from "./api.js";
import { $, element, speed } from "./dom.js";
import { followHeads, headChart } from "./heads.js";
import { sign } from "./marks.js";

const REFRESH_MS = 2000;
let last = null, watching = null;

// Remember where a prompt went. speculative: the statistics of the answer it got.
export function fell(messages, speculative) {
  last = { messages, speculative, cluster: -1, fit: null };
}

// Where it fell in this table: another ingress may have another one.
const clusterIn = (table) => (last?.fit === table.fit_id ? last.cluster : null);

const rate = (value) => (value == null ? "–" : speed(value));
const number = (value, digits) => (value == null ? "–" : value.toFixed(digits));

// Seconds per step by method, over the replicas that have measured it.
function stepsNow(table) {
  return Object.fromEntries(table.methods.map((method) => {
    const seen = table.loads.map((load) => load.recent_step_seconds[method]).filter((s) => s > 0);
    return [method, seen.length ? seen.reduce((a, b) => a + b) / seen.length : null];
  }));
}

function fill(table, head, rows) {
  const line = element("tr");
  line.append(...head.map((title) => {
    const cell = element("th", title === "Method" ? "name" : "", title);
    cell.scope = "col";
    return cell;
  }));
  const top = element("thead");
  top.append(line);
  const body = element("tbody");
  body.append(...rows);
  table.replaceChildren(top, body);
}

function row(cells) {
  const made = element("tr");
  made.append(...cells.map((cell) => (cell instanceof Node ? cell : element("td", "", cell))));
  return made;
}

// What a row is about, so that a screen reader says it with each of the row's figures.
function rowHead(...content) {
  const cell = element("th");
  cell.scope = "row";
  cell.append(...content);
  return cell;
}

function named(table, method) {
  const cell = element("td", "name");
  cell.append(sign(table.methods.indexOf(method)), method);
  return cell;
}

// Tokens/s of a cluster's method by its step time just now; null before it has answered.
function live({ favourites: { greedy: favourite }, acceptance }, steps) {
  return steps[favourite] && acceptance[favourite] && acceptance[favourite] / steps[favourite];
}

// The favourites above temperature 0: one name where the bands agree.
function sampled(table, { low, high }) {
  const cell = named(table, low);
  if (high !== low) cell.append(" to 0.7, ", sign(table.methods.indexOf(high)), `${high} above`);
  return cell;
}

function clusterRow(table, one, steps) {
  const { cluster, favourites, acceptance, tokens_per_s, offline_steps, live_steps } = one;
  const favourite = favourites.greedy;
  const made = row([
    rowHead(String(cluster)), named(table, favourite), sampled(table, favourites), rate(tokens_per_s[favourite]), rate(live(one, steps)),
    number(acceptance[favourite], 2),
    number(offline_steps[favourite] + live_steps[favourite], 0),
  ]);
  if (clusterIn(table) === cluster) made.setAttribute("aria-current", "true");
  return made;
}

function methodRow(table, method, steps) {
  const hosts = table.loads.filter((load) => load.healthy && load.methods.includes(method));
  const favoured = table.assignment.filter((favourites) => Object.values(favourites).includes(method)).length;
  return row([
    rowHead(sign(table.methods.indexOf(method)), method), String(favoured), String(hosts.length),
    number(steps[method] && steps[method] * 1e3, 1),
  ]);
}

function draw(table) {
  const steps = stepsNow(table);
  $("caption").textContent = `Table version ${table.version} of fit ${table.fit_id}.`;
  fill($("clusters"), ["Cluster", "Method", "When sampled", "Expected tokens/s", "Live tokens/s", "Tokens/step", "Steps seen"],
    table.evidence.map((one) => clusterRow(table, one, steps)));
  fill($("methods"), ["Method", "Clusters", "Replicas", "Step now, ms"],
    table.methods.map((method) => methodRow(table, method, steps)));
}

// Nothing to see where no head drafts, or drafters are not trained.
function drawHeads(loads) {
  const heads = followHeads(loads);
  $("heads").hidden = !heads.length;
  if (!heads.length) return;
  const said = heads.map(({ name, tokens, steps }) => `${name}: ${number(steps && tokens / steps, 2)}`);
  const any = heads.some(({ points }) => points.length);
  const label = `Tokens per step over time by version: ${said.join(", ")}. The table below has them.`;
  $("acceptance").replaceChildren(...(any ? [headChart($("acceptance").clientWidth, heads, label)] : []));
  fill($("versions"), ["Head", "Answers", "Tokens/step"], heads.map(({ name, answers, steps, tokens }, index) => row([
    rowHead(sign(index), name), String(answers), number(steps ? tokens / steps : null, 2),
  ])));
}

function place() {
  if (!last) return "Ask something, and this page shows where it falls.";
  const { method } = last.speculative;
  if (last.cluster < 0) return `Your last prompt was answered by ${method} without a cluster.`;
  return `Your last prompt fell into cluster ${last.cluster} and was answered by ${method}.`;
}

async function refresh() {
  try {
    const table = await routing();
    if (last && last.fit !== table.fit_id) {
      const { cluster, fit_id } = await explain(last.messages);
      Object.assign(last, { cluster, fit: fit_id });
    }
    draw(table);
    drawHeads(table.loads);
    $("fell").textContent = place();
    $("fell").className = "";
  } catch (error) {
    $("fell").textContent = error.message;
    $("fell").className = "error";
  }
}

// Kept up to date while it is in sight.
export async function showRouting(visible) {
  const mine = visible ? Symbol("watch") : null;
  watching = mine;
  while (mine && watching === mine) {
    if (!document.hidden) await refresh();
    await new Promise((resolve) => { setTimeout(resolve, REFRESH_MS); });
  }
}
