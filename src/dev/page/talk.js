// The conversation, as a person on that platform would see it.

import { $, el, size, timeOf } from "./dom.js";
import { ask } from "./feed.js";
import { render, renderRuns } from "./markdown.js";
import { can, find, isStopped, conversation, watch } from "./conversation.js";
import { lane, problem, quote, sayHint, stop, who } from "./composer.js";

// How long platforms show "is typing" after the last sign of it.
const TYPING_MS = 8000;
const REACTIONS = ["👍", "❤", "👀"];
const STATES = { waiting: ["○", "waits for the relay"], sent: ["✓", "sent"], taken: ["✓✓", "in the relay's journal"] };

const nodes = new Map();
let shown = null;
let timer = 0;
// Whether the newest message is in view and should stay there.
let atEnd = true;

export function start() {
  watch((chat, message) => {
    if (chat && chat !== conversation.current) return;
    if (shown !== conversation.current) redraw();
    else if (message?.forgotten) nodes.get(message.id)?.remove();
    else if (message) put(message);
    passing();
  });
  const log = $("log");
  log.addEventListener("scroll", () => {
    atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  });
  new ResizeObserver(follow).observe(log);
}

function follow() {
  if (atEnd) $("log").scrollTop = $("log").scrollHeight;
}

function redraw() {
  shown = conversation.current;
  nodes.clear();
  $("log").replaceChildren();
  if (!shown) return;
  for (const message of shown.messages) put(message);
  if (shown.messages.length === 0) $("log").append(welcome());
  atEnd = true;
  follow();
}

function put(message) {
  const log = $("log");
  const node = draw(message);
  const old = nodes.get(message.id);
  if (old) {
    // Only the inside changes, so that an edit is not read out as a new message.
    const focus = old.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
    old.className = node.className;
    old.firstChild.replaceChildren(...node.firstChild.childNodes);
    if (focus) old.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus();
  } else {
    log.querySelector(".welcome")?.remove();
    nodes.set(message.id, node);
    const first = log.querySelector(".passing");
    log.insertBefore(node, first);
  }
  follow();
}

function draw(message) {
  if (message.from === "note") {
    return el("p", { class: "note" }, el("span", {}, message.text), message.t !== null && " ", message.t !== null && timeOf(message.t));
  }
  const own = message.from === "person";
  const author = authorOf(message);
  const inside = el("div", { class: "inside", "aria-live": "off" });
  const [sign, word] = STATES[message.state] ?? [];
  inside.append(el("div", { class: "head" },
    el("b", {}, author),
    ...(message.tags ?? []).map((tag) => el("span", { class: "tag" }, tag)),
    message.t !== null && timeOf(message.t),
    isStopped(conversation.current, message) && el("span", { class: "tag stopped" }, "stopped"),
    sign && el("span", { class: "state", title: word, role: "img", "aria-label": word }, sign),
    message.copies && el("span", { class: "tag" }, `delivered ${message.copies} times`),
    !message.deleted && el("button", {
      type: "button", class: "reply", data: { focus: "reply" },
      "aria-label": `Reply to ${author}: ${message.text.slice(0, 40)}`,
      onclick: () => quote(message, author),
    }, "Reply")));
  if (message.deleted) {
    inside.append(el("p", { class: "text gone-text" }, "deleted"));
    return frame(message, own, author, inside);
  }
  if (message.replyTo) inside.append(quoted(message.replyTo));
  if (message.text) {
    inside.append(el("div", { class: "text" }, formatted(message, own ? "plain" : conversation.markup)));
  }
  for (const one of message.media ?? []) inside.append(medium(one));
  if (message.prompt) inside.append(...buttons(message));
  const edited = message.edits > 0 && el("span", { class: "edited" }, message.edits === 1 ? "edited" : `edited ${message.edits} times`);
  const reactions = message.reactions.map((emoji) => el("span", { class: "reaction", role: "img", "aria-label": `reaction ${emoji}` }, emoji));
  const offers = can("reactions") && !own ? REACTIONS.map((emoji) => el("button", {
    type: "button", class: "quiet", data: { focus: emoji }, "aria-label": `React with ${emoji}`,
    onclick: () => act("react", { message: message.id, emoji }),
  }, emoji)) : [];
  if (edited || reactions.length + offers.length > 0) inside.append(el("div", { class: "foot" }, ...reactions, edited, ...offers));
  return frame(message, own, author, inside);
}

const authorOf = (message) => message.who ?? conversation.agent;

const formatted = ({ text, runs }, markup) => (runs ? renderRuns(runs) : render(text, markup));

/** Does something in the open chat, as the person who is chosen. */
async function act(action, what) {
  const { chat, thread } = conversation.current;
  try {
    await ask(action, { chat, thread, who: who(), ...what });
  } catch (error) {
    problem(error.message);
  }
}

