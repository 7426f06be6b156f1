// What went wrong, in one bar at the top of the page: a failed download, or an error of the page.

import { $ } from "./dom.js";
import { showError } from "./dialogs.js";

export function showProblem(error) {
  const dialog = document.querySelector("dialog[open] > .error"); // the bar is behind a dialog
  showError(dialog ?? $("problem-text"), error);
  if (dialog === null) $("problem").hidden = false;
}

export function startProblems() {
  $("problem-close").addEventListener("click", () => {
    $("problem").hidden = true;
  });
  // Once: the second error often follows from the first.
  let told = false;
  const tell = (error) => {
    if (told || !(error instanceof Error)) return; // an observer's notice of a late size is none
    told = true;
    showProblem({
      message: `A part of this page failed (${error.message}) and may show an old state.`,
      fix: "Reload the page.",
    });
  };
  addEventListener("error", (event) => tell(event.error));
  addEventListener("unhandledrejection", (event) => tell(event.reason));
}
