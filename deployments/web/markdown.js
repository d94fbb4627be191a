// Markdown as models write it, as DOM nodes: headings, lists, quotes, code, emphasis, links.
// No HTML is ever parsed. Positions in the source are kept, so that `write` can mark parts of it.

const FENCE = /^ {0,3}```/;
const HEADING = /^(#{1,6}) +(?=\S)/;
const ITEM = /^ *(?:[-*+]|(\d{1,9})[.)]) +(?=\S)/;
const QUOTE = /^ {0,3}> ?/;
const INDENTED = /^(?: {2,}|\t)\S/;
const SPAN = new RegExp([
  "`(?<code>[^`\\n]+)`",
  "\\*\\*(?<strong>(?=\\S).+?(?<=\\S))\\*\\*",
  "(?<![\\w*])\\*(?<em>(?=[^\\s*])[^*\\n]*?[^\\s*])\\*(?![\\w*])",
  "\\[(?<a>[^\\]\\n]+)\\]\\((?<href>https?:\\/\\/[^\\s)]+)\\)",
].join("|"), "d");

// write(parent, start, end) appends the source's characters from start to end.
export function markdown(source, write) {
  const lines = [];
  let at = 0;
  for (const text of source.split("\n")) {
    lines.push({ text, start: at, end: at + text.length });
    at += text.length + 1;
  }
  const page = document.createDocumentFragment();
  for (let i = 0; i < lines.length;) {
    const block = blockAt(lines, i);
    if (block.node) page.append(block.node(source, write));
    i = block.next;
  }
  return page;
}

function blockAt(lines, i) {
  const { text } = lines[i];
  if (!text.trim()) return { next: i + 1 };
  if (FENCE.test(text)) return fence(lines, i);
  if (HEADING.test(text)) return heading(lines, i);
  if (ITEM.test(text)) return list(lines, i);
  if (QUOTE.test(text)) return quote(lines, i);
  return paragraph(lines, i);
}

function fence(lines, i) {
  const close = lines.findIndex(({ text }, j) => j > i && FENCE.test(text));
  const next = close < 0 ? lines.length : close;
  const node = (_, write) => code(lines.slice(i + 1, next), write);
  return { node, next: next + 1 };
}

function heading(lines, i) {
  const { text, start, end } = lines[i];
  const [marks, hashes] = HEADING.exec(text);
  const node = (source, write) => {
    // the page's own headings come first
    const made = document.createElement(`h${Math.min(6, hashes.length + 2)}`);
    inline(made, source, start + marks.length, end, write);
    return made;
  };
  return { node, next: i + 1 };
}

function list(lines, i) {
  const number = ITEM.exec(lines[i].text)[1];
  const items = [];
  let next = i;
  for (; next < lines.length; next++) {
    const { text, start, end } = lines[next];
    const marker = ITEM.exec(text);
    if (marker && (marker[1] === undefined) === (number === undefined)) {
      items.push([start + marker[0].length, end]);
    } else if (!marker && INDENTED.test(text)) {
      items.at(-1)[1] = end;
    } else break;
  }
  const node = (source, write) => {
    const made = document.createElement(number === undefined ? "ul" : "ol");
    if (number !== undefined) made.start = Number(number);
    for (const [start, end] of items) {
      const item = document.createElement("li");
      inline(item, source, start, end, write);
      made.append(item);
    }
    return made;
  };
  return { node, next };
}

function quote(lines, i) {
  let next = i;
  while (next < lines.length && QUOTE.test(lines[next].text)) next++;
  const node = (source, write) => {
    const made = document.createElement("blockquote");
    for (const { text, start, end } of lines.slice(i, next)) {
      inline(made, source, start + QUOTE.exec(text)[0].length, end, write);
      made.append("\n");
    }
    return made;
  };
  return { node, next };
}

// Small models leave out the fence: what is indented like code is code.
function paragraph(lines, i) {
  let next = i + 1;
  const indented = () => lines.slice(i, next).some(({ text }) => INDENTED.test(text));
  while (next < lines.length && lines[next].text.trim()
    && (indented() || INDENTED.test(lines[next].text) || !blockStarts(lines[next].text))) next++;
  const block = lines.slice(i, next);
  const node = (source, write) => {
    if (indented()) return code(block, write);
    const made = document.createElement("p");
    inline(made, source, block[0].start, block.at(-1).end, write);
    return made;
  };
  return { node, next };
}

function blockStarts(text) {
  return [FENCE, HEADING, ITEM, QUOTE].some((pattern) => pattern.test(text));
}

function code(lines, write) {
  const block = document.createElement("pre");
  const inner = document.createElement("code");
  if (lines.length) write(inner, lines[0].start, lines.at(-1).end);
  block.append(inner);
  return block;
}

function inline(parent, source, start, end, write) {
  const found = SPAN.exec(source.slice(start, end));
  if (!found) return write(parent, start, end);
  const tag = ["code", "strong", "em", "a"].find((name) => found.groups[name] !== undefined);
  const [from, to] = found.indices.groups[tag].map((index) => start + index);
  const made = document.createElement(tag);
  if (tag === "a") {
    made.href = found.groups.href;
    made.rel = "noopener noreferrer nofollow";
    made.target = "_blank";
  }
  write(parent, start, start + found.index);
  if (tag === "code") write(made, from, to);
  else inline(made, source, from, to, write);
  parent.append(made);
  return inline(parent, source, start + found.index + found[0].length, end, write);
}
