// The marks of methods and of heads' versions, in tables and charts.

const SVG = "http://www.w3.org/2000/svg";
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
