// The connection to `hermes-relay dev`: events in, actions out.

const RETRY_MS = 3000;
// How often the process is asked whether it is there, and how long it may take to answer.
const BEAT_MS = 2000;
const BEAT_TIMEOUT_MS = 5000;

const listeners = new Map();

/** Calls `listener` for every `kind`: setup, status, rows, happening, batch, up, down. */
export function on(kind, listener) {
  const known = listeners.get(kind) ?? [];
  known.push(listener);
  listeners.set(kind, known);
}

function emit(kind, what) {
  for (const listener of listeners.get(kind) ?? []) listener(what);
}

// Where the events are; what is not known yet is no trouble.
let cursor = "";
let streaming = true;
let trouble = null;
let reported = null;

function report() {
  const now = trouble ?? (streaming ? null : "cut");
  if (now === reported) return;
  reported = now;
  if (now) emit("down", now);
  else emit("up");
}

/** Connects. The browser reconnects by itself and resumes where it was. */
export function open() {
  connect();
  beat();
}

function connect() {
  const source = new EventSource(cursor ? `events?after=${cursor}` : "events");
  source.onopen = () => {
    streaming = true;
    report();
  };
  source.onerror = () => {
    streaming = false;
    // Refused: the browser does not try again by itself.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
    probe();
  };
  source.onmessage = (event) => {
    cursor = event.lastEventId;
    const batch = JSON.parse(event.data);
    if (batch.setup) emit("setup", batch.setup);
    if (batch.status) emit("status", batch.status);
    if (batch.rows.length > 0) emit("rows", batch.rows);
    for (const happening of batch.happenings) emit("happening", happening);
    emit("batch", batch);
  };
}

/** A process that is stopped keeps its connections open, so it is asked. */
async function probe() {
  try {
    const answer = await fetch("alive", { signal: AbortSignal.timeout(BEAT_TIMEOUT_MS) });
    trouble = answer.status === 404 ? "other" : null;
  } catch {
    trouble = "gone";
  }
  report();
}

async function beat() {
  await probe();
  setTimeout(beat, BEAT_MS);
}

/** Asks for an action; throws why it was refused. */
export async function ask(action, body = {}) {
  const answer = await fetch(action, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return read(answer);
}

/** Uploads a file and returns its id. */
export async function upload(file) {
  const answer = await fetch("upload", {
    method: "POST",
    headers: {
      "content-type": file.type || "application/octet-stream",
      "x-filename": encodeURIComponent(file.name),
    },
    body: file,
  });
  return read(answer);
}

/** One row of the wire in full. */
export async function whole(number) {
  return read(await fetch(`row/${number}`));
}

async function read(answer) {
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error ?? `the answer was ${answer.status}`);
  return body;
}
