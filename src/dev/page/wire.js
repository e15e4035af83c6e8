// The wire: every frame or call, which belong together, what the link did, and one of them in full.

import { $, el, announce, size, timeOf } from "./dom.js";
import { on, whole } from "./feed.js";
import { coloured } from "./json.js";

const MAX_ROWS = 2000;
// How long the button says that it copied.
const COPIED_MS = 1500;

// What is shown beside the rows of the server.
const OTHERS = { link: linkRow, handed: handedRow };

// The rows of each id, in order. One that was sent again has several.
const pairs = new Map();
// Rows by their number.
const numbered = new Map();
let wanted = "";
// How the server calls what is shown here.
let words = { unit: "row", empty: "", minor: { types: [] } };
let chosen = null;
let copied = "";

export function start() {
  on("setup", ({ wire }) => {
    if (words.title) return;
    words = wire;
    $("tab-wire").textContent = document.querySelector(".views [data-view=wire]").textContent = wire.title;
    $("filter").placeholder = `Filter ${wire.unit}s`;
    $("minor-label").textContent = wire.minor.label;
    $("minor").checked = wire.minor.shown;
    empty();
  });
  on("batch", ({ rows, happenings }) => {
    const others = happenings.filter((what) => what.k in OTHERS);
    const all = [...rows.map((one) => [one.t, serverRow(one)]), ...others.map((one) => [one.t, OTHERS[one.k](one)])];
    append(all.sort(([a], [b]) => a - b).map(([, row]) => row));
  });
  $("filter").addEventListener("input", sieve);
  $("minor").addEventListener("change", sieve);
  $("clear").addEventListener("click", () => {
    for (const row of [...$("frames").children]) drop(row);
    empty();
    announce("The list is empty");
  });
  $("frames").addEventListener("keydown", keys);
  $("frames").addEventListener("click", (event) => {
    const row = event.target.closest("[role=option]");
    if (row) select(row, true);
  });
  $("detail-close").addEventListener("click", close);
  $("detail-copy").addEventListener("click", copy);
  $("detail-pair").addEventListener("click", other);
}

function append(rows) {
  const list = $("frames");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
  for (const row of rows) {
    row.hidden = !fits(row);
    const known = row.dataset.n && numbered.get(row.dataset.n);
    if (row.dataset.n) numbered.set(row.dataset.n, row);
    if (!known) list.append(row);
    else known.replaceWith(row);
    if (known && known === chosen) select(row, !$("detail").hidden);
  }
  while (list.childElementCount > MAX_ROWS) drop(list.firstChild);
  empty();
  if (atEnd) list.scrollTop = list.scrollHeight;
}

function drop(row) {
  row.remove();
  numbered.delete(row.dataset.n);
  const rows = pairs.get(row.dataset.pair)?.filter((other) => other !== row) ?? [];
  if (rows.length > 0) pairs.set(row.dataset.pair, rows);
  else pairs.delete(row.dataset.pair);
}

/** Says why the list is empty. */
function empty() {
  const list = $("frames");
  $("frames-none").hidden = list.querySelector(".row:not([hidden])") !== null;
  $("frames-none").textContent = list.childElementCount > 0
    ? `No ${words.unit} matches the filter.`
    : words.empty;
}

/** Links a request and its result; both show how long it took. */
function pair(row, shown) {
  const { pair: key, asks, t } = shown;
  if (!key) return;
  const rows = pairs.get(key) ?? [];
  Object.assign(row.dataset, { pair: key, asks: String(asks), t: String(t) });
  pairs.set(key, [...rows, row]);
  const asked = rows.findLast((one) => one.dataset.asks === "true");
  if (asks || !asked) return;
  const took = milliseconds((t - Number(asked.dataset.t)) / 1000);
  for (const one of [asked, row]) {
    one.dataset.took = took;
    one.lastChild.title = one.lastChild.textContent;
    one.lastChild.textContent = took;
  }
  if (asked === chosen) {
    row.classList.add("paired");
    showPair(asked);
  }
}

