import { find, make } from "./elements.js";

/** Return the fields of a request that the settings stand for; throws for tools that are no JSON. */
export function readSettings() {
  const fields = {};
  const thinking = find("thinking").value;
  if (thinking) fields.enable_thinking = thinking === "on";
  const effort = find("effort").value;
  if (effort && thinking !== "off") fields.reasoning_effort = effort;
  const temperature = find("temperature").value;
  if (temperature !== "") fields.temperature = Number(temperature);
  const most = find("max-tokens").value;
  if (most !== "") fields.max_tokens = Number(most);
  const tools = find("tools").value.trim();
  if (tools) fields.tools = readTools(tools);
  return fields;
}

/** Offer the efforts that the model's template knows. */
export function offerEfforts(efforts) {
  const select = find("effort");
  select.hidden = select.labels[0].hidden = efforts.length === 0;
  select.replaceChildren(select.options[0], ...efforts.map((name) => make("option", {}, name)));
}

/** Return the system message as a list of messages. */
export function readSystem() {
  const content = find("system").value;
  return content.trim() ? [{ role: "system", content }] : [];
}

function readTools(text) {
  try {
    const found = JSON.parse(text);
    if (Array.isArray(found)) return found;
  } catch (error) {
    throw new Error(`The tools in the settings are not JSON: ${error.message}`);
  }
  throw new Error("The tools in the settings are not a list.");
}
