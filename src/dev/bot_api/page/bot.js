// The page of the fake Bot API: chats, a form to write as a person, and the bot's calls.

import { $, announce, el, size } from "./dom.js";
import { coloured } from "./json.js";

const MAX_ROWS = 1000;
const RETRY_MS = 3000;
const TAGS = {
  bold: "b", italic: "i", underline: "u", strikethrough: "s", code: "code", pre: "code",
  blockquote: "q", expandable_blockquote: "q", spoiler: "mark",
};
const REACTIONS = ["👍", "❤", "👀"];

const chats = new Map();
const calls = new Map();
let people = [];
let current = null;
let answered = null;
let chosen = null;

function connect() {
  const source = new EventSource("events");
  source.onopen = () => { $("gone").hidden = true; };
  source.onerror = () => {
    $("gone").hidden = false;
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
  };
  source.onmessage = (event) => take(JSON.parse(event.data));
}

function take(batch) {
  if (batch.setup) {
    people = batch.setup.people;
    $("bot").textContent = `@${batch.setup.bot.username}`;
    $("who").replaceChildren(...people.map((person) => el("option", { value: person.id }, person.name)));
  }
  for (const chat of batch.chats ?? []) chats.set(chat.id, chat);
  if (batch.chats) {
    if (current === null && chats.size > 0) choose([...chats.values()].find((chat) => chat.kind === "private")?.id ?? [...chats.keys()][0]);
    drawChats();
    if (batch.chats.some((chat) => chat.id === current)) drawTalk();
  }
  if (batch.status) drawStatus(batch.status);
  for (const call of batch.calls ?? []) drawCall(call);
}

function drawStatus(status) {
  const pill = $("link");
  const text = status.polled ? "bot polls" : status.calls > 0 ? "bot does not poll" : "no bot yet";
  if (pill.querySelector(".label").textContent !== text) announce(text);
  pill.dataset.state = status.polled ? "live" : "waiting";
  pill.querySelector(".label").textContent = text;
  $("pending").textContent = status.pending;
  $("offset").textContent = status.offset ?? "–";
  $("dropped").textContent = status.dropped;
  $("counted").textContent = status.calls;
}

function choose(id) {
  current = id;
  quote(null);
  const chat = chats.get(id);
  const isPrivate = chat.kind === "private";
  if (isPrivate) $("who").value = String(id);
  $("who").disabled = isPrivate;
  drawChats();
  drawTalk();
}

function drawChats() {
  $("chats").replaceChildren(...[...chats.values()].map((chat) => el("li", {},
    el("button", { class: "chat", type: "button", "aria-current": chat.id === current && "true", onclick: () => choose(chat.id) },
      el("span", { class: "sign", "aria-hidden": "true" }, chat.title.slice(0, 1)),
      el("span", { class: "name" }, chat.title, el("small", {}, `${chat.kind} ${chat.id}`))))));
}

