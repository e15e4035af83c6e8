// The buttons that inject faults, and a check mark for each expected step.

import { $, el, announce } from "./dom.js";
import { ask, on } from "./feed.js";
import { conversation } from "./conversation.js";
import { trials } from "./trials.js";
import { who } from "./composer.js";

const TIMEOUT_MS = 120_000;
const MAX_SEEN = 5000;

const running = new Map();

export function start() {
  $("trials").append(...trials.map(draw));
  on("rows", (rows) => collect("rows", rows));
  on("happening", (what) => collect("happenings", [what]));
  on("batch", look);
  on("status", ({ revoked }) => {
    $("undo-revoke").hidden = !revoked;
  });
}

function draw(trial) {
  return el("li", { class: "trial", id: `trial-${trial.id}`, data: { state: "idle" } },
    el("div", { class: "trial-head" },
      el("h3", { id: `title-${trial.id}` }, trial.title),
      trial.undo && el("button", {
        type: "button", id: `undo-${trial.id}`, hidden: true, onclick: () => undo(trial),
      }, trial.undo.button),
      el("button", {
        type: "button", id: `run-${trial.id}`, "aria-describedby": `title-${trial.id}`, onclick: () => run(trial),
      }, trial.button)),
    el("p", {}, trial.does),
    el("ul", { class: "steps" }, ...trial.steps.map((step, index) =>
      el("li", { id: `step-${trial.id}-${index}` },
        el("span", { class: "mark", role: "img", "aria-label": "not seen yet" }, "○"), el("span", {}, step.text)))),
    el("p", { class: "verdict", id: `verdict-${trial.id}`, role: "status" }));
}

function collect(kind, list) {
  for (const one of running.values()) {
    // Events before the click do not count.
    one.seen[kind].push(...list);
    if (one.seen[kind].length > MAX_SEEN) one.seen[kind].splice(0, one.seen[kind].length - MAX_SEEN);
  }
}

const act = {
  fault: (name) => ask("fault", { name }),
  say: async (text, more = {}) => {
    const { chat, thread } = conversation.current;
    return (await ask("say", { chat, thread, who: who(), text, ...more })).message_id;
  },
};

async function run(trial) {
  const one = { trial, seen: { rows: [], happenings: [] }, made: null, held: new Map(), began: performance.now(), timer: 0 };
  clearInterval(running.get(trial.id)?.timer);
  running.set(trial.id, one);
  show(one, trial.steps.map(() => "open"), "running", "Watching…");
  // Steps with `still` are checked by time, not only by events, and what never begins times out, too.
  one.timer = setInterval(look, 250);
  try {
    const made = (await trial.run(act)) ?? {};
    if (running.get(trial.id) !== one) return;
    one.made = made;
    look();
  } catch (error) {
    if (running.get(trial.id) === one) end(one, trial.steps.map(() => "open"), "failed", `Failed: ${error.message}`);
  }
}

async function undo(trial) {
  try {
    await act.fault(trial.undo.fault);
    announce(`${trial.title}: undone`);
  } catch (error) {
    announce(error.message);
  }
}

function look() {
  for (const one of [...running.values()]) {
    if (one.made) judge(one);
    else if (isLate(one)) end(one, one.trial.steps.map(() => "open"), "failed", "Timed out: it did not begin");
  }
}

function isLate(one) {
  return performance.now() - one.began > TIMEOUT_MS;
}

function judge(one) {
  const now = performance.now();
  const states = [];
  let earlier = true;
  one.trial.steps.forEach((step, index) => {
    let holds = earlier && step.test(one.seen, one.made);
    if (step.still) {
      if (!holds) one.held.delete(index);
      else if (!one.held.has(index)) one.held.set(index, now);
      holds = holds && now - one.held.get(index) >= step.still;
    }
    states.push(holds ? "seen" : "open");
    earlier = holds;
  });
  const took = ((now - one.began) / 1000).toFixed(1);
  if (states.every((state) => state === "seen")) end(one, states, "passed", `Passed after ${took} s`);
  else if (isLate(one)) end(one, states, "failed", "Timed out after two minutes");
  else show(one, states, "running", "Watching…");
}

function end(one, states, state, verdict) {
  clearInterval(one.timer);
  running.delete(one.trial.id);
  show(one, states, state, verdict);
  announce(`${one.trial.title}: ${verdict}`);
}

function show(one, states, state, verdict) {
  const { id } = one.trial;
  $(`trial-${id}`).dataset.state = state;
  states.forEach((step, index) => {
    const mark = $(`step-${id}-${index}`).firstChild;
    const seen = step === "seen";
    mark.parentNode.dataset.state = step;
    mark.textContent = seen ? "✓" : "○";
    mark.setAttribute("aria-label", seen ? "seen" : "not seen yet");
  });
  if ($(`verdict-${id}`).textContent !== verdict) $(`verdict-${id}`).textContent = verdict;
}
