// Requests to the server. A refusal becomes an `ApiError` with the server's own words.

export class ApiError extends Error {
  constructor(status, kind, message, fix) {
    super(message);
    this.status = status;
    this.kind = kind;
    this.fix = fix;
  }
}

// A browser sends the cookie of a session to all ports of the server's machine, so to pages of other
// accounts, too. This proof is kept for the page's own address: no other page can read it.
const PROOF = "unweave-proof";
let proof = "";

function readProof() {
  try {
    return localStorage.getItem(PROOF) ?? proof; // another tab may have entered the code again
  } catch {
    return proof; // storage is off: the session is that of this tab
  }
}

function keepProof(given) {
  proof = given;
  try {
    localStorage.setItem(PROOF, given);
  } catch {
    // As above.
  }
}

async function ask(path, { headers, ...options } = {}) {
  let response;
  const all = { "x-unweave-proof": readProof(), ...headers };
  try {
    response = await fetch(path, { credentials: "same-origin", headers: all, ...options });
  } catch {
    throw new ApiError(0, "connection", "The server does not answer.", "Check that it still runs.");
  }
  if (response.ok) return response;
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // The answer is not of our server's form: the status says enough.
  }
  const message = error.message ?? `The server answered with status ${response.status}.`;
  throw new ApiError(response.status, error.kind ?? "", message, error.fix ?? "");
}

const post = (path, body, type = "application/json") =>
  ask(path, { method: "POST", body, headers: { "content-type": type } });

async function postJson(path, value) {
  const response = await post(path, JSON.stringify(value));
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

export const agent = async (name) => (await ask(`agents/${encodeURIComponent(name)}`)).json();

export async function curves(names, moments) {
  const query = new URLSearchParams();
  for (const name of names) query.append("name", name);
  for (const moment of moments) query.append("moment", moment);
  return (await ask(`curves?${query}`)).json();
}

export const moment = async (id) => (await ask(`moments/${encodeURIComponent(id)}`)).json();

// A file with the name that the server gives it.
export async function file(path) {
  const response = await ask(path);
  const [, name] = /filename="([^"]+)"/.exec(response.headers.get("content-disposition")) ?? [];
  return { name: name ?? "", content: await response.blob() };
}

// Where the events come from. They take no headers.
export function eventsPath() {
  const shown = readProof();
  return shown ? `events?${new URLSearchParams({ proof: shown })}` : "events";
}

// Whether the server wants the access code before it shows anything. A stream that it has refused
// does not say why.
export async function isLocked() {
  const left = new AbortController();
  try {
    await ask("events", { signal: left.signal });
  } catch (error) {
    if (error.status !== 401) throw error;
    return true;
  } finally {
    left.abort();
  }
  return false;
}

export const verify = async (bytes) =>
  (await post("verify", bytes, "application/octet-stream")).json();
export const session = async (code) => keepProof((await postJson("session", { code })).proof);
export const preview = (wish) => postJson("erasures/preview", wish);
export const erase = (wish) => postJson("erasures", wish);
export const control = (press) => postJson("controls", press);
export const certificatePath = (request) => `certificates/${encodeURIComponent(request)}`;
