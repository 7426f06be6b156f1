// The dialog that erases: what, what it means, and how far it is.

import { $, el, list, reconcile, say } from "./dom.js";
import { withAccess } from "./access.js";
import { ApiError, certificatePath, erase, preview } from "./api.js";
import { openDialog, showError } from "./dialogs.js";
import { plural } from "./format.js";
import { renderSteps } from "./erasures.js";
import { showProblem } from "./problem.js";

const PATIENCE = 700; // milliseconds without an answer, until the dialog says what it waits for

export function startErase(store) {
  const dialog = $("erase");
  let request = null;
  let wish = null; // what the preview on the screen is of
  let turn = 0; // of the questions: who closes the dialog, or asks anew, wants no earlier answer
  let slow = 0; // the timer of the words about a wait

  function show(page) {
    for (const name of ["what", "preview", "progress"]) $(`erase-${name}`).hidden = name !== page;
    showError($("erase-error"), null);
    openDialog(dialog);
  }

  function busy(on) {
    dialog.classList.toggle("busy", on);
    for (const button of dialog.querySelectorAll(".actions button")) button.disabled = on;
    clearTimeout(slow);
    $("erase-wait").hidden = true;
    if (on) slow = setTimeout(() => ($("erase-wait").hidden = false), PATIENCE);
  }

  // `task` gets a function that tells whether its answer is still wanted; `late` gets the error of
  // one that is not.
  async function attempt(task, { waits = "Asking the agent.", late = () => {} } = {}) {
    const mine = ++turn;
    const wanted = () => mine === turn;
    say($("erase-wait"), waits);
    busy(true);
    try {
      showError($("erase-error"), null);
      await task(wanted);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (wanted()) showError($("erase-error"), error);
      else late(error);
    } finally {
      if (wanted()) busy(false);
    }
  }

  function leave() {
    turn += 1;
    busy(false);
  }

  function open(name) {
    leave();
    const select = $("erase-agent");
    reconcile(
      select,
      store.view.may_erase.filter((one) => store.view.agents[one]?.state !== "erased"),
      (one) => `:${one}`,
      (one) => el("option", { value: one, text: one }),
    );
    if (name !== null) select.value = name;
    request = null;
    $("erase-all").checked = true;
    $("erase-keys").value = "";
    $("erase-missing").checked = false;
    $("erase-departed").checked = false;
    scope();
    say($("erase-title"), "Erase data");
    show("what");
  }

  // What belongs to the chosen scope only.
  function scope() {
    const records = $("erase-records").checked;
    $("erase-keys-box").hidden = !records;
    $("erase-departed-box").hidden = records || store.view.kind !== "network";
    if (records) $("erase-departed").checked = false;
  }

  function readWish() {
    const read = { agent: $("erase-agent").value };
    if ($("erase-records").checked) {
      read.keys = [...new Set($("erase-keys").value.split("\n").map((key) => key.trim()).filter(Boolean))];
      if ($("erase-missing").checked) read.missing_ok = true;
    }
    if ($("erase-departed").checked) read.departed = true;
    return read;
  }

  $("erase-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const asked = readWish();
    if (asked.keys && !asked.keys.length) {
      showError($("erase-error"), new ApiError(0, "", "No key was entered.", "Enter one key per line."));
      $("erase-keys").focus();
      return;
    }
    attempt(async (wanted) => {
      if (!(await foresee(asked, wanted))) return;
      const what = wish.keys ? `${plural(wish.keys.length, "record")} of ${wish.agent}` : wish.agent;
      say($("erase-title"), `Erase ${what}?`);
      say($("erase-confirm"), `Erase ${what}`);
      show("preview");
    });
  });

  async function foresee(asked, wanted) {
    const answer = await withAccess(() => preview(asked));
    if (!answer || !wanted()) return false; // the prompt was closed, or this dialog
    wish = asked;
    say($("erase-what-text"), answer.what);
    list($("erase-steps"), answer.steps);
    list($("erase-shown"), answer.shown);
    $("erase-shown-box").hidden = answer.shown.length === 0;
    say($("erase-irreversible"), answer.irreversible);
    $("erase-now-box").hidden = !answer.batched;
    tick();
    return true;
  }

  const tick = () => ($("erase-now").checked = wish.now === true);

  // Without a batch others can compute more, so what happens is foreseen again.
  $("erase-now").addEventListener("change", () => {
    const { now: _, ...rest } = wish;
    const asked = $("erase-now").checked ? { ...rest, now: true } : rest;
    attempt(async (wanted) => {
      try {
        await foresee(asked, wanted);
      } finally {
        if (wanted()) tick(); // what was not foreseen is not wished
      }
    });
  });

  // Who closes the dialog does not take back the request. The list of erasures shows it, and the
  // bar of the page why it was refused.
  $("erase-confirm").addEventListener("click", () => {
    const how = { late: showProblem };
    if (wish.departed) how.waits = "Collecting votes. This may take a minute.";
    attempt(async (wanted) => {
      const answer = await withAccess(() => erase(wish));
      if (!answer || !wanted()) return; // the prompt was closed: this dialog is as it was
      request = answer.request;
      say($("erase-title"), `Erasing ${wish.agent}`);
      show("progress");
      progress(store.view);
    }, how);
  });

  $("erase-back").addEventListener("click", () => {
    say($("erase-title"), "Erase data");
    show("what");
  });

  function progress(view) {
    const erasure = view.erasures[request];
    const state = erasure ?? { state: "waiting", text: "The request is recorded." };
    renderSteps($("erase-progress-steps"), state);
    say($("erase-progress-text"), state.text);
    const link = $("erase-certificate");
    link.hidden = !erasure?.certificate;
    if (erasure?.certificate) link.setAttribute("href", certificatePath(request));
    if (erasure?.state === "certified") say($("erase-title"), `${erasure.agent}: erased and certified`);
  }

  dialog.addEventListener("close", () => {
    if (!dialog.open) leave(); // it may have been opened again before this event
  });
  $("erase-all").addEventListener("change", scope);
  $("erase-records").addEventListener("change", scope);
  store.subscribe(["erasures"], (view) => {
    if (dialog.open && request !== null) progress(view);
  });
  return open;
}
