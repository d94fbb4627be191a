// The routing table in force: a picture of the clusters, and figures.

import { explain, routing } from "./api.js";
import { $, element } from "./dom.js";
import { map, sign } from "./map.js";

const REFRESH_MS = 2000;
let last = null, watching = null;

// Remember where a prompt went. speculative: the statistics of the answer it got.
export function fell(messages, speculative) {
  last = { messages, speculative, spot: null, fit: null };
}

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

function named(table, method) {
  const cell = element("td", "name");
  cell.append(sign(table.methods.indexOf(method)), method);
  return cell;
}

function clusterRow(table, { cluster, favourite, acceptance, tokens_per_s, offline_steps, live_steps }, steps) {
  const live = steps[favourite] && acceptance[favourite] && acceptance[favourite] / steps[favourite];
  const made = row([
    String(cluster), named(table, favourite), number(tokens_per_s[favourite], 0), number(live, 0),
    number(acceptance[favourite], 2),
    number(offline_steps[favourite] + live_steps[favourite], 0),
  ]);
  if (last?.spot?.cluster === cluster) made.setAttribute("aria-current", "true");
  return made;
}

function methodRow(table, method, steps) {
  const hosts = table.loads.filter((load) => load.healthy && load.methods.includes(method));
  const favoured = table.assignment.filter((favourite) => favourite === method).length;
  return row([
    named(table, method), String(favoured), String(hosts.length),
    number(steps[method] && steps[method] * 1e3, 1),
  ]);
}

function draw(table) {
  const steps = stepsNow(table);
  const { points, explained } = table.projection;
  const clusters = table.evidence.map(({ cluster, favourite, tokens_per_s }) => ({
    point: points[cluster],
    method: table.methods.indexOf(favourite),
    title: `Cluster ${cluster}: ${favourite}, ${number(tokens_per_s[favourite], 0)} tokens/s expected`,
  }));
  const spot = last?.spot ?? null;
  const label = `${table.clusters} clusters on a plane${spot ? `; the last prompt fell into cluster ${spot.cluster}` : ""}. The table below has each one's method and speed.`;
  $("map").replaceChildren(map($("map").clientWidth, clusters, spot, label));
  $("caption").textContent = `The clusters' centroids on their two main directions (PCA), which hold ${Math.round(100 * explained)}% of what sets them apart. Table version ${table.version} of fit ${table.fit_id}.`;
  fill($("clusters"), ["Cluster", "Method", "Expected tokens/s", "Live tokens/s", "Tokens/step", "Steps seen"],
    table.evidence.map((one) => clusterRow(table, one, steps)));
  fill($("methods"), ["Method", "Clusters", "Replicas", "Step now, ms"],
    table.methods.map((method) => methodRow(table, method, steps)));
}

function place() {
  if (!last) return "Ask something, and this page shows where it falls.";
  const { method } = last.speculative;
  if (!last.spot) return `Your last prompt was answered by ${method} without a cluster.`;
  return `Your last prompt fell into cluster ${last.spot.cluster} and was answered by ${method}.`;
}

async function refresh() {
  try {
    const table = await routing();
    if (last && last.fit !== table.fit_id) {
      const { point, cluster } = await explain(last.messages);
      last.fit = table.fit_id;
      last.spot = point && { point, cluster };
    }
    draw(table);
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
