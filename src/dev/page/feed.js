// The connection to the connector: events in, commands out.

const listeners = new Map();

/** Calls `listener` for every `kind`: setup, relay, link, frames, happening, up, down. */
export function on(kind, listener) {
  const known = listeners.get(kind) ?? [];
  known.push(listener);
  listeners.set(kind, known);
}

function emit(kind, what) {
  for (const listener of listeners.get(kind) ?? []) listener(what);
}

/** Connects. The browser reconnects by itself and resumes where it was. */
export function open() {
  const source = new EventSource("events");
  source.onopen = () => emit("up");
  source.onerror = () => emit("down", source.readyState === EventSource.CLOSED);
  source.onmessage = (event) => {
    const batch = JSON.parse(event.data);
    if (batch.setup) emit("setup", batch.setup);
    if ("relay" in batch) emit("relay", batch.relay);
    if (batch.link) emit("link", batch.link);
    if (batch.frames.length > 0) emit("frames", batch.frames);
    for (const happening of batch.happenings) emit("happening", happening);
    emit("batch", batch);
  };
}

/** Sends a command to the connector; throws its error. */
export async function ask(command, body = {}) {
  const answer = await fetch(command, {
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

/** One complete frame. */
export async function frame(number) {
  return read(await fetch(`frame/${number}`));
}

async function read(answer) {
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error ?? `the connector answered ${answer.status}`);
  return body;
}
