// Tells screen readers of important changes only, one after the other. Of each topic only the
// newest is kept: a reader that is behind hears what is true now.

import { $ } from "./dom.js";

const waiting = new Map(); // topic → text
let busy = false;

function next() {
  const [first] = waiting;
  busy = first !== undefined;
  if (!busy) return;
  const [topic, text] = first;
  waiting.delete(topic);
  $("live").textContent = text;
  setTimeout(next, 1500);
}

export function announce(topic, text) {
  waiting.set(topic, text);
  if (!busy) next();
}
