// Runs before the first paint: a remembered choice must not flash.
(() => {
  try {
    const theme = localStorage.getItem("unweave-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is off: the system's choice applies.
  }
})();