function frame(message, own, author, inside) {
  const kind = message.quiet ? " quiet-message" : "";
  return el("article", { class: `message ${own ? "person" : "bot"}${kind}`, "aria-label": `${author}`, data: { id: message.id } }, inside);
}

function quoted(id) {
  const original = find(conversation.current, id);
  const text = original ? original.text.slice(0, 120) : "an earlier message";
  const author = original ? authorOf(original) : "";
  return el("div", { class: "quoted" }, author && el("b", {}, author, " "), text);
}

/** Files of this program are shown; anything else on the network is named and not loaded. */
function medium({ file, url, kind, name: title, mime, bytes }) {
  const own = file ?? /\/relay\/media\/([0-9a-f]+)$/.exec(url ?? "")?.[1];
  const label = title || kind || "file";
  if (own && (kind === "image" || (mime ?? "").startsWith("image/"))) {
    const picture = el("img", { class: "picture", src: `media/${own}`, alt: label, loading: "lazy" });
    picture.addEventListener("error", () => picture.replaceWith(el("span", { class: "file" }, `${label} (cannot be shown)`)));
    return picture;
  }
  if (own) return el("a", { class: "file", href: `media/${own}`, download: label }, `⬇ ${label}${bytes ? `, ${size(bytes)}` : ""}`);
  return el("span", { class: "file", title: "not loaded: this page fetches nothing from elsewhere" }, `${label}: ${url}`);
}

function buttons(message) {
  const { prompt } = message;
  const done = prompt.pressed !== null;
  const rows = prompt.rows.map((row) => el("div", { class: "buttons", role: "group", "aria-label": message.text || "Answers" },
    ...row.map((option) => el("button", {
      type: "button", class: `choice style-${option.style ?? "plain"} ${done && prompt.pressed === option.id ? "chosen" : ""}`,
      disabled: done || option.id === null, data: { focus: `option-${option.id}`, option: option.id },
      onclick: () => act("press", { lane: lane(), prompt: prompt.id, option: option.id, message: message.id }),
    }, option.label))));
  if (done && prompt.by) rows.at(-1)?.append(el("span", { class: "edited" }, `by ${prompt.by}`));
  return rows;
}

/** What is there for a moment: drafts, cards, typing. */
function passing() {
  const chat = conversation.current;
  if (!chat) return;
  const log = $("log");
  for (const old of log.querySelectorAll(".passing")) old.remove();
  for (const [id, draft] of chat.drafts) {
    log.append(el("article", { class: "message bot passing draft", "aria-live": "off", data: { draft: String(id) } },
      el("div", { class: "head" }, el("b", {}, conversation.agent), el("span", { class: "tag" }, conversation.platform === "telegram" ? "draft preview" : "writing")),
      el("div", { class: "text" }, formatted(draft, conversation.markup)),
      draft.can_stop && el("div", { class: "buttons" }, el("button", { type: "button", class: "stop on", onclick: stop }, "Stop"))));
  }
  for (const card of chat.cards.values()) {
    if (card.done) continue;
    log.append(el("div", { class: "card passing" }, ...card.chunks.slice(0, 50).map((chunk) =>
      el("p", {}, typeof chunk === "string" ? chunk : chunk.title ?? chunk.text ?? JSON.stringify(chunk)))));
  }
  clearTimeout(timer);
  const { typing } = chat;
  const left = typing ? TYPING_MS - (performance.now() - typing.at) : 0;
  const passes = typing && (typing.passes || !typing.status);
  const fresh = typing && (left > 0 || !passes);
  const line = fresh ? `${conversation.agent} ${typing.status ?? "is typing"}` : "";
  if ($("typing").textContent !== line) $("typing").textContent = line;
  $("typing").classList.toggle("on", Boolean(fresh));
  if (fresh && passes) timer = setTimeout(passing, left + 10);
  follow();
}

function welcome() {
  const { agent, hints, more, people, welcome: text } = conversation;
  const button = (say, shows) => el("li", {}, el("button", { type: "button", onclick: () => sayHint(say) },
    el("code", {}, say), shows && el("span", {}, shows)));
  const list = (lead, ...items) => (items.length > 0 ? [el("p", {}, lead), el("ul", {}, ...items)] : []);
  const also = list(`${agent} also understands:`, ...more.map((say) => button(say)));
  also[1]?.classList.add("more");
  return el("div", { class: "welcome" },
    el("h3", {}, `${people[0]?.name ?? "You"}, say something`),
    el("p", {}, text),
    ...list("Three things to try:", ...hints.map((hint) => button(hint.say, hint.shows.replace("Ctrl-C here, Stop on the page", "press Stop or Esc")))),
    ...also);
}
