// Server-sent events: the view once, then changes. A lost connection is resumed and shown.

const FIRST_RETRY = 500;
const LAST_RETRY = 8000;
// The server sends something every 15 s. After a sleep, or when a cable is pulled, a connection can
// stay open for ever without any of it.
const SILENCE = 40_000;
const LOOK = 5000; // how often the silence is measured

// `on` holds: snapshot(view), change(patch), points(points), status("live" | "lost"), and
// refused(): resolves when the server's refusal may be over.
// `path` tells the address.
export function connect(path, on) {
  let retry = FIRST_RETRY;
  let source;
  let heard; // when the last message came

  const open = () => {
    const mine = new EventSource(path());
    source = mine;
    heard = Date.now();
    const listen = (name, handler) =>
      mine.addEventListener(name, (event) => {
        heard = Date.now();
        handler(JSON.parse(event.data));
      });
    listen("snapshot", on.snapshot);
    listen("change", on.change);
    listen("points", on.points);
    listen("heartbeat", on.change);
    mine.addEventListener("open", () => {
      heard = Date.now();
      retry = FIRST_RETRY;
      on.status("live");
    });
    mine.addEventListener("error", async () => {
      on.status("lost");
      // The browser reconnects by itself, with Last-Event-ID, unless the server refused.
      if (mine.readyState !== EventSource.CLOSED) return;
      await on.refused();
      setTimeout(open, retry);
      retry = Math.min(2 * retry, LAST_RETRY);
    });
  };

  open();
  setInterval(() => {
    // A closed one waits for its next try.
    if (source.readyState === EventSource.CLOSED || Date.now() - heard < SILENCE) return;
    source.close();
    on.status("lost");
    open();
  }, LOOK);
}
