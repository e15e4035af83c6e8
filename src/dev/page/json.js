// JSON with colours: the text stays as it is, and becomes nodes.

import { el } from "./dom.js";

// Longer texts are shown without colours: they would be too many nodes.
const MAX_COLOURED = 200_000;
const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

function kind(string, colon, token) {
  if (string) return colon ? "key" : "string";
  return /^[tfn]/.test(token) ? "word" : "number";
}

/** The nodes of a JSON text. */
export function coloured(text) {
  if (text.length > MAX_COLOURED) return [text];
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [token, string, colon] = match;
    nodes.push(text.slice(end, match.index), el("span", { class: `json-${kind(string, colon, token)}` }, string ?? token));
    end = match.index + (string ?? token).length;
  }
  nodes.push(text.slice(end));
  return nodes.filter((node) => node !== "");
}
