// The clusters drawn in two dimensions, and where the last prompt fell.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = 30;
// A method is a shape as well as a colour.
const SHAPES = [
  "M 1 0 A 1 1 0 1 1 -1 0 A 1 1 0 1 1 1 0",
  "M -.9 -.9 H .9 V .9 H -.9 Z",
  "M 0 -1.25 L 1.25 0 L 0 1.25 L -1.25 0 Z",
  "M 0 -1.3 L 1.25 .85 H -1.25 Z",
  "M -.55 -1.05 H .55 L 1.15 0 L .55 1.05 H -.55 L -1.15 0 Z",
  "M 0 1.3 L 1.25 -.85 H -1.25 Z",
];

export function shape(tag, attributes, title = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (title) made.append(Object.assign(document.createElementNS(SVG, "title"), { textContent: title }));
  return made;
}

export function marker(method, x, y, radius, title) {
  const d = SHAPES[method % SHAPES.length];
  const transform = `translate(${x} ${y}) scale(${radius})`;
  return shape("path", { d, transform, class: `method-${method % SHAPES.length}` }, title);
}

// A method's marker by itself, for tables.
export function sign(method) {
  const drawn = shape("svg", { viewBox: "-1.4 -1.4 2.8 2.8", "aria-hidden": "true" });
  drawn.append(marker(method, 0, 0, 1));
  return drawn;
}

// clusters: [{ point: [x, y], method: index, title, speed }]; prompt: { point, cluster } or null.
// label says in words what is to be seen.
export function map(width, clusters, prompt, label) {
  const height = Math.round(Math.min(420, width * 0.75));
  const radius = width < 500 ? 10 : 13;
  const place = placement([...clusters.map(({ point }) => point), ...(prompt ? [prompt.point] : [])], width, height);
  const drawn = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  if (prompt) {
    const [[x1, y1], [x2, y2]] = [prompt.point, clusters[prompt.cluster].point].map(place);
    drawn.append(shape("line", { x1, y1, x2, y2, class: "way" }));
  }
  for (const { point, speed } of clusters) {
    const [x, y] = place(point);
    // towards the middle, where there is room
    const right = x < width / 2, away = radius + 5;
    const words = shape("text", { x: right ? x + away : x - away, y, class: right ? "speed" : "speed left" });
    words.textContent = speed;
    drawn.append(words);
  }
  clusters.forEach(({ point, method, title }, cluster) => {
    const [x, y] = place(point);
    const number = shape("text", { x, y, class: "number", "pointer-events": "none" });
    number.textContent = cluster;
    drawn.append(marker(method, x, y, radius, title), number);
  });
  if (prompt) {
    const [x, y] = place(prompt.point);
    const cross = `M ${x - 7} ${y - 7} l 14 14 m 0 -14 l -14 14`;
    // on the side away from the centroid, clear of the line to it
    const away = y < place(clusters[prompt.cluster].point)[1] ? -18 : 18;
    const words = shape("text", { x: Math.min(width - 40, Math.max(40, x)), y: y + away, class: "here" });
    words.textContent = "last prompt";
    drawn.append(shape("path", { d: cross, class: "prompt" }, "The last prompt"), words);
  }
  return drawn;
}

// One scale for both directions, so that distances on the picture are distances on the plane.
function placement(points, width, height) {
  const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = Math.min(
    (width - 2 * MARGIN) / (right - left || 1),
    (height - 2 * MARGIN) / (high - low || 1),
  );
  return ([x, y]) => [
    width / 2 + (x - (left + right) / 2) * scale,
    height / 2 - (y - (low + high) / 2) * scale,
  ];
}
