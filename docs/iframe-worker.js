// Pages that a browser opens as files may not start workers, such as the one that searches. There
// an invisible frame runs the worker's script instead.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = (...urls) =>
        urls.reduce((done, each) => done.then(() => this.load(each)), this.ready);
      this.ready = this.load(url);
    }
    load(url) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        Object.assign(script, { src: url, onload: done, onerror: failed });
        this.inside.document.body.append(script);
      });
    }
    postMessage(data) {
      const event = new this.inside.MessageEvent("message", { data });
      this.ready.then(() => this.inside.dispatchEvent(event));
    }
    terminate() {}
  };
}
