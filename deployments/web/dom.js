// What every part of the page makes and says.

export const $ = (id) => document.getElementById(id);

// Text always becomes a text node: nothing that a model says is read as HTML.
export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

// Few digits, and yet no slow machine's 0.
export function speed(perSecond) {
  return perSecond.toFixed(perSecond < 10 ? 1 : 0);
}

// To screen readers; nobody sees it.
export function say(message) {
  $("status").textContent = message;
}

// While it is changed, a scrolled area stays at its end if it was there.
export function following(area, change) {
  const atEnd = area.scrollHeight - area.scrollTop - area.clientHeight < 40;
  change();
  if (atEnd) area.scrollTop = area.scrollHeight;
}

export function grow(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}
