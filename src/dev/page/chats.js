// The left column: chats, who can be added, and what the platform can do.

import { $, el, announce } from "./dom.js";
import { ask } from "./feed.js";
import { can, choose, conversation, watch } from "./conversation.js";
import { problem, who } from "./composer.js";

const SIGNS = { dm: "@", "private chat": "@", thread: "↳", topic: "◇", forum: "☰", channel: "»" };
const WORDS = { dm: "direct message", topic: "forum topic" };

/** What a chat is, as the server or its kind says. */
const words = (chat) => chat.about ?? WORDS[chat.kind] ?? chat.kind;

export function start() {
  watch((chat, message) => {
    if (!message) draw();
  });
  $("add-form").addEventListener("submit", add);
  $("standing").addEventListener("change", async () => {
    try {
      await ask("standing", { chat: conversation.current.chat, who: who(), standing: $("standing").value });
    } catch (error) {
      problem(error.message);
    }
  });
}

// A chat that was added here is chosen as soon as it is there.
let wanted = null;

function draw() {
  const added = wanted && conversation.chats.findLast((chat) => chat.name === wanted);
  if (added) {
    wanted = null;
    choose(added);
    return;
  }
  const list = $("chats");
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  list.replaceChildren(...conversation.chats.map((chat) => {
    const current = chat === conversation.current;
    return el("li", {}, el("button", {
      type: "button", class: "chat", data: { key: chat.key }, "aria-current": current ? "true" : null,
      onclick: () => {
        choose(chat);
        document.body.dataset.view = "talk";
        $("input").focus();
      },
    },
    el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[chat.kind] ?? "#"),
    el("span", { class: "name" }, chat.name, el("small", {}, words(chat))),
    chat.unread > 0 && el("span", { class: "unread" }, String(chat.unread), el("span", { class: "hidden" }, " unread"))));
  }));
  $("chats-none").hidden = conversation.chats.length > 0;
  if (focused !== null) {
    [...list.querySelectorAll("button")].find((button) => button.dataset.key === focused)?.focus();
  }
  if (conversation.about) about();
  place();
}

function place() {
  const chat = conversation.current;
  if (!chat) return;
  $("place").textContent = chat.name;
  const people = chat.kind === "dm" || chat.person ? "" : ` with ${conversation.people.map((person) => person.name).join(", ")}`;
  $("place-about").textContent = `${words(chat)}${people} · ${conversation.agent} ${can("standings") ? "is" : "answers"}`;
  if (chat.standing) $("standing").value = chat.standing;
}

function about() {
  const { title, text, abilities = [] } = conversation.about;
  $("platform").textContent = title;
  $("limits").textContent = text;
  $("abilities").replaceChildren(...abilities.map((ability) => el("li", {}, ability)));
  fill("add-kind", [...conversation.kinds, "person"]);
  fill("standing", conversation.standings ?? []);
}

function fill(id, values) {
  if ($(id).childElementCount === 0) $(id).append(...values.map((value) => el("option", { value }, WORDS[value] ?? value)));
}

async function add(event) {
  event.preventDefault();
  const [kind, name] = [$("add-kind").value, $("add-name").value];
  try {
    await ask(kind === "person" ? "person" : "chat", { kind, name });
    wanted = kind === "person" ? null : name;
    draw();
    announce(`${name} was added`);
    $("add-name").value = "";
    $("add").open = false;
  } catch (error) {
    announce(error.message);
    $("add-name").setCustomValidity(error.message);
    $("add-name").reportValidity();
    $("add-name").setCustomValidity("");
  }
}
