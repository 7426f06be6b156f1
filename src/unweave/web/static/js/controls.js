// Controls of a simulation: play, pause, step, speed, faults, the chapters of the paper.

import { $, el, reconcile, say } from "./dom.js";
import { withAccess } from "./access.js";
import { ApiError, control } from "./api.js";
import { showError } from "./dialogs.js";
import { number } from "./format.js";

// The slider is logarithmic: 100 steps from the slowest to the fastest.
const [SLOWEST, FASTEST, STEPS] = [0.1, 1000, 100];
const speedAt = (step) => SLOWEST * (FASTEST / SLOWEST) ** (step / STEPS);
const stepAt = (speed) => (STEPS * Math.log(speed / SLOWEST)) / Math.log(FASTEST / SLOWEST);

export function startControls(store) {
  const [speed, target] = [$("speed"), $("fault-agent")];
  speed.max = STEPS;
  let dragging = false;

  async function press(what) {
    try {
      await withAccess(() => control(what));
      showError($("controls-error"), null);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      showError($("controls-error"), error);
      showSpeed(store.view.controls.speed); // what was refused is not shown as if it were true
    }
  }

  const rate = (value) =>
    store.view.kind === "paper" ? `${number(value, 2)} hops per second` : `${number(value, 2)}× real time`;
  const chosen = () => Number(speedAt(Number(speed.value)).toPrecision(2));

  function showSpeed(value) {
    speed.value = stepAt(value);
    say($("speed-text"), rate(value));
    speed.setAttribute("aria-valuetext", rate(value));
  }

  $("play").addEventListener("click", () =>
    press({ do: store.view.controls.playing ? "pause" : "play" }),
  );
  $("step").addEventListener("click", () => press({ do: "step" }));
  $("restart").addEventListener("click", () => press({ do: "restart" }));
  $("reseed").addEventListener("click", () => {
    const [seed] = crypto.getRandomValues(new Uint16Array(1));
    press({ do: "restart", value: String(seed) });
  });
  $("forget").addEventListener("click", () =>
    press({ do: "forget", agent: store.view.controls.may_forget[0] }),
  );
  $("repeat-copy").addEventListener("click", () =>
    navigator.clipboard?.writeText(store.view.controls.repeat),
  );
  speed.addEventListener("input", () => {
    dragging = true;
    say($("speed-text"), rate(chosen()));
  });
  speed.addEventListener("change", () => {
    dragging = false;
    press({ do: "speed", value: String(chosen()) });
  });

  function faultButtons(list, faults, named) {
    reconcile(
      list,
      faults,
      ([fault]) => fault,
      ([fault, text]) => {
        const struck = () => (named ? { agent: target.value } : {});
        const click = () => press({ do: "fault", value: fault, ...struck() });
        return el("button", { type: "button", class: "button small", text, on: { click } });
      },
      (node, [, text]) => say(node, text),
    );
  }

  function render(view, change) {
    const { controls } = view;
    $("controls-panel").hidden = !controls;
    if (!controls) return;
    const { playing, faults, finished, chapters, repeat, story } = controls;
    const play = $("play");
    say(play.querySelector("span"), playing ? "Pause" : "Play");
    play.dataset.playing = playing;
    play.disabled = finished !== undefined;
    $("step").disabled = finished !== undefined || playing;
    $("finished").hidden = finished === undefined;
    say($("finished-text"), finished ?? "");
    $("repeat-box").hidden = finished === undefined || repeat === undefined;
    say($("repeat"), repeat ?? "");
    if (!dragging) showSpeed(controls.speed);

    const named = new Set(controls.of_agent ?? []);
    const all = Object.entries(faults);
    faultButtons($("faults"), all.filter(([fault]) => !named.has(fault)), false);
    faultButtons($("agent-faults"), all.filter(([fault]) => named.has(fault)), true);
    $("faults-box").hidden = all.length === 0;
    $("agent-faults-box").hidden = named.size === 0;
    const [forgettable] = controls.may_forget ?? [];
    $("forget").hidden = forgettable === undefined;
    say($("forget"), `Forget ${forgettable ?? ""}`);
    if (change.fresh || change.keys.has("graph")) {
      reconcile(
        target,
        view.graph.names,
        (name) => `:${name}`,
        (name) => el("option", { value: name, text: name }),
      );
    }

    $("chapters").hidden = !chapters;
    reconcile(
      $("chapters"),
      Object.entries(chapters ?? {}),
      ([id]) => id,
      ([id, text]) =>
        el("button", { type: "button", text, on: { click: () => press({ do: "chapter", value: id }) } }),
      (node, [id]) => {
        if (id === controls.chapter) node.setAttribute("aria-current", "true");
        else node.removeAttribute("aria-current");
      },
    );
    $("story").hidden = !story;
    say($("story"), story ?? "");
  }

  store.subscribe(["controls", "graph", "kind"], render);

  // Another panel chose an agent for the next fault.
  return (name) => {
    target.value = name;
    $("controls-panel").scrollIntoView({ block: "nearest" });
    target.focus();
  };
}
