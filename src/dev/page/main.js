// Starts everything, and keeps the bar at the top true.

import { $, announce, el } from "./dom.js";
import { on, open } from "./feed.js";
import { can, happen, setUp, conversation } from "./conversation.js";
import { start as startChats } from "./chats.js";
import { start as startTalk } from "./talk.js";
import { start as startComposer } from "./composer.js";
import { start as startWire } from "./wire.js";
import { start as startFaults } from "./faults.js";
import { start as startJobs } from "./jobs.js";
import { start as startHand } from "./hand.js";
import { start as startHelp } from "./help.js";

const TROUBLES = {
  gone: "`hermes-relay dev` does not answer: it has ended, or is stopped. Start it again and open the address that it prints.",
  other: "This `hermes-relay dev` has ended, and another program answers here. Open the address that it printed.",
  cut: "No events arrive from `hermes-relay dev`. Trying again…",
};

let status = { link: { state: "waiting", text: "connecting" }, facts: [] };
let trouble = null;

function bar() {
  const { state, text, about } = trouble ? { state: "lost", text: trouble === "cut" ? "no events" : "process gone" } : status.link;
  const pill = $("link");
  const label = pill.querySelector(".label");
  if (label.textContent !== text) {
    label.textContent = text;
    announce(`Link: ${text}`);
  }
  pill.dataset.state = state;
  pill.title = about ?? "";
  $("facts").replaceChildren(pill, ...status.facts.map((fact) =>
    el("li", { class: "pill", title: fact.about }, el("span", {}, fact.id), " ", el("b", { id: fact.id }, String(fact.value ?? "–")))));
  $("stop").classList.toggle("on", (status.turns ?? 0) > 0);
}

/** Shows what this server does, and hides the rest. */
function capabilities() {
  for (const node of document.querySelectorAll("[data-needs]")) node.hidden = !can(node.dataset.needs);
}

function views() {
  const buttons = [...document.querySelectorAll(".views button")];
  const show = (view) => {
    document.body.dataset.view = view;
    if (view === "wire" || view === "faults") tab(view, false);
  };
  for (const button of buttons) button.addEventListener("click", () => show(button.dataset.view));
  new MutationObserver(() => {
    for (const button of buttons) {
      if (button.dataset.view === document.body.dataset.view) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }).observe(document.body, { attributeFilter: ["data-view"] });
}

function tab(name, focus) {
  for (const other of ["wire", "faults"]) {
    const chosen = other === name;
    $(other).hidden = !chosen;
    $(`tab-${other}`).setAttribute("aria-selected", String(chosen));
    $(`tab-${other}`).tabIndex = chosen ? 0 : -1;
    if (chosen && focus) $(`tab-${other}`).focus();
  }
}

function tabs() {
  for (const name of ["wire", "faults"]) {
    $(`tab-${name}`).addEventListener("click", () => tab(name, true));
    $(`tab-${name}`).addEventListener("keydown", (event) => {
      if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) {
        event.preventDefault();
        tab(name === "wire" ? "faults" : "wire", true);
      }
    });
  }
}

function theme() {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  try {
    const kept = localStorage.getItem("theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch { /* Without storage the choice lasts as long as the page. */ }
  $("theme").addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch { /* As above. */ }
    announce(`${root.dataset.theme} colours`);
  });
}

function title() {
  document.title = `${trouble ? "⚠ gone · " : ""}${conversation.title ? `${conversation.title} · ` : ""}hermes-relay dev`;
}

/** Turns the page red when the process is gone, and back when it is there again. */
function presence(what) {
  trouble = what;
  document.body.classList.toggle("is-gone", Boolean(trouble));
  $("gone").hidden = !trouble;
  $("gone").textContent = trouble ? TROUBLES[trouble] : "";
  title();
  bar();
}

on("setup", (setup) => {
  setUp(setup);
  capabilities();
  title();
});
on("happening", happen);
on("status", (now) => { status = now; bar(); });
on("up", () => presence(null));
on("down", presence);

startChats();
startTalk();
startComposer();
startWire();
startFaults();
startJobs();
startHand();
startHelp();
views();
tabs();
theme();
open();
$("input").focus();
