import { Answer } from "./answer.js";
import { find } from "./elements.js";
import { Pictures } from "./pictures.js";
import { RefusedError, Server } from "./server.js";
import { offerEfforts, readSettings, readSystem } from "./settings.js";
import { Status } from "./status.js";
import { AnswerView, clearTranscript, showQuestion, showResults } from "./transcript.js";

const server = new Server();
const pictures = new Pictures(tell);
const status = new Status(server, { model: showModel, key: askKey, rate: showLiveRate });
let messages = [];
let running = null; // what stops the answer that is on its way
let view = null;
let resultForm = null;

find("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  sendQuestion();
});
find("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  sendQuestion();
});
document.addEventListener("keydown", (event) => event.key === "Escape" && stop());
find("stop").addEventListener("click", stop);
find("new-chat").addEventListener("click", startOver);
find("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  server.setKey(find("key").value.trim());
  find("key-form").hidden = true;
  find("question").focus();
  status.look();
});
if (window.matchMedia("(max-width: 48em)").matches) find("status").open = false;
find("question").focus();
status.look();

function sendQuestion() {
  const text = find("question").value.trim();
  if (running || (!text && !find("pictures").children.length)) return;
  const shown = pictures.take();
  const parts = shown.map(({ url }) => ({ type: "image_url", image_url: { url } }));
  const content = shown.length ? [...parts, { type: "text", text }] : text;
  find("question").value = "";
  showQuestion(text, shown);
  goOn([{ role: "user", content }], () => {
    if (!find("question").value) find("question").value = text;
    pictures.replace(shown);
  });
}

function sendResults(results) {
  showResults(results);
  goOn(results.map(({ id, text }) => ({ role: "tool", tool_call_id: id, content: text })), () => {});
}

/** Send the conversation with `added` at its end and show what comes. Without an answer the
 * conversation stays as it was, and `undo` gives back what was to be sent. */
async function goOn(added, undo) {
  tell("");
  resultForm?.remove();
  const mine = (running = new AbortController());
  const answer = new Answer();
  const shown = (view = new AnswerView());
  showRunning(true);
  let failure = null;
  try {
    const body = { messages: [...readSystem(), ...messages, ...added], ...readSettings() };
    for await (const chunk of server.chat(body, mine.signal)) shown.grow(answer.add(chunk), answer);
  } catch (error) {
    failure = error;
  }
  const stopped = mine.signal.aborted;
  if (running !== mine) return; // a new conversation has begun
  running = view = null;
  showRunning(false);
  if (!answer.empty) messages = [...messages, ...added, answer.message()];
  shown.end(answer, stopped);
  if (failure && !stopped) {
    shown.fail(failure.message);
    if (failure instanceof RefusedError && failure.status === 401) askKey();
  }
  if (answer.empty && (failure || stopped)) undo();
  const calls = answer.finish === "tool_calls" ? answer.wholeCalls() : [];
  if (calls.length) resultForm = shown.askResults(calls, sendResults);
  else if (find("key-form").hidden) find("question").focus();
  status.look();
}

function stop() {
  running?.abort();
}

function startOver() {
  stop();
  running = view = resultForm = null;
  messages = [];
  showRunning(false);
  clearTranscript();
  tell("");
  find("question").focus();
}

function showRunning(active) {
  find("stop").hidden = !active;
  find("send").disabled = active;
}

function showLiveRate(text) {
  view?.showRate(text === "-" ? "" : text);
}

function showModel(properties) {
  find("model").textContent = properties.model_alias;
  document.title = `${properties.model_alias} - NInfer`;
  pictures.allow(properties.modalities.vision);
  offerEfforts(properties.reasoning_efforts);
}

function askKey() {
  if (!find("key-form").hidden) return;
  find("key-form").hidden = false;
  find("links").hidden = true; // a link carries no key
  find("key-refused").textContent = server.hasKey ? "The server does not know this key." : "";
  find("key").focus();
}

function tell(text) {
  find("notice").textContent = text;
  find("notice").hidden = !text;
}
