// Tells screen readers of important changes only, one after the other.

import { $ } from "./dom.js";

const queue = [];
let busy = false;

function next() {
  const text = queue.shift();
  busy = text !== undefined;
  if (!busy) return;
  $("live").textContent = text;
  setTimeout(next, 1500);
}

export function announce(text) {
  if (queue.includes(text)) return;
  queue.push(text);
  if (!busy) next();
}
