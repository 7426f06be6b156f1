// Connects the server's events with the panels of the page.

import { $ } from "./dom.js";
import { askForCode, startAccess, useLink } from "./access.js";
import { startAgents } from "./agents.js";
import { ApiError, eventsPath, isLocked } from "./api.js";
import { startControls } from "./controls.js";
import { startDetails } from "./details.js";
import { startDialogs } from "./dialogs.js";
import { startErase } from "./erase.js";
import { startErasures } from "./erasures.js";
import { refreshTimes } from "./format.js";
import { startGraph } from "./graph.js";
import { pressed, showConnection, startHeader } from "./header.js";
import { startPosterior } from "./posterior.js";
import { startProblems } from "./problem.js";
import { startSaving } from "./save.js";
import { startSeries } from "./series.js";
import { Store } from "./state.js";
import { connect } from "./stream.js";
import { startTheme } from "./theme.js";
import { startTimeline } from "./timeline.js";
import { startVerify } from "./verify.js";
import { startWaits } from "./waits.js";

const store = new Store();

startProblems();
startTheme($("theme"));
startDialogs();
startAccess();
startSaving();
startVerify();
startHeader(store); // first: it sets the clock that all others show
const aim = startControls(store);
const erase = startErase(store);
const details = startDetails(store, { erase, aim });
startWaits(store, details);
startGraph(store, details);
startPosterior(store);
startSeries(store);
startErasures(store, erase);
startTimeline(store);
startAgents(store, details);
store.subscribe(["title"], () => document.body.classList.add("ready"));
setInterval(refreshTimes, 5000);

// Where reading needs the code, too, the server refuses the events until it has it: at first, after
// its restart, and when the session is over.
async function refused() {
  try {
    if (!(await isLocked())) return;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // the server is away: the stream tries again
    return;
  }
  showConnection("locked");
  while (!(await askForCode())) await pressed();
}

await useLink();
connect(eventsPath, {
  snapshot: (view) => store.replace(view),
  change: (patch) => store.change(patch),
  points: (points) => store.points(points),
  status: showConnection,
  refused,
});
