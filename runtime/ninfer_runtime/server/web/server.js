import { EventReader } from "./event_stream.js";

/** A status of the server that is not a success. */
export class RefusedError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The server that this page comes from. Its key lasts as long as the tab. */
export class Server {
  #key = readStored();

  setKey(key) {
    this.#key = key;
    try {
      sessionStorage.setItem("ninfer-key", key);
    } catch {
      // Storage may be switched off; the key then lasts until the page is left.
    }
  }

  get hasKey() {
    return this.#key !== "";
  }

  /** Return the response; RefusedError for a status that is not a success. */
  async request(path, options = {}) {
    const response = await this.ask(path, options);
    if (!response.ok) throw await refusal(response);
    return response;
  }

  ask(path, options = {}) {
    const headers = { ...options.headers };
    if (this.#key) headers.authorization = `Bearer ${this.#key}`;
    return fetch(path, { ...options, headers, cache: "no-store" });
  }

  /** Give the chunks of a chat completion. */
  async *chat(body, signal) {
    const response = await this.request("v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...body, stream: true }),
      signal,
    });
    const events = new EventReader();
    const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await pieces.read();
      if (done) throw new Error("the connection ended in the middle of the answer");
      for (const data of events.push(value)) {
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
    }
  }
}

async function refusal(response) {
  let message = response.statusText || "refused";
  try {
    message = (await response.json()).error.message;
  } catch {
    // Something in front of the server answered; its status has to do.
  }
  return new RefusedError(response.status, `${message} (${response.status})`);
}

function readStored() {
  try {
    return sessionStorage.getItem("ninfer-key") ?? "";
  } catch {
    return "";
  }
}
