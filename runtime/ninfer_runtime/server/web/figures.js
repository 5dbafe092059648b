/** Numbers of the server as people read them. */

/** Return name -> value of the lines without labels in Prometheus' text form. */
export function readMetrics(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const parts = line.match(/^([A-Za-z_:][\w:]*) (\S+)/);
    if (parts) found.set(parts[1], Number(parts[2]));
  }
  return found;
}

/** Return the tokens a second that lanes made between two looks at /slots, each with its time in
 * seconds; null when no lane was at work in both. */
export function measureRate(before, now) {
  let tokens = 0;
  let seen = false;
  for (const slot of now.slots) {
    const old = before.slots.find((each) => each.id === slot.id);
    if (!slot.is_processing || !old?.is_processing) continue;
    // Another answer may have taken the lane in between.
    if (slot.predicted_tokens < old.predicted_tokens) continue;
    tokens += slot.predicted_tokens - old.predicted_tokens;
    seen = true;
  }
  const seconds = now.time - before.time;
  return seen && seconds > 0 ? tokens / seconds : null;
}

export function showRate(rate) {
  return rate === null ? "-" : `${rate < 100 ? rate.toFixed(1) : rate.toFixed(0)} tok/s`;
}

export function showShare(part, whole) {
  return whole > 0 ? `${Math.round((100 * part) / whole)}% of ${count(whole)}` : "-";
}

export function showBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = bytes > 0 ? Math.min(Math.floor(Math.log2(bytes) / 10), units.length - 1) : 0;
  return `${(bytes / 2 ** (10 * step)).toFixed(step ? 1 : 0)} ${units[step]}`;
}

export function count(number) {
  return Math.round(number).toLocaleString("en");
}

/** Return what a lane does. */
export function describeLane(slot) {
  if (!slot.is_processing) return "idle";
  if (!slot.predicted_tokens) {
    return `prompt ${count(slot.processed_tokens ?? 0)} of ${count(slot.prompt_tokens ?? 0)}`;
  }
  return `answer ${count(slot.predicted_tokens)} of at most ${count(slot.max_tokens)}`;
}

/** Return what a finished answer cost, from `timings` of its last chunk. */
export function describeTimings(timings) {
  const parts = [`${count(timings.predicted_n)} tokens`];
  if (timings.predicted_per_second) parts.push(showRate(timings.predicted_per_second));
  const cached = timings.cache_n ? ` (${count(timings.cache_n)} reused)` : "";
  parts.push(`prompt ${count(timings.prompt_n + timings.cache_n)}${cached}`);
  parts.push(`first token after ${(timings.prompt_ms / 1000).toFixed(2)} s`);
  if (timings.draft_n) parts.push(`drafts accepted ${showShare(timings.draft_n_accepted, timings.draft_n)}`);
  return parts.join(" · ");
}
