// The list of keys: `?` outside of a text field, or the button.

import { $ } from "./dom.js";

export function start() {
  $("help-open").addEventListener("click", () => $("help").showModal());
  $("help-close").addEventListener("click", () => $("help").close());
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.closest("input, textarea, select");
    if (event.key !== "?" || typing || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    if (!$("help").open) $("help").showModal();
  });
}
