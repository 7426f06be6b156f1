// Downloads: the server's refusal is shown, which a plain download would hide.

import { withAccess } from "./access.js";
import { ApiError, file } from "./api.js";
import { showProblem } from "./problem.js";

export function startSaving() {
  document.addEventListener("click", async (event) => {
    const link = event.target.closest?.("a[download]");
    if (!link || link.protocol === "blob:") return;
    event.preventDefault();
    if (link.ariaBusy) return;
    link.ariaBusy = "true";
    try {
      const answer = await withAccess(() => file(link.getAttribute("href")));
      if (answer) save(answer);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      showProblem(error);
    } finally {
      link.ariaBusy = null;
    }
  });
}

function save({ name, content }) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
