// Completes a command at the start of a message. Which there are, the server says.

import { $, el } from "./dom.js";
import { conversation } from "./conversation.js";

let matches = [];
// The command that the arrow keys are on, if any.
let at = -1;

export function start() {
  $("input").addEventListener("input", update);
  $("input").addEventListener("blur", close);
  // A click must not take the focus from the text first.
  $("commands").addEventListener("mousedown", (event) => event.preventDefault());
  $("commands").addEventListener("click", (event) => {
    const row = event.target.closest("[role=option]");
    if (row) complete(matches[Number(row.dataset.index)]);
  });
}

/** Takes a key; returns whether it was for the list. */
export function takeKey(event) {
  if (matches.length === 0 || event.isComposing) return false;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    at = at < 0 && step < 0 ? matches.length - 1 : (at + step + matches.length) % matches.length;
    draw();
  } else if (event.key === "Tab" && !event.shiftKey) {
    complete(matches[Math.max(at, 0)]);
  } else if (event.key === "Enter" && at >= 0) {
    complete(matches[at]);
  } else if (event.key === "Escape") {
    close();
  } else {
    return false;
  }
  event.preventDefault();
  return true;
}

/** Hides the list. */
export function close() {
  matches = [];
  draw();
}

function update() {
  const typed = /^\/([\w-]*)$/.exec($("input").value);
  matches = typed ? conversation.commands.filter(({ name }) => name.startsWith(typed[1].toLowerCase())) : [];
  at = -1;
  draw();
}

function complete({ name }) {
  $("input").value = `/${name} `;
  close();
}

function draw() {
  if (matches.length === 0) at = -1;
  const list = $("commands");
  list.hidden = matches.length === 0;
  list.replaceChildren(...matches.map(({ name, what }, index) => el("li", {
    role: "option", id: `command-${index}`, "aria-selected": String(index === at), data: { index: String(index) },
  }, el("code", {}, `/${name}`), " ", el("span", {}, what))));
  if (at >= 0) $("input").setAttribute("aria-activedescendant", `command-${at}`);
  else $("input").removeAttribute("aria-activedescendant");
  list.children[at]?.scrollIntoView({ block: "nearest" });
}
