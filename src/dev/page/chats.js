// The left column: chats, who can be added, and what the platform can do.

import { $, el, announce } from "./dom.js";
import { ask } from "./feed.js";
import { choose, happen, conversation, watch } from "./conversation.js";

const SIGNS = { dm: "@", group: "#", thread: "↳", topic: "◇" };
const WORDS = { dm: "direct message", group: "group", thread: "thread", topic: "forum topic" };
const MARKS = {
  edit: "edits", draft: "drafts", typing: "typing", react: "reactions", prompt: "buttons", send_media: "files",
  thread_create: "threads", follow_up: "follow-ups", delete: "deletes", task_card: "cards",
};

export function start() {
  watch((chat, message) => {
    if (!message) draw();
  });
  $("add-form").addEventListener("submit", add);
}

function draw() {
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
    el("span", { class: "name" }, chat.name, el("small", {}, WORDS[chat.kind] ?? chat.kind)),
    chat.unread > 0 && el("span", { class: "unread" }, String(chat.unread), el("span", { class: "hidden" }, " unread"))));
  }));
  $("chats-none").hidden = conversation.chats.length > 0;
  if (focused !== null) {
    [...list.querySelectorAll("button")].find((button) => button.dataset.key === focused)?.focus();
  }
  place();
  about();
}

function place() {
  const chat = conversation.current;
  if (!chat) return;
  $("place").textContent = chat.name;
  const people = chat.kind === "dm" ? "" : ` with ${conversation.people.map((person) => person.name).join(", ")}`;
  $("place-about").textContent = `${WORDS[chat.kind] ?? chat.kind}${people} · ${conversation.agent} answers`;
}

function about() {
  const descriptor = conversation.descriptor;
  $("platform").textContent = descriptor.label ?? conversation.platform;
  const unit = descriptor.len_unit === "utf16" ? "UTF-16 units" : "characters";
  $("limits").textContent = `${descriptor.max_message_length} ${unit} per message, ${descriptor.markdown_dialect ?? "plain"} markup`;
  const able = descriptor.supported_ops ?? [];
  const marks = Object.entries(MARKS).filter(([op]) => able.includes(op)).map(([, mark]) => mark);
  const said = descriptor.supported_ops ? marks : ["ops not listed"];
  $("abilities").replaceChildren(...(said.length > 0 ? said : ["text only"]).map((mark) => el("li", {}, mark)));
  const kinds = $("add-kind");
  if (kinds.childElementCount === 0) {
    const chats = ["dm", "group"];
    if (["discord", "slack"].includes(conversation.platform)) chats.push("thread");
    if (["discord", "telegram"].includes(conversation.platform)) chats.push("topic");
    kinds.append(...chats.map((kind) => el("option", { value: kind }, WORDS[kind])), el("option", { value: "person" }, "person"));
  }
}

async function add(event) {
  event.preventDefault();
  const [kind, name] = [$("add-kind").value, $("add-name").value];
  try {
    if (kind === "person") {
      await ask("person", { name });
      announce(`${name} joined`);
    } else {
      const chat = await ask("chat", { kind, name });
      happen({ k: "chat", chat });
      const added = conversation.chats.find((known) => known.chat === chat.chat && known.thread === (chat.thread ?? null));
      choose(added);
      announce(`${name} was added`);
    }
    $("add-name").value = "";
    $("add").open = false;
  } catch (error) {
    announce(error.message);
    $("add-name").setCustomValidity(error.message);
    $("add-name").reportValidity();
    $("add-name").setCustomValidity("");
  }
}