function drawTalk() {
  const chat = chats.get(current);
  if (!chat) return;
  const log = $("log");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  $("place").textContent = chat.title;
  $("place-about").textContent = `${chat.kind}, id ${chat.id}; the bot is`;
  $("standing").value = chat.standing;
  const topics = [el("option", { value: 0 }, "General"), ...chat.topics.map((topic) => el("option", { value: topic.id }, topic.name))];
  const kept = $("topic").value;
  $("topic").replaceChildren(...topics);
  $("topic").value = chat.topics.some((topic) => String(topic.id) === kept) ? kept : "0";
  $("topic").hidden = $("topic-label").hidden = chat.topics.length === 0;
  log.replaceChildren(...chat.messages.map((message) => draw(chat, message)), ...chat.drafts.map((draft) => drawDraft(chat, draft)));
  $("typing").textContent = chat.action ? `${$("bot").textContent}: ${chat.action.replaceAll("_", " ")}` : "";
  $("typing").classList.toggle("on", Boolean(chat.action));
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function draw(chat, message) {
  if (message.service) return el("p", { class: "note" }, message.service);
  const topic = chat.topics.find((one) => one.id === message.thread);
  const date = new Date(message.date * 1000);
  const node = el("article", { class: `message ${message.bot ? "bot" : "person"}` },
    el("div", { class: "head" },
      el("b", {}, message.from ?? "?"),
      message.bot && el("span", { class: "tag" }, "bot"),
      topic && el("span", { class: "tag" }, topic.name),
      message.rich && el("span", { class: "tag" }, "rich"),
      el("time", { datetime: date.toISOString() }, date.toLocaleTimeString()),
      el("small", {}, `#${message.id}`),
      message.edited && el("span", { class: "edited" }, "edited")));
  if (message.reply) node.append(el("div", { class: "quote" }, `answers #${message.reply}`));
  if (message.file?.picture) node.append(el("img", { class: "picture", src: `media/${message.file.id}`, alt: message.file.name ?? "photo" }));
  else if (message.file) node.append(el("a", { class: "file", href: `media/${message.file.id}` }, `${message.file.kind} ${message.file.name ?? ""} ${size(message.file.bytes)}`));
  node.append(text(message.runs));
  for (const row of message.buttons) {
    node.append(el("div", { class: "buttons" }, ...row.map((button) => el("button", {
      class: `choice ${button.style ? `style-${button.style}` : ""}`, type: "button", disabled: button.data === null,
      onclick: () => act("press", { message: message.id, data: button.data }),
    }, button.text))));
  }
  const reactions = message.reactions.map((emoji) => el("span", { class: "reaction" }, emoji));
  const offers = message.bot ? REACTIONS.map((emoji) => el("button", {
    class: "quiet", type: "button", "aria-label": `React with ${emoji}`, onclick: () => act("react", { message: message.id, emoji }),
  }, emoji)) : [];
  node.append(el("div", { class: "buttons" }, ...reactions, ...offers,
    el("button", { class: "quiet", type: "button", onclick: () => quote(message.id) }, "Reply")));
  return node;
}

function drawDraft(chat, draft) {
  const node = el("article", { class: "message bot draft" },
    el("div", { class: "head" }, el("b", {}, $("bot").textContent), el("span", { class: "tag" }, "draft")),
    text(draft.runs));
  if (draft.can_stop) node.append(el("div", { class: "buttons" }, el("button", { class: "stop on", type: "button", onclick: () => act("stop", {}) }, "Stop")));
  return node;
}

/** Formatted text as nodes. */
function text(runs) {
  const box = el("div", { class: "text" });
  let block = null;
  for (const run of runs) {
    let node = document.createTextNode(run.text);
    for (const style of [...run.style].reverse()) {
      if (TAGS[style]) node = el(TAGS[style], {}, node);
    }
    if (run.url && /^https?:/.test(run.url)) node = el("a", { href: run.url, rel: "noreferrer noopener", target: "_blank" }, node);
    if (run.style.includes("pre")) {
      block = block ?? el("pre", {});
      block.append(node);
      if (!block.parentNode) box.append(block);
    } else {
      block = null;
      box.append(...(run.style.includes("code") ? [node] : lines(node)));
    }
  }
  return box;
}

/** A text node with its line breaks; other nodes stay as they are. */
function lines(node) {
  if (node.nodeType !== Node.TEXT_NODE) return [node];
  return node.data.split("\n").flatMap((line, index) => (index === 0 ? [line] : [el("br"), line]));
}

function quote(id) {
  answered = id;
  $("quote").hidden = id === null;
  if (id === null) $("quote").replaceChildren();
  else $("quote").replaceChildren(`Answers #${id}`, el("button", { class: "quiet", type: "button", onclick: () => quote(null) }, "Cancel"));
}

function hint(problem) {
  $("hint").textContent = problem ?? "Enter sends, Shift+Enter breaks the line.";
  $("hint").classList.toggle("bad", Boolean(problem));
}

async function read(answer) {
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error ?? `it answered ${answer.status}`);
}

async function act(command, what) {
  try {
    const body = { chat: current, from: Number($("who").value), ...what };
    await read(await fetch(command, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }));
    hint(null);
    return true;
  } catch (error) {
    hint(error.message);
    return false;
  }
}

async function send() {
  const said = $("input").value;
  if (!said.trim() || current === null) return;
  if (await act("say", { text: said, thread: Number($("topic").value), reply: answered ?? 0 })) {
    $("input").value = "";
    quote(null);
  }
}

