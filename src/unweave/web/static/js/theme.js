// Light, dark, or as the system says. Drawings on canvas ask for colours here.

import { $ } from "./dom.js";

const KEY = "unweave-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = [];

const isDark = () =>
  document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : system.matches;

// The colour behind a CSS variable, resolved for the theme.
export function colour(name) {
  const probe = $("probe");
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

export function onTheme(handler) {
  listeners.push(handler);
}

function tell() {
  for (const handler of listeners) handler();
}

export function startTheme(button) {
  const label = () => {
    const next = isDark() ? "light" : "dark";
    button.setAttribute("aria-label", `Switch to the ${next} theme`);
    button.title = `Switch to the ${next} theme`;
  };
  button.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // Storage is off: the choice holds for this page only.
    }
    label();
    tell();
  });
  system.addEventListener("change", () => {
    label();
    tell();
  });
  label();
}
