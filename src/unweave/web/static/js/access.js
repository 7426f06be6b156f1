// The operator's access code: asked for when the server wants it, kept by the browser as a cookie
// that no script can read.

import { $ } from "./dom.js";
import { ApiError, session } from "./api.js";
import { openDialog, showError } from "./dialogs.js";

let asked = null; // the open question: { answer, settle }

function settle(opened) {
  asked?.settle(opened);
  asked = null;
  $("access").close();
}

export function startAccess() {
  const [form, field] = [$("access-form"), $("access-code")];
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await session(field.value.trim());
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      showError($("access-error"), error);
      field.setAttribute("aria-invalid", "true");
      field.select();
      return;
    }
    settle(true);
  });
  $("access").addEventListener("close", () => {
    field.value = "";
    if (!$("access").open) settle(false); // it may have been opened again before this event
  });
  // A link that is opened in a tab with this page changes the part behind "#" only.
  addEventListener("hashchange", useLink);
}

// The terminal shows a link with the code behind "#": used once, and not kept in the address.
export async function useLink() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code === null) return;
  history.replaceState(null, "", location.pathname);
  try {
    await session(code);
    settle(true);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // A wrong code in a link is like none: the page asks when it needs one.
  }
}

// True when a session is open, false if the person closed the prompt. Who asks while the prompt is
// open gets the same answer.
export function askForCode() {
  if (asked === null) {
    showError($("access-error"), null);
    $("access-code").removeAttribute("aria-invalid");
    openDialog($("access"));
    $("access-code").focus();
    const { promise, resolve } = Promise.withResolvers();
    asked = { answer: promise, settle: resolve };
  }
  return asked.answer;
}

// Runs `request`; if the server wants the code, asks for it and runs it again.
// Undefined if the person closed the prompt.
export async function withAccess(request) {
  try {
    return await request();
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
  }
  if (!(await askForCode())) return undefined;
  return request();
}