/** The rows that answer this one, or that it answers. */
function partners(row) {
  return (pairs.get(row?.dataset.pair) ?? []).filter((one) => one.dataset.asks !== row.dataset.asks);
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const milliseconds = (time) => `${time.toFixed(1)} ms`;

function serverRow(shown) {
  const toRelay = shown.to === "relay";
  const title = shown.title ?? shown.type;
  const row = el("div", {
    role: "option", class: `row ${toRelay ? "to-relay" : "to-server"} ${shown.bad ? "bad" : ""}`, "aria-selected": "false",
    data: { n: String(shown.n), type: shown.type, hay: `${shown.type} ${title} ${shown.about ?? ""} ${shown.text}`.toLowerCase() },
  },
  el("span", { class: "at" }, timeOf(shown.t, true)),
  el("span", { class: "way", role: "img", "aria-label": `to the ${shown.to}` }, shown.pending ? "…" : toRelay ? "→" : "←"),
  el("span", { class: "what" }, el("b", {}, title), " ", el("span", {}, (shown.about ?? "").slice(0, 200))),
  el("span", { class: "extent" }, Number.isFinite(shown.took) ? milliseconds(shown.took) : shown.bytes ? size(shown.bytes) : ""));
  pair(row, shown);
  return row;
}

function linkRow(what) {
  const said = {
    dial: () => `dial answered ${what.status ?? "by nothing"}, token ${what.token}`,
    hello: () => `hello as ${what.platform}`,
    close: () => `closed${what.code ? ` with ${what.code} ${what.reason}` : ""} by ${what.by}`,
  }[what.what]?.() ?? what.what;
  return otherRow("link", said, what);
}

/** Something that was handed to an agent past the connector. */
function handedRow(what) {
  const title = what.route === "deliver" ? what.kind : what.route;
  const again = what.is_duplicate ? "again: " : "";
  return otherRow("handed", `${again}${what.agent}@${what.session} ${what.text}`, what, title);
}

function otherRow(type, said, what, title = type) {
  return el("div", {
    role: "option", class: `row ${type}`, "aria-selected": "false",
    data: { type, hay: `${type} ${title} ${said}`.toLowerCase(), json: JSON.stringify(what) },
  },
  el("span", { class: "at" }, timeOf(what.t, true)), el("span", { class: "way", "aria-hidden": "true" }, "·"),
  el("span", { class: "what" }, el("b", {}, title), " ", said), el("span", { class: "extent" }));
}

function fits(row) {
  if (!$("minor").checked && words.minor.types.includes(row.dataset.type)) return false;
  return wanted.split(/\s+/).every((word) => row.dataset.hay.includes(word));
}

function sieve() {
  wanted = $("filter").value.trim().toLowerCase();
  let left = 0;
  for (const row of $("frames").children) {
    row.hidden = !fits(row);
    if (!row.hidden) left += 1;
  }
  empty();
  announce(`${left} ${words.unit}s`);
}

function keys(event) {
  const rows = [...$("frames").children].filter((row) => !row.hidden);
  if (rows.length === 0) return;
  const at = rows.indexOf(chosen);
  const steps = { ArrowDown: at + 1, ArrowUp: at < 0 ? rows.length - 1 : at - 1, Home: 0, End: rows.length - 1 };
  if (event.key in steps) {
    event.preventDefault();
    const row = rows[Math.max(0, Math.min(rows.length - 1, steps[event.key]))];
    row.scrollIntoView({ block: "nearest" });
    select(row, !$("detail").hidden);
  } else if (event.key === "Enter" && chosen) {
    event.preventDefault();
    select(chosen, true);
  } else if (event.key === "Escape") {
    close();
  } else if (event.key === "c" && chosen && !event.ctrlKey && !event.metaKey) {
    copy();
  } else if (event.key === "p" && chosen && !event.ctrlKey && !event.metaKey) {
    other();
  }
}

async function select(row, open) {
  for (const one of $("frames").querySelectorAll(".paired")) one.classList.remove("paired");
  chosen?.setAttribute("aria-selected", "false");
  chosen = row;
  row.setAttribute("aria-selected", "true");
  row.id = `frame-${row.dataset.n ?? "other"}`;
  $("frames").setAttribute("aria-activedescendant", row.id);
  for (const one of partners(row)) one.classList.add("paired");
  if (!open) return;
  const text = await full(row);
  // Somebody may have chosen another one meanwhile.
  if (row !== chosen) return;
  copied = text;
  const json = parse(text);
  $("detail-title").textContent = row.dataset.n ? `${words.unit} ${row.dataset.n}: ${row.dataset.type}` : row.dataset.type;
  $("detail-text").replaceChildren(...(json === null ? [text] : coloured(JSON.stringify(json, null, 2))));
  $("detail-text").scrollTop = 0;
  showPair(row);
  $("detail").hidden = false;
}

async function full(row) {
  if (row.dataset.json) return row.dataset.json;
  try {
    return (await whole(row.dataset.n)).text;
  } catch (error) {
    return error.message;
  }
}

function showPair(row) {
  const [first] = partners(row);
  $("detail-pair").hidden = !first;
  if (!first) return;
  const what = row.dataset.asks === "true" ? "answered by" : "answers";
  $("detail-pair").textContent = `${what} frame ${first.dataset.n}, ${row.dataset.took ?? first.dataset.took ?? ""}`;
}

/** Goes to the frame that belongs to the chosen one. */
function other() {
  const [first] = partners(chosen);
  if (!first) {
    announce("Nothing else belongs to this");
    return;
  }
  first.hidden = false;
  first.scrollIntoView({ block: "nearest" });
  select(first, true);
}

async function copy() {
  const text = $("detail").hidden ? await full(chosen) : copied;
  try {
    await navigator.clipboard.writeText(text);
    $("detail-copy").textContent = "Copied";
    announce("Copied");
  } catch {
    $("detail-copy").textContent = "Not copied";
    announce("The browser does not allow copying");
  }
  setTimeout(() => { $("detail-copy").textContent = "Copy"; }, COPIED_MS);
}

function close() {
  $("detail").hidden = true;
  $("frames").focus();
}
