// Verifies a certificate that is dropped onto the page or chosen as a file.

import { $, el, list } from "./dom.js";
import { announce } from "./announce.js";
import { ApiError, verify } from "./api.js";
import { openDialog, showError } from "./dialogs.js";
import { kindName } from "./erasures.js";

const LARGEST = 16 * 1024 * 1024;

export function startVerify() {
  const [input, overlay] = [$("verify-file"), $("drop")];
  let depth = 0; // dragenter and dragleave come for every element on the way

  const holdsFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");

  addEventListener("dragenter", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    depth += 1;
    overlay.hidden = false;
  });
  addEventListener("dragover", (event) => {
    if (holdsFiles(event)) event.preventDefault();
  });
  addEventListener("dragleave", (event) => {
    if (!holdsFiles(event)) return;
    depth = Math.max(0, depth - 1);
    overlay.hidden = depth === 0;
  });
  addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    depth = 0;
    overlay.hidden = true;
    const [file] = event.dataTransfer.files;
    if (file) check(file);
  });
  $("verify-open").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    const [file] = input.files;
    input.value = "";
    if (file) check(file);
  });
}

async function check(file) {
  show(null);
  $("verify-name").textContent = file.name;
  openDialog($("verify"));
  try {
    if (file.size > LARGEST) {
      throw new ApiError(0, "size", "The file is larger than 16 MiB.", "Choose a certificate.");
    }
    const answer = await verify(await file.arrayBuffer());
    show(answer);
    announce("verify", answer.text);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    $("verify-state").textContent = "Not verified";
    $("verify").dataset.state = "invalid";
    showError($("verify-error"), error);
  }
}

function show(answer) {
  showError($("verify-error"), null);
  $("verify").dataset.state = answer === null ? "busy" : answer.valid ? "valid" : "invalid";
  $("verify-state").textContent =
    answer === null ? "Verifying…" : answer.valid ? "The certificate is valid" : "The certificate is not valid";
  $("verify-text").textContent = answer?.text ?? "";
  for (const [id, items] of [
    ["verify-proves", answer?.proves ?? []],
    ["verify-not", answer?.does_not_prove ?? []],
  ]) {
    $(`${id}-box`).hidden = items.length === 0;
    list($(id), items);
  }
  erasures(answer?.erasures ?? []);
}

// Each erasure as label and text.
function erasures(rows) {
  $("verify-erasures-box").hidden = rows.length === 0;
  $("verify-erasures").replaceChildren(
    ...rows.map((row) =>
      el(
        "dl",
        { class: "facts" },
        Object.entries(row).map(([label, text]) =>
          el("div", {}, el("dt", { text: label }), el("dd", { text: label === "kind" ? kindName(text) : text })),
        ),
      ),
    ),
  );
}
