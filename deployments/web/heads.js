// What the versions of trained heads bring: tokens per target step, while the page is open.

import { marker, shape } from "./marks.js";

const STEPS = 200;
const HEIGHT = 220, LEFT = 40, RIGHT = 90, EDGE = 20;
const replicas = new Map(); // what each replica has counted since its start
const versions = new Map();

// Take the replicas' counts. Returns by version { name, answers, steps, tokens, points }, each point
// the tokens per step of at least STEPS steps; the first one is of all before.
export function followHeads(loads, time = Date.now()) {
  for (const { replica, heads } of loads) {
    const before = replicas.get(replica) ?? {};
    const now = {};
    for (const { part, version, answers, steps, tokens } of heads) {
      const name = `${part} ${version}`, last = before[name] ?? { answers: 0, steps: 0, tokens: 0 };
      now[name] = { answers, steps, tokens };
      const one = versions.get(name)
        ?? { name, answers: 0, steps: 0, tokens: 0, points: [], open: { steps: 0, tokens: 0 } };
      versions.set(name, one);
      one.answers += answers - last.answers;
      for (const sums of [one, one.open]) {
        sums.steps += steps - last.steps;
        sums.tokens += tokens - last.tokens;
      }
    }
    replicas.set(replica, now);
  }
  const all = [...versions.values()].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  for (const one of all) {
    if (one.open.steps >= STEPS) {
      one.points.push({ time, rate: one.open.tokens / one.open.steps });
      one.open = { steps: 0, tokens: 0 };
    }
  }
  return all;
}

// The points of each version over time. label says in words what is to be seen.
export function headChart(width, heads, label) {
  const points = heads.flatMap((one) => one.points);
  const [times, rates] = ["time", "rate"].map((field) => points.map((point) => point[field]));
  const [first, last, low, high] = [Math.min(...times), Math.max(...times), Math.min(...rates), Math.max(...rates)];
  const x = (time) => LEFT + (width - LEFT - RIGHT) * (last > first ? (time - first) / (last - first) : 0.5);
  const y = (rate) => EDGE + (HEIGHT - 2 * EDGE) * (high > low ? (high - rate) / (high - low) : 0.5);
  const drawn = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const rate of new Set([low, high])) {
    const words = shape("text", { x: LEFT - 12, y: y(rate), class: "left" });
    words.textContent = rate.toFixed(2);
    drawn.append(words);
  }
  heads.forEach(({ name, points: own }, index) => {
    if (!own.length) return;
    const way = own.map(({ time, rate }) => `${x(time)},${y(rate)}`).join(" ");
    drawn.append(shape("polyline", { points: way, class: "way" }));
    for (const { time, rate } of own) {
      const title = `${name}: ${rate.toFixed(2)} tokens per step at ${new Date(time).toLocaleTimeString()}`;
      drawn.append(marker(index, x(time), y(rate), 6, title));
    }
    const words = shape("text", { x: x(own.at(-1).time) + 12, y: y(own.at(-1).rate), class: "name" });
    words.textContent = name;
    drawn.append(words);
  });
  return drawn;
}
