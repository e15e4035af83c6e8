// A form that hands something to an agent, as another program would.

import { $, el, announce } from "./dom.js";
import { ask, on } from "./feed.js";
import { can, conversation } from "./conversation.js";

const RETRY_MS = 1000;

let offered = false;

export function start() {
  on("setup", () => {
    if (can("hand") && !offered) offer();
    offered ||= can("hand");
  });
  $("hand-form").addEventListener("submit", send);
}

/** Shows the form once the relay says which agents it has. */
async function offer() {
  try {
    const response = await fetch("agents");
    const agents = response.ok ? await response.json() : null;
    if (agents) {
      $("hand-agent").replaceChildren(...agents.map((name) => el("option", {}, name)));
      $("hand").hidden = false;
      return;
    }
  } catch { /* The bar at the top says that the connection is gone. */ }
  setTimeout(offer, RETRY_MS);
}

async function send(event) {
  event.preventDefault();
  const here = $("hand-where").value === "chat" ? conversation.current : {};
  const body = { agent: $("hand-agent").value, kind: $("hand-kind").value, text: $("hand-text").value };
  try {
    const receipt = await ask("hand", { ...body, chat: here.chat, thread: here.thread ?? undefined });
    say(receipt.woken === undefined ? `delivered as ${receipt.delivery_id}` : receipt.woken ? "woken" : "delivered, not woken");
    $("hand-text").value = "";
  } catch (error) {
    say(`Not delivered: ${error.message}`);
  }
}

function say(text) {
  $("hand-result").textContent = text;
  announce(text);
}
