// Searches run in a web worker, which browsers refuse to pages opened from a file. There, run the worker's script in a
// hidden frame instead. (The search script itself looks for the name IFrameWorker.)
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open(); // some browsers load an empty page into the frame later, unless it has one
      inside.document.write("<!doctype html><body></body>");
      inside.document.close();
      inside.importScripts = (...scripts) => scripts.reduce((before, script) => before.then(() => load(script)), Promise.resolve());
      inside.postMessage = data => {
        const event = new MessageEvent("message", { data: structuredClone(data) });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const load = script => new Promise((resolve, reject) => {
        const element = inside.document.createElement("script");
        element.onload = resolve;
        element.onerror = reject;
        element.src = script;
        inside.document.body.appendChild(element);
      });
      this.ready = load(url);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
