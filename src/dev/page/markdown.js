// Formatted text as nodes: a little markdown by each platform's own rules, or parts with styles. What is not understood
// stays as it was written.

import { el } from "./dom.js";

const pair = (mark, tag) => ({ mark, tag });

// Longer marks first: they are tried in this order.
const RULES = {
  discord: [pair("***", "strong"), pair("**", "strong"), pair("__", "u"), pair("~~", "s"), pair("*", "em"), pair("_", "em")],
  markdown_v2: [pair("__", "u"), pair("*", "strong"), pair("_", "em"), pair("~", "s")],
  slack_mrkdwn: [pair("*", "strong"), pair("_", "em"), pair("~", "s")],
  whatsapp: [pair("*", "strong"), pair("_", "em"), pair("~", "s")],
  plain: [],
};
const ESCAPES = { markdown_v2: true, discord: true };
const DEEPEST = 8;
const LINK = /^https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]]/;
const WORD = /[\p{L}\p{N}]/u;

/** The nodes of a text. */
export function render(text, dialect) {
  const rules = RULES[dialect] ?? RULES.plain;
  const out = document.createDocumentFragment();
  if (!(dialect in RULES) || dialect === "plain") {
    inline(out, text, [], false, 0);
    return out;
  }
  const parts = text.split("```");
  parts.forEach((part, index) => {
    if (index % 2 === 0 || index === parts.length - 1) {
      const open = index % 2 === 1 ? "```" : "";
      lines(out, open + part, rules, ESCAPES[dialect] ?? false);
    } else {
      out.append(el("pre", { tabindex: "0" }, el("code", {}, part.replace(/^[\w+-]*\n/, "").replace(/\n$/, ""))));
    }
  });
  return out;
}

function lines(out, text, rules, escapes) {
  let quote = null;
  text.replace(/^\n|\n$/g, "").split("\n").forEach((line, index) => {
    const quoted = /^>\s?(.*)$/.exec(line);
    if (quoted) {
      if (quote) quote.append(el("br"));
      else out.append(quote = el("blockquote"));
      inline(quote, quoted[1], rules, escapes, 0);
      return;
    }
    if (index > 0 && !quote) out.append(el("br"));
    quote = null;
    const heading = /^#{1,3}\s+(.*)$/.exec(line);
    const target = heading ? el("strong") : out;
    inline(target, heading ? heading[1] : line.replace(/^(\s*)[-*]\s+/, "$1• "), rules, escapes, 0);
    if (heading) out.append(target);
  });
}

function inline(out, text, rules, escapes, depth) {
  let plain = "";
  const flush = () => {
    if (plain) out.append(plain);
    plain = "";
  };
  let at = 0;
  while (at < text.length) {
    const rest = text.slice(at);
    if (escapes && text[at] === "\\" && /[^\p{L}\p{N}\s]/u.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    if (rules.length > 0 && text[at] === "`") {
      const end = text.indexOf("`", at + 1);
      if (end > at + 1) {
        flush();
        out.append(el("code", {}, text.slice(at + 1, end)));
        at = end + 1;
        continue;
      }
    }
    if (text[at] === "h") {
      const link = LINK.exec(rest.slice(0, 2000));
      if (link) {
        flush();
        out.append(el("a", { href: link[0], target: "_blank", rel: "noopener noreferrer nofollow" }, link[0]));
        at += link[0].length;
        continue;
      }
    }
    const found = depth < DEEPEST && rules.find(({ mark }) => opens(text, at, mark));
    const end = found ? close(text, at + found.mark.length, found.mark) : -1;
    if (end > 0) {
      flush();
      const node = el(found.tag);
      inline(node, text.slice(at + found.mark.length, end), rules, escapes, depth + 1);
      out.append(node);
      at = end + found.mark.length;
      continue;
    }
    plain += text[at];
    at += 1;
  }
  flush();
}

function opens(text, at, mark) {
  if (!text.startsWith(mark, at)) return false;
  const next = text[at + mark.length];
  // snake_case and 2*3*4 are no emphasis.
  return next !== undefined && !/\s/.test(next) && !WORD.test(text[at - 1] ?? " ");
}

function close(text, from, mark) {
  const end = text.indexOf(mark, from + 1);
  if (end < 0 || /\s/.test(text[end - 1])) return -1;
  return WORD.test(text[end + mark.length] ?? " ") && mark !== "**" ? -1 : end;
}

// How a fake platform says that a part of a text is formatted.
const TAGS = {
  bold: "b", italic: "i", underline: "u", strikethrough: "s", code: "code", pre: "code",
  blockquote: "q", expandable_blockquote: "q", spoiler: "mark",
};

/** The nodes of a text that is formatted already: parts with their styles. */
export function renderRuns(runs) {
  const out = document.createDocumentFragment();
  let block = null;
  for (const { text, style, url } of runs) {
    const nodes = style.includes("pre") ? [text] : text.split("\n").flatMap((line, index) => (index === 0 ? [line] : [el("br"), line]));
    const tags = style.map((name) => TAGS[name]).filter(Boolean);
    let node = tags.reduceRight((inside, tag) => [el(tag, {}, ...inside)], nodes);
    if (/^https?:/.test(url ?? "")) node = [el("a", { href: url, rel: "noreferrer noopener", target: "_blank" }, ...node)];
    if (style.includes("pre")) {
      if (!block) out.append(block = el("pre", { tabindex: "0" }));
      block.append(...node);
    } else {
      block = null;
      out.append(...node);
    }
  }
  return out;
}
