// Building nodes. Text only ever becomes text: nothing here, or anywhere, parses markup.

export const $ = (id) => document.getElementById(id);

/** Makes an element: `el("p", { class: "x", onclick: f }, "text", child)`. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "data") Object.assign(node.dataset, value);
    else if (value === true) node.setAttribute(key, "");
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== undefined && child !== null && child !== false));
  return node;
}

/** Says something to people who listen instead of look. */
export function announce(text) {
  $("news").textContent = text;
}

const digits = (number, count) => String(number).padStart(count, "0");

/** Microseconds since 1970 as a node with the time of day; the tooltip has the date. */
export function timeOf(micros, withMillis = false) {
  const date = new Date(micros / 1000);
  const parts = [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => digits(part, 2));
  const text = parts.join(":") + (withMillis ? `.${digits(date.getMilliseconds(), 3)}` : "");
  return el("time", { datetime: date.toISOString(), title: date.toLocaleString() }, text);
}

/** Sizes for people. */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}
