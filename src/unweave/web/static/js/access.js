// The operator's access code: asked for when the server wants it, kept by the browser as a cookie
// that no script can read.

import { $ } from "./dom.js";
import { ApiError, session } from "./api.js";
import { openDialog, showError } from "./dialogs.js";

let settle = null;

export function startAccess() {
  const [dialog, form, field] = [$("access"), $("access-form"), $("access-code")];
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
    settle?.(true);
    settle = null;
    dialog.close();
  });
  dialog.addEventListener("close", () => {
    field.value = "";
    settle?.(false);
    settle = null;
  });
}

// The terminal shows a link with the code behind "#": used once, and not kept in the address.
export async function useLink() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code === null) return;
  history.replaceState(null, "", location.pathname);
  try {
    await session(code);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // A wrong code in a link is like none: the page asks when it needs one.
  }
}

export function askForCode() {
  showError($("access-error"), null);
  $("access-code").removeAttribute("aria-invalid");
  openDialog($("access"));
  $("access-code").focus();
  return new Promise((resolve) => {
    settle = resolve;
  });
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
