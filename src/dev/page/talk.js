// The conversation, as a person on that platform would see it.

import { $, el, announce, timeOf } from "./dom.js";
import { ask } from "./feed.js";
import { render } from "./markdown.js";
import { find, isStopped, name, conversation, watch } from "./conversation.js";
import { lane, quote, sayHint, who } from "./composer.js";

// How long platforms show "is typing" after the last sign of it.
const TYPING_MS = 8000;
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
  const author = own ? message.who : conversation.agent;
  const inside = el("div", { class: "inside", "aria-live": "off" });
  const [sign, word] = STATES[message.state] ?? [];
  inside.append(el("div", { class: "head" },
    el("b", {}, author),
    !own && el("span", { class: "tag" }, "agent"),
    message.lane && el("span", { class: "tag" }, "interaction"),
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
    inside.append(el("div", { class: "text" }, render(message.text, own ? "plain" : conversation.descriptor.markdown_dialect)));
  }
  for (const one of message.media ?? []) inside.append(medium(one));
  if (message.prompt) inside.append(buttons(message));
  const edited = message.edits > 0 && el("span", { class: "edited" }, message.edits === 1 ? "edited" : `edited ${message.edits} times`);
  const reactions = message.reactions.map((emoji) => el("span", { class: "reaction", role: "img", "aria-label": `reaction ${emoji}` }, emoji));
  if (edited || reactions.length > 0) inside.append(el("div", { class: "foot" }, ...reactions, edited));
  return frame(message, own, author, inside);
}

function frame(message, own, author, inside) {
  const kind = message.quiet ? " quiet-message" : "";
  return el("article", { class: `message ${own ? "person" : "bot"}${kind}`, "aria-label": `${author}`, data: { id: message.id } }, inside);
}

function quoted(id) {
  const original = find(conversation.current, id);
  const text = original ? original.text.slice(0, 120) : "an earlier message";
  const author = original ? (original.from === "person" ? original.who : conversation.agent) : "";
  return el("div", { class: "quoted" }, author && el("b", {}, author, " "), text);
}

/** Our own store is shown; anything else on the network is named and not loaded. */
function medium({ url, kind, name: title, mime }) {
  const own = /\/relay\/media\/([0-9a-f]+)$/.exec(url ?? "");
  const label = title || kind || "file";
  if (own && (kind === "image" || (mime ?? "").startsWith("image/"))) {
    const picture = el("img", { class: "picture", src: `media/${own[1]}`, alt: label, loading: "lazy" });
    picture.addEventListener("error", () => picture.replaceWith(el("span", { class: "file" }, `${label} (cannot be shown)`)));
    return picture;
  }
  if (own) return el("a", { class: "file", href: `media/${own[1]}`, download: label }, `⬇ ${label}`);
  return el("span", { class: "file", title: "not loaded: this page fetches nothing from elsewhere" }, `${label}: ${url}`);
}

function buttons(message) {
  const { prompt } = message;
  const done = prompt.pressed !== null;
  const row = el("div", { class: "buttons", role: "group", "aria-label": message.text || "Answers" });
  for (const option of prompt.options) {
    const chosen = prompt.pressed === option.id;
    row.append(el("button", {
      type: "button", class: `choice style-${option.style ?? "plain"} ${chosen ? "chosen" : ""}`, disabled: done,
      data: { focus: `option-${option.id}`, option: option.id },
      onclick: async () => {
        try {
          await ask("press", {
            chat: conversation.current.chat, thread: conversation.current.thread, who: who(), lane: lane(),
            prompt: prompt.id, option: option.id, message: message.id,
          });
        } catch (error) {
          announce(error.message);
        }
      },
    }, option.label));
  }
  if (done && prompt.by) row.append(el("span", { class: "edited" }, `by ${prompt.by}`));
  return row;
}

/** What is there for a moment: drafts, cards, typing. */
function passing() {
  const chat = conversation.current;
  if (!chat) return;
  const log = $("log");
  for (const old of log.querySelectorAll(".passing")) old.remove();
  for (const [id, text] of chat.drafts) {
    log.append(el("article", { class: "message bot passing draft", "aria-live": "off", data: { draft: String(id) } },
      el("div", { class: "head" }, el("b", {}, conversation.agent), el("span", { class: "tag" }, conversation.platform === "telegram" ? "draft preview" : "writing")),
      el("div", { class: "text" }, render(text, conversation.descriptor.markdown_dialect))));
  }
  for (const card of chat.cards.values()) {
    if (card.done) continue;
    log.append(el("div", { class: "card passing" }, ...card.chunks.slice(0, 50).map((chunk) =>
      el("p", {}, typeof chunk === "string" ? chunk : chunk.title ?? chunk.text ?? JSON.stringify(chunk)))));
  }
  clearTimeout(timer);
  const { typing } = chat;
  const left = typing ? TYPING_MS - (performance.now() - typing.at) : 0;
  const fresh = typing && (left > 0 || typing.status);
  const line = fresh ? `${conversation.agent} ${typing.status ?? "is typing"}` : "";
  if ($("typing").textContent !== line) $("typing").textContent = line;
  $("typing").classList.toggle("on", Boolean(fresh));
  if (fresh && !typing.status) timer = setTimeout(passing, left + 10);
  follow();
}

function welcome() {
  const more = ["ask Deploy now?", "tools=3 look around", "long=3000"];
  const button = (say, shows) => el("li", {}, el("button", { type: "button", onclick: () => sayHint(say) },
    el("code", {}, say), shows && el("span", {}, shows)));
  return el("div", { class: "welcome" },
    el("h3", {}, `${name("u1")}, say something`),
    el("p", {}, "A connector, a relay and an agent run on this machine, over a real socket. Nothing leaves it. Three things to try:"),
    el("ul", {}, ...conversation.hints.map((hint) => button(hint.say, hint.shows.replace("Ctrl-C here, Stop on the page", "press Stop or Esc")))),
    el("p", {}, "The echo agent also understands:"),
    el("ul", { class: "more" }, ...more.map((say) => button(say))));
}
