// Server-sent events: the view once, then changes. A lost connection is resumed and shown.

const FIRST_RETRY = 500;
const LAST_RETRY = 8000;

// `on` holds: snapshot(view), change(patch), points(points), status("live" | "lost"), and
// refused(): resolves when the server's refusal may be over.
export function connect(url, on) {
  let retry = FIRST_RETRY;

  const open = () => {
    const source = new EventSource(url);
    const listen = (name, handler) =>
      source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
    listen("snapshot", on.snapshot);
    listen("change", on.change);
    listen("points", on.points);
    source.addEventListener("open", () => {
      retry = FIRST_RETRY;
      on.status("live");
    });
    source.addEventListener("error", async () => {
      on.status("lost");
      // The browser reconnects by itself, with Last-Event-ID, unless the server refused.
      if (source.readyState !== EventSource.CLOSED) return;
      await on.refused();
      setTimeout(open, retry);
      retry = Math.min(2 * retry, LAST_RETRY);
    });
  };

  open();
}
