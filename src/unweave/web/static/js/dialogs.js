// Dialogs: opened with focus on their heading, closed by Escape, by their button, or beside them.

export function openDialog(dialog) {
  if (!dialog.open) dialog.showModal();
  const heading = dialog.querySelector("h2");
  heading?.setAttribute("tabindex", "-1");
  heading?.focus();
}

export function startDialogs() {
  for (const dialog of document.querySelectorAll("dialog")) {
    for (const button of dialog.querySelectorAll("[data-close]")) {
      button.addEventListener("click", () => dialog.close());
    }
    // A press that begins on the backdrop; one that begins inside may be a selection of text.
    dialog.addEventListener("pointerdown", (event) => {
      if (event.target !== dialog) return;
      const area = dialog.getBoundingClientRect();
      const inside =
        event.clientX >= area.left &&
        event.clientX <= area.right &&
        event.clientY >= area.top &&
        event.clientY <= area.bottom;
      if (!inside) dialog.close();
    });
  }
}

// The server's messages carry their fix already; those of the page have it apart.
export function showError(node, error) {
  node.hidden = !error;
  const { message = "", fix } = error ?? {};
  const text = fix && !message.includes("Fix:") ? `${message} Fix: ${fix}` : message;
  node.textContent = text; // as it is: it may begin with the name of an agent
}
