// Browsers start no web worker from file://. There, the search runs its worker in an empty frame of
// the page instead: the frame's window stands for the worker's global object. As between a page and a
// worker, messages are copies: the search changes what it is given.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.onmessage = this.onerror = this.onmessageerror = null
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = message => {
        const data = structuredClone(message)
        setTimeout(() => this.onmessage?.({ data }))
      }
      this.ready = new Promise((resolve, reject) => {
        const script = inside.document.createElement("script")
        script.src = new URL(url, location.href).href
        script.onload = () => resolve(inside)
        script.onerror = reject
        inside.document.body.append(script)
      })
      this.ready.catch(error => this.onerror?.(error))
    }
    postMessage(message) {
      const data = structuredClone(message)
      this.ready.then(inside => inside.onmessage({ data }), () => {})
    }
    terminate() {
      this.frame.remove()
    }
  }
}
