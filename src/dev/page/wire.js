// The wire: every frame both ways, what the link did, and a frame in full.

import { $, el, announce, seconds, size } from "./dom.js";
import { frame, on } from "./feed.js";

const MAX_ROWS = 2000;
const CHATTER = new Set(["inbound_ack", "outbound_result"]);

const asked = new Map();
let wanted = "";
let chosen = null;

export function start() {
  on("batch", ({ frames, happenings }) => {
    const links = happenings.filter((what) => what.k === "link");
    const both = [...frames.map((one) => [one.t, frameRow(one)]), ...links.map((one) => [one.t, linkRow(one)])];
    append(both.sort(([a], [b]) => a - b).map(([, row]) => row));
  });
  $("filter").addEventListener("input", sieve);
  $("chatter").checked = true;
  $("chatter").addEventListener("change", sieve);
  $("clear").addEventListener("click", () => {
    $("frames").replaceChildren();
    announce("The list of frames is empty");
  });
  $("frames").addEventListener("keydown", keys);
  $("frames").addEventListener("click", (event) => {
    const row = event.target.closest("[role=option]");
    if (row) select(row, true);
  });
  $("detail-close").addEventListener("click", close);
}

function append(rows) {
  const list = $("frames");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
  for (const row of rows) row.hidden = !fits(row);
  list.append(...rows);
  while (list.childElementCount > MAX_ROWS) list.firstChild.remove();
  if (atEnd) list.scrollTop = list.scrollHeight;
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
  let took = "";
  if (shown.type === "outbound" && shown.request) {
    asked.set(shown.request, shown.t);
    if (asked.size > MAX_ROWS) asked.delete(asked.keys().next().value);
  } else if (shown.request && asked.has(shown.request)) {
    took = `${((shown.t - asked.get(shown.request)) / 1000).toFixed(1)} ms`;
    asked.delete(shown.request);
  }
  const toRelay = shown.to === "relay";
  const kind = shown.type || "no frame";
  const title = shown.op ? `${kind} ${shown.op}` : kind;
  const bad = shown.ok === false || !shown.type;
  return el("div", {
    role: "option", class: `row ${toRelay ? "to-relay" : "to-connector"} ${bad ? "bad" : ""}`, "aria-selected": "false",
    data: { n: String(shown.n), type: kind, hay: `${title} ${shown.text}`.toLowerCase() },
  },
  el("span", { class: "at" }, seconds(shown.t)),
  el("span", { class: "way", role: "img", "aria-label": toRelay ? "to the relay" : "to the connector" }, toRelay ? "→" : "←"),
  el("span", { class: "what" }, el("b", {}, shown.op ?? kind), " ", el("span", {}, String(summary(shown)).slice(0, 200))),
  el("span", { class: "extent" }, took || size(shown.bytes)));
}

function linkRow(what) {
  const said = {
    dial: () => `dial answered ${what.status ?? "by nothing"}, token ${what.token}`,
    hello: () => `hello as ${what.platform}`,
    close: () => `closed${what.code ? ` with ${what.code} ${what.reason}` : ""} by ${what.by}`,
  }[what.what]?.() ?? what.what;
  return el("div", {
    role: "option", class: "row link", "aria-selected": "false",
    data: { type: "link", hay: `link ${said}`.toLowerCase(), json: JSON.stringify(what) },
  },
  el("span", { class: "at" }, seconds(what.t)), el("span", { class: "way", "aria-hidden": "true" }, "·"),
  el("span", { class: "what" }, el("b", {}, "link"), " ", said), el("span", { class: "extent" }));
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
  }
}

async function select(row, open) {
  chosen?.setAttribute("aria-selected", "false");
  chosen = row;
  row.setAttribute("aria-selected", "true");
  row.id = `frame-${row.dataset.n ?? "link"}`;
  $("frames").setAttribute("aria-activedescendant", row.id);
  if (!open) return;
  let text = row.dataset.json;
  if (!text) {
    try {
      text = (await frame(row.dataset.n)).text;
    } catch (error) {
      text = error.message;
    }
  }
  const json = parse(text);
  $("detail-title").textContent = row.dataset.n ? `frame ${row.dataset.n}: ${row.dataset.type}` : "link";
  $("detail-text").textContent = json === null ? text : JSON.stringify(json, null, 2);
  $("detail").hidden = false;
}

function close() {
  $("detail").hidden = true;
  $("frames").focus();
}
