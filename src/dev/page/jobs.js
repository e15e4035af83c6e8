// The jobs that the embedded scheduler has armed, with buttons that fire them.

import { $, el, announce } from "./dom.js";
import { ask, on } from "./feed.js";
import { can } from "./conversation.js";

const INTERVAL_MS = 1000;

let shown = null;

export function start() {
  on("setup", () => {
    if (shown !== null || !can("jobs")) return;
    shown = "";
    refresh();
  });
}

async function refresh() {
  try {
    const response = await fetch("jobs");
    if (response.ok) draw(await response.json());
  } catch { /* The bar at the top says that the connection is gone. */ }
  setTimeout(refresh, INTERVAL_MS);
}

function draw(jobs) {
  const text = JSON.stringify(jobs);
  if (text === shown) return;
  shown = text;
  // A list that is drawn anew takes the focus away from its buttons.
  const focus = document.activeElement?.id;
  $("job-list").replaceChildren(...jobs.armed.map((job, index) => row(job, index)));
  $("job-none").hidden = jobs.armed.length > 0;
  $("fire-list").replaceChildren(...jobs.attempts.slice(0, 5).map((attempt) =>
    el("li", {}, `${attempt.job_id} · ${verdict(attempt)}`)));
  if (focus) document.getElementById(focus)?.focus();
}

function row(job, index) {
  const button = (twice, text) => el("button", {
    type: "button", class: "quiet", id: `fire-${twice ? "twice" : "now"}-${index}`,
    "aria-label": `${text}: ${job.job_id}`, onclick: () => fire(job, twice),
  }, text);
  return el("li", {},
    el("b", {}, job.job_id), " ",
    el("time", { datetime: job.fire_at }, new Date(job.fire_at).toLocaleString()),
    el("div", { class: "job-acts" }, button(false, "Fire now"), button(true, "Fire twice")));
}

async function fire(job, twice) {
  try {
    const { attempts } = await ask("fire", { job_id: job.job_id, twice });
    announce(attempts.map(verdict).join(", then "));
  } catch (error) {
    announce(error.message);
  }
}

function verdict(attempt) {
  if (attempt.answer === "too early") return `${attempt.status} too early: a fire comes at most a minute before its time`;
  return attempt.status ? `${attempt.status} ${attempt.answer}` : attempt.answer;
}
