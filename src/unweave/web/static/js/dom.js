// Builds nodes. Texts become text nodes only, so a name can never become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else if (key === "text") {
      node.textContent = value;
    } else if (key === "data") {
      for (const [name, text] of Object.entries(value)) node.dataset[name] = text;
    } else {
      node.setAttribute(key, value === true ? "" : value);
    }
  }
  node.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return node;
}

export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export const $ = (id) => document.getElementById(id);

// Sets a text only if it differs: screen readers and selections are not disturbed.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// One item per text.
export function list(node, texts) {
  node.replaceChildren(...texts.map((text) => el("li", { text })));
}

// Makes `parent` hold one child per item, in order. A child whose key stays is reused, so focus,
// selection and open details survive an update.
export function reconcile(parent, items, key, create, update) {
  const old = new Map();
  for (const child of [...parent.children]) old.set(child.dataset.key, child);
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = old.get(name);
    if (child) {
      old.delete(name);
    } else {
      child = create(item);
      child.dataset.key = name;
    }
    if (update) update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of old.values()) child.remove();
}

// A handler that runs once per quiet period, at most every `wait` milliseconds.
export function throttle(handler, wait) {
  let timer = null;
  let again = false;
  const run = () => {
    timer = null;
    if (again) {
      again = false;
      start();
    }
  };
  const start = () => {
    timer = setTimeout(run, wait);
    handler();
  };
  return () => {
    if (timer === null) start();
    else again = true;
  };
}