async function upload(file) {
  const query = new URLSearchParams({
    chat: current, from: $("who").value, thread: $("topic").value || 0, reply: answered ?? 0, name: file.name, caption: $("input").value,
  });
  try {
    await read(await fetch(`upload?${query}`, { method: "POST", headers: { "content-type": file.type || "application/octet-stream" }, body: file }));
    $("input").value = "";
    hint(null);
  } catch (error) {
    hint(error.message);
  }
}

function fits(call) {
  if (call.method === "getUpdates" && !$("polls").checked) return false;
  const wanted = $("filter").value.toLowerCase();
  return !wanted || `${call.method} ${call.about}`.toLowerCase().includes(wanted);
}

function drawCall(call) {
  const failed = call.status !== null && call.status >= 400;
  const at = new Date(call.ms);
  const row = el("div", { class: `row ${failed ? "bad" : "to-connector"}`, role: "option", "aria-selected": "false", data: { n: call.n } },
    el("span", { class: "at" }, at.toLocaleTimeString()),
    el("span", { class: "way", "aria-hidden": "true" }, call.status === null ? "…" : failed ? "!" : "→"),
    el("span", { class: "what" }, el("b", {}, call.method), ` ${call.about}`),
    el("span", { class: "extent" }, call.took === null ? "" : `${call.took} ms`));
  row.hidden = !fits(call);
  const known = calls.get(call.n);
  const list = $("calls");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
  if (known) known.row.replaceWith(row);
  else list.append(row);
  calls.set(call.n, { call, row });
  while (calls.size > MAX_ROWS) {
    const [oldest, { row: gone }] = calls.entries().next().value;
    gone.remove();
    calls.delete(oldest);
  }
  $("calls-none").hidden = true;
  if (chosen === call.n) show(call.n);
  if (atEnd) list.scrollTop = list.scrollHeight;
}

function show(number) {
  const found = calls.get(number);
  if (!found) return;
  for (const { row } of calls.values()) row.setAttribute("aria-selected", String(row === found.row));
  chosen = number;
  const { call } = found;
  $("detail").hidden = false;
  $("detail-title").textContent = `${call.method} ${call.status ?? "without an answer"}`;
  $("detail-text").replaceChildren(...coloured(call.params), "\n\n", ...coloured(call.answer));
}

function step(by) {
  const shown = [...calls.values()].filter(({ row }) => !row.hidden);
  const at = shown.findIndex(({ call }) => call.n === chosen);
  const next = shown[Math.max(0, Math.min(shown.length - 1, at < 0 ? shown.length - 1 : at + by))];
  if (next) {
    show(next.call.n);
    next.row.scrollIntoView({ block: "nearest" });
  }
}

function close() {
  $("detail").hidden = true;
  calls.get(chosen)?.row.setAttribute("aria-selected", "false");
  chosen = null;
}

function sieve() {
  for (const { call, row } of calls.values()) row.hidden = !fits(call);
}

$("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
$("attach").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  if ($("file").files[0]) upload($("file").files[0]);
  $("file").value = "";
});
$("standing").addEventListener("change", () => act("standing", { standing: $("standing").value }));
$("add-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (await act("chat", { kind: $("add-kind").value, name: $("add-name").value })) $("add-name").value = "";
});
$("filter").addEventListener("input", sieve);
$("polls").addEventListener("change", sieve);
$("clear").addEventListener("click", () => {
  for (const { row } of calls.values()) row.remove();
  calls.clear();
  close();
});
$("calls").addEventListener("click", (event) => {
  const row = event.target.closest("[role=option]");
  if (row) show(Number(row.dataset.n));
});
$("calls").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); step(event.key === "ArrowDown" ? 1 : -1); }
  if (event.key === "Escape") close();
});
$("detail-close").addEventListener("click", close);
for (const button of document.querySelectorAll(".views button")) {
  button.addEventListener("click", () => {
    document.body.dataset.view = button.dataset.view;
    for (const other of document.querySelectorAll(".views button")) other.toggleAttribute("aria-current", other === button);
  });
}
connect();
$("input").focus();
