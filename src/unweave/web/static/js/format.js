// Numbers to sensible digits, and times as people say them.

const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const LANGUAGE = "en-GB";
const counts = new Intl.NumberFormat(LANGUAGE);

export const count = (value) => counts.format(value);
export const plural = (number, one, many = `${one}s`) =>
  `${count(number)} ${number === 1 ? one : many}`;

const minus = (text) => text.replace("-", "−");

function scientific(value, digits) {
  const [mantissa, exponent] = value.toExponential(digits && digits - 1).split("e");
  const power = String(Number(exponent)).replace(/./g, (letter) => SUPERSCRIPT[letter]);
  return `${minus(mantissa)} × 10${power}`;
}

// "10⁻⁵", for axes of powers.
export const power = (value) => scientific(value, 1).replace(/^1 × /, "");

function fixed(value, decimals) {
  const places = Math.max(0, Math.min(12, decimals));
  const format = { minimumFractionDigits: places, maximumFractionDigits: places };
  const text = minus(new Intl.NumberFormat(LANGUAGE, format).format(value));
  return /[1-9]/.test(text) ? text : text.replace("−", "");
}

export function number(value, digits = 3) {
  if (value === undefined || value === null || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  // Of the rounded value: 9.999 has one digit more than it seems.
  const rounded = Math.abs(Number(value.toPrecision(digits)));
  const magnitude = Math.floor(Math.log10(rounded));
  if (magnitude >= 7 || magnitude < -3) return scientific(value, digits);
  if (magnitude >= digits) return fixed(value, 0);
  return fixed(value, digits - 1 - magnitude);
}

// A value with as many decimals as two digits of `scale` (a standard deviation) have.
export function at(value, scale) {
  if (value === undefined || !Number.isFinite(value)) return "–";
  if (!(scale > 0) || !Number.isFinite(scale)) return number(value);
  const magnitude = Math.floor(Math.log10(scale));
  const size = Math.abs(value) > 0 ? Math.floor(Math.log10(Math.abs(value))) : magnitude;
  if (Math.max(size, magnitude) >= 7 || Math.max(size, magnitude) < -4) {
    return scientific(value, Math.max(2, Math.min(6, size - magnitude + 2)));
  }
  return fixed(value, Math.max(0, 1 - magnitude));
}

const given = new Intl.NumberFormat(LANGUAGE, { maximumSignificantDigits: 12 });

// A change with the digits that it has: it was rounded where the standard deviation is.
export function signed(value) {
  if (value === 0) return "too small to show";
  const size = Math.abs(value);
  const text = size < 1e-6 || size >= 1e7 ? scientific(size) : given.format(size);
  return `${value > 0 ? "+" : "−"}${text}`;
}

// ------------------------------------------------------------------------------- times

let offset = 0; // the server's clock minus this machine's, for pages that are open elsewhere
let simulated = false;
let hops = false; // the clock of the paper's walks

// `at`: this machine's time when the view's clock came.
export function setClock(view, at) {
  simulated = view.kind !== "network";
  hops = view.kind === "paper";
  offset = simulated ? 0 : view.clock - at / 1000;
}

const dates = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: "medium", timeStyle: "medium" });
const STEPS = [
  [90, 1, "s"],
  [90 * 60, 60, "min"],
  [36 * 3600, 3600, "h"],
  [Infinity, 86400, "d"],
];

export function span(seconds) {
  const [, unit, name] = STEPS.find(([limit]) => seconds < limit);
  return `${Math.round(seconds / unit)} ${name}`;
}

export function when(seconds) {
  if (seconds === undefined) return "–";
  if (hops) return `hop ${fixed(seconds, 0)}`;
  if (simulated) return `${fixed(seconds, 1)} s`;
  const age = Date.now() / 1000 + offset - seconds;
  if (age < -1) return `in ${span(-age)}`;
  return age < 3 ? "now" : `${span(age)} ago`;
}

export function exactly(seconds) {
  if (seconds === undefined) return "";
  if (hops) return `hop ${fixed(seconds, 0)}`;
  return simulated ? `simulated second ${number(seconds, 6)}` : dates.format(seconds * 1000);
}

export function setTime(node, seconds) {
  if (seconds === undefined) {
    node.removeAttribute("data-at");
    node.textContent = "–";
    return;
  }
  node.dataset.at = seconds;
  node.title = exactly(seconds);
  const text = when(seconds);
  if (node.textContent !== text) node.textContent = text;
}

// Relative times grow old without news from the server.
export function refreshTimes() {
  if (simulated) return;
  for (const node of document.querySelectorAll("time[data-at]")) {
    const text = when(Number(node.dataset.at));
    if (node.textContent !== text) node.textContent = text;
  }
}
