// Where a person writes: text, commands, files, a quoted message, who speaks, and Stop.

import { $, el, announce } from "./dom.js";
import { ask, upload } from "./feed.js";
import { can, conversation, watch } from "./conversation.js";
import { close as closeCommands, start as startCommands, takeKey } from "./completion.js";

const MAX_FILES = 10;
const LARGEST = 25 * 1024 * 1024;

const KEYS = $("keys").textContent;

let quoting = null;
let files = [];

/** Who speaks. */
export const who = () => $("who").value;

/** The way that commands and buttons take. */
export const lane = () => (can("interactions") ? $("lane").value : "message");

export function start() {
  const input = $("input");
  watch((chat, message) => {
    if (!message) people();
  });
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  startCommands();
  input.addEventListener("keydown", (event) => {
    if (takeKey(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (quoting) quote(null);
      else stop();
    }
  });
  input.addEventListener("input", grow);
  input.addEventListener("paste", (event) => attach(event.clipboardData?.files ?? []));
  $("stop").addEventListener("click", stop);
  $("attach").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => {
    attach($("file").files);
    $("file").value = "";
  });
}

function people() {
  const select = $("who");
  if (select.childElementCount !== conversation.people.length) {
    const chosen = select.value;
    select.replaceChildren(...conversation.people.map((person) => el("option", { value: person.id }, person.name)));
    if (chosen) select.value = chosen;
  }
  // In some chats only one person can write.
  const only = conversation.current?.person;
  if (only) select.value = only;
  select.disabled = Boolean(only);
}

function grow() {
  const input = $("input");
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight, 200)}px`;
}

/** Says a suggestion. */
export function sayHint(text) {
  $("input").value = text;
  submit();
}

async function submit() {
  const text = $("input").value.trim();
  if ((!text && files.length === 0) || !conversation.current) return;
  const pending = files;
  const quoted = quoting;
  $("input").value = "";
  closeCommands();
  files = [];
  quote(null);
  showFiles();
  grow();
  try {
    const media = [];
    for (const file of pending) media.push((await upload(file)).id);
    await ask("say", {
      chat: conversation.current.chat, thread: conversation.current.thread, who: who(), text, media, lane: lane(),
      reply_to: quoted && { id: quoted.id, text: quoted.text, author: quoted.author, is_own: quoted.own },
    });
    problem("");
  } catch (error) {
    $("input").value ||= text;
    files = pending;
    showFiles();
    problem(`Not sent: ${error.message}`);
  }
  $("input").focus();
}

/** Says below the message box what went wrong; nothing when the text is empty. */
export function problem(text) {
  $("keys").textContent = text || KEYS;
  $("keys").classList.toggle("bad", text !== "");
  if (text) announce(text);
}

/** Answers a message, or none. */
export function quote(message, author) {
  quoting = message && { id: message.id, text: message.text, author, own: message.from === "bot" };
  const box = $("quote");
  box.hidden = !quoting;
  box.replaceChildren();
  if (quoting) {
    box.append(el("span", {}, "Replying to ", el("b", {}, author), `: ${message.text.slice(0, 80)}`),
      el("button", { type: "button", class: "quiet", "aria-label": "Do not reply to this message", onclick: () => quote(null) }, "×"));
  }
  $("input").focus();
}

function attach(list) {
  for (const file of list) {
    if (file.size > LARGEST) problem(`${file.name} is larger than 25 MiB`);
    else if (file.size === 0) problem(`${file.name} is empty`);
    else if (files.length < MAX_FILES) files.push(file);
  }
  showFiles();
}

function showFiles() {
  $("attached").hidden = files.length === 0;
  $("attached").replaceChildren(...files.map((file) => el("li", {}, file.name,
    el("button", {
      type: "button", class: "quiet", "aria-label": `Do not send ${file.name}`,
      onclick: () => {
        files = files.filter((other) => other !== file);
        showFiles();
      },
    }, "×"))));
}

/** Stops the turn in the open chat. */
export async function stop() {
  if (!conversation.current) return;
  try {
    const { sessions } = await ask("stop", { chat: conversation.current.chat, thread: conversation.current.thread });
    announce(sessions > 0 ? "Stop sent" : "There is nothing to stop in this chat");
  } catch (error) {
    problem(`Not stopped: ${error.message}`);
  }
}
