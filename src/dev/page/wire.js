// The wire: every frame both ways, which belong together, what the link did, and a frame in full.

import { $, el, announce, size, timeOf } from "./dom.js";
import { frame, on } from "./feed.js";
import { coloured } from "./json.js";

const MAX_ROWS = 2000;
// How long the button says that it copied.
const COPIED_MS = 1500;
const CHATTER = new Set(["inbound_ack", "outbound_result"]);

// What a frame asks or answers, and by which id the two are known.
const SIDES = {
  outbound: { asks: true, by: "request" },
  outbound_result: { asks: false, by: "request" },
  inbound: { asks: true, by: "buffer" },
  passthrough_forward: { asks: true, by: "buffer" },
  inbound_ack: { asks: false, by: "buffer" },
};

// What is shown beside the frames.
const OTHERS = { link: linkRow, handed: handedRow };

// The rows of each id, in order. One that was sent again has several.
const pairs = new Map();
let wanted = "";
let chosen = null;
let copied = "";

export function start() {
  on("batch", ({ frames, happenings }) => {
    const others = happenings.filter((what) => what.k in OTHERS);
    const both = [...frames.map((one) => [one.t, frameRow(one)]), ...others.map((one) => [one.t, OTHERS[one.k](one)])];
    append(both.sort(([a], [b]) => a - b).map(([, row]) => row));
  });
  $("filter").addEventListener("input", sieve);
  $("chatter").checked = true;
  $("chatter").addEventListener("change", sieve);
  $("clear").addEventListener("click", () => {
    for (const row of [...$("frames").children]) drop(row);
    empty();
    announce("The list of frames is empty");
  });
  $("frames").addEventListener("keydown", keys);
  $("frames").addEventListener("click", (event) => {
    const row = event.target.closest("[role=option]");
    if (row) select(row, true);
  });
  $("detail-close").addEventListener("click", close);
  $("detail-copy").addEventListener("click", copy);
  $("detail-pair").addEventListener("click", other);
  empty();
}

function append(rows) {
  const list = $("frames");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
  for (const row of rows) row.hidden = !fits(row);
  list.append(...rows);
  while (list.childElementCount > MAX_ROWS) drop(list.firstChild);
  empty();
  if (atEnd) list.scrollTop = list.scrollHeight;
}

function drop(row) {
  row.remove();
  const rows = pairs.get(row.dataset.pair)?.filter((other) => other !== row) ?? [];
  if (rows.length > 0) pairs.set(row.dataset.pair, rows);
  else pairs.delete(row.dataset.pair);
}

/** Says why the list is empty. */
function empty() {
  const list = $("frames");
  $("frames-none").hidden = list.querySelector(".row:not([hidden])") !== null;
  $("frames-none").textContent = list.childElementCount > 0
    ? "No frame matches the filter."
    : "No frames yet. They show as soon as a relay dials.";
}

/** Links a request and its result; both show how long it took. */
function pair(row, shown) {
  const side = SIDES[shown.type];
  const id = side && shown[side.by];
  if (!id) return;
  const key = `${side.by} ${id}`;
  const rows = pairs.get(key) ?? [];
  Object.assign(row.dataset, { pair: key, asks: String(side.asks), t: String(shown.t) });
  pairs.set(key, [...rows, row]);
  const asked = rows.findLast((one) => one.dataset.asks === "true");
  if (side.asks || !asked) return;
  const took = `${((shown.t - Number(asked.dataset.t)) / 1000).toFixed(1)} ms`;
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

function summary(shown) {
  const json = shown.whole ? parse(shown.text) : null;
  switch (shown.type) {
    case "inbound": return json?.event?.text ?? shown.text;
    case "outbound": return json?.action?.content ?? json?.action?.emoji ?? json?.action?.chat_id ?? "";
    case "outbound_result": return json?.result?.error ?? json?.result?.message_id ?? "";
    case "inbound_ack": return shown.buffer ?? "";
    case "hello": return json?.platform ?? "";
    case "descriptor": return json?.descriptor?.platform ?? "";
    case "interrupt_inbound": return json?.session_key ?? "";
    default: return shown.type ? "" : shown.text;
  }
}

function frameRow(shown) {
  const toRelay = shown.to === "relay";
  const kind = shown.type || "no frame";
  const title = shown.op ? `${kind} ${shown.op}` : kind;
  const bad = shown.ok === false || !shown.type;
  const row = el("div", {
    role: "option", class: `row ${toRelay ? "to-relay" : "to-connector"} ${bad ? "bad" : ""}`, "aria-selected": "false",
    data: { n: String(shown.n), type: kind, hay: `${title} ${shown.text}`.toLowerCase() },
  },
  el("span", { class: "at" }, timeOf(shown.t, true)),
  el("span", { class: "way", role: "img", "aria-label": toRelay ? "to the relay" : "to the connector" }, toRelay ? "→" : "←"),
  el("span", { class: "what" }, el("b", {}, shown.op ?? kind), " ", el("span", {}, String(summary(shown)).slice(0, 200))),
  el("span", { class: "extent" }, size(shown.bytes)));
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
  if (!$("chatter").checked && CHATTER.has(row.dataset.type)) return false;
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
  announce(`${left} frames`);
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
  const text = await whole(row);
  // Somebody may have chosen another one meanwhile.
  if (row !== chosen) return;
  copied = text;
  const json = parse(text);
  $("detail-title").textContent = row.dataset.n ? `frame ${row.dataset.n}: ${row.dataset.type}` : row.dataset.type;
  $("detail-text").replaceChildren(...(json === null ? [text] : coloured(JSON.stringify(json, null, 2))));
  $("detail-text").scrollTop = 0;
  showPair(row);
  $("detail").hidden = false;
}

async function whole(row) {
  if (row.dataset.json) return row.dataset.json;
  try {
    return (await frame(row.dataset.n)).text;
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
    announce("No other frame belongs to this one");
    return;
  }
  first.hidden = false;
  first.scrollIntoView({ block: "nearest" });
  select(first, true);
}

async function copy() {
  const text = $("detail").hidden ? await whole(chosen) : copied;
  try {
    await navigator.clipboard.writeText(text);
    $("detail-copy").textContent = "Copied";
    announce("The frame was copied");
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
