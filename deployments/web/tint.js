// Which of a text was drafted and accepted.

import { element } from "./dom.js";

// A function (parent, start, end) that appends this part of the text with what was drafted marked.
// runs: [text, drafted] one after another; they may be longer than the text, or not there yet.
export function tinted(text, runs) {
  const stops = [];
  let length = 0;
  for (const [said, drafted] of runs) stops.push([length += said.length, drafted]);
  return (parent, start, end) => {
    let run = stops.findIndex(([stop]) => stop > start);
    while (start < end) {
      const [stop, drafted] = stops[run++] ?? [end, false];
      const piece = text.slice(start, Math.min(stop, end));
      parent.append(drafted ? element("span", "drafted", piece) : piece);
      start += piece.length;
    }
  };
}
