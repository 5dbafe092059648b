import { find, make } from "./elements.js";
import {
  count, describeLane, measureRate, readMetrics, showBytes, showRate, showShare,
} from "./figures.js";

const PAUSE = 1000; // milliseconds between two looks
const BUSY_PAUSE = 400;
const HIDDEN_PAUSE = 10000;

/** Looks at the server again and again and shows what it finds. */
export class Status {
  #server;
  #last = null;
  #properties = null;
  #timer = 0;
  #turn = 0;

  /** `on.model` gets /props, `on.key` is called when a key is wanted, `on.rate` with the rate. */
  constructor(server, on) {
    this.#server = server;
    this.on = on;
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
  }

  /** Look now, then again after a while. */
  async look() {
    clearTimeout(this.#timer);
    const mine = (this.#turn += 1);
    const busy = await this.#look().catch(() => this.#show("", "not reachable"));
    if (this.#turn !== mine) return; // another look has begun meanwhile
    const pause = document.hidden ? HIDDEN_PAUSE : busy ? BUSY_PAUSE : PAUSE;
    this.#timer = setTimeout(() => this.look(), pause);
  }

  async #look() {
    const health = await (await this.#server.ask("health")).json();
    find("loading").hidden = health.status !== "loading";
    if (health.status !== "ok") return this.#showWaiting(health);
    this.#properties ??= await this.#read("props");
    if (this.#properties === null) return this.#show("", "API key wanted");
    const [slots, metrics, models] = await Promise.all([
      this.#read("slots"), this.#read("metrics"), this.#last ? null : this.#read("v1/models"),
    ]);
    if (slots === null || metrics === null) return this.#show("", "API key wanted");
    this.#show("ready", "ready");
    if (models) find("weights").textContent = showBytes(models.data[0].meta.size);
    this.#showSlots(slots);
    this.#showMetrics(readMetrics(metrics));
    return slots.some((slot) => slot.is_processing);
  }

  /** Return what stands at `path`; null when the key is wrong. */
  async #read(path) {
    const response = await this.#server.ask(path);
    if (response.status === 401) {
      this.on.key();
      return null;
    }
    if (!response.ok) throw new Error(`${path}: ${response.status}`);
    const found = await (path === "metrics" ? response.text() : response.json());
    if (path === "props") this.on.model(found);
    return found;
  }

  #showWaiting(health) {
    this.#properties = this.#last = null;
    const percent = health.percent ?? 0;
    find("loading").value = percent;
    if (health.status === "loading") this.#show("", `loading the model: ${percent.toFixed(0)}%`);
    else this.#show("failed", health.reason ? `failed: ${health.reason}` : health.status);
  }

  #show(kind, text) {
    const place = find("state");
    place.className = kind;
    if (place.textContent !== text) place.textContent = text;
  }

  #showSlots(slots) {
    const now = { slots, time: performance.now() / 1000 };
    const rate = showRate(this.#last && measureRate(this.#last, now));
    this.#last = now;
    find("rate").textContent = rate;
    this.on.rate(rate);
    const lines = slots.map((slot) =>
      make("li", {}, make("span", {}, `Lane ${slot.id}`), make("span", {}, describeLane(slot))));
    find("lanes").replaceChildren(...lines);
  }

  #showMetrics(metrics) {
    const get = (name) => metrics.get(name) ?? 0;
    const made = get("llamacpp:tokens_predicted_total");
    find("mean-rate").textContent = made ? showRate(get("llamacpp:predicted_tokens_seconds")) : "-";
    find("acceptance").textContent =
      showShare(get("ninfer:draft_accepted_tokens_total"), get("ninfer:draft_tokens_total"));
    const used = get("ninfer:kv_pages_used");
    const pages = get("ninfer:kv_pages");
    find("memory").value = pages ? used / pages : 0;
    find("memory-text").textContent = `${count(used * 64)} of ${count(pages * 64)}`;
    find("queue").textContent =
      `${get("ninfer:running")} running, ${get("ninfer:waiting")} waiting`;
    find("snapshots").textContent = `${get("ninfer:prefix_snapshots_on_device")} device, ` +
      `${get("ninfer:prefix_snapshots_on_host")} host`;
    const reused = get("ninfer:reused_prompt_tokens_total");
    find("reused").textContent =
      showShare(reused, reused + get("llamacpp:prompt_tokens_total"));
  }
}
