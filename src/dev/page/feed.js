// The line to the connector: what happens comes in, what a person does goes out.

const listeners = new Map();

/** Calls `hear` for every `kind`: setup, relay, link, frames, happening, up, down. */
export function on(kind, hear) {
  const known = listeners.get(kind) ?? [];
  known.push(hear);
  listeners.set(kind, known);
}

function tell(kind, what) {
  for (const hear of listeners.get(kind) ?? []) hear(what);
}

/** Opens the line. The browser reopens it by itself and says where it was. */
export function open() {
  const source = new EventSource("events");
  source.onopen = () => tell("up");
  source.onerror = () => tell("down", source.readyState === EventSource.CLOSED);
  source.onmessage = (event) => {
    const batch = JSON.parse(event.data);
    if (batch.setup) tell("setup", batch.setup);
    if ("relay" in batch) tell("relay", batch.relay);
    if (batch.link) tell("link", batch.link);
    if (batch.frames.length > 0) tell("frames", batch.frames);
    for (const happening of batch.happenings) tell("happening", happening);
    tell("batch", batch);
  };
}

/** Asks the connector for something; throws what it says when it refuses. */
export async function ask(command, body = {}) {
  const answer = await fetch(command, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return read(answer);
}

/** Hands a file over and gives its id back. */
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

/** One frame as a whole. */
export async function frame(number) {
  return read(await fetch(`frame/${number}`));
}

async function read(answer) {
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.error ?? `the connector answered ${answer.status}`);
  return said;
}
