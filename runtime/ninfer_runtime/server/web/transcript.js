import { layArguments } from "./answer.js";
import { find, make } from "./elements.js";
import { describeTimings } from "./figures.js";
import { drawPicture } from "./pictures.js";

const NEAR = 80; // pixels from the end within which the view follows the text
// Milliseconds between two drawings: a long text is laid out anew each time.
const DRAW_PAUSE = 50;
const place = () => find("transcript");

/** Show what the user says. */
export function showQuestion(text, pictures) {
  const article = make("article", { className: "user" }, make("h2", {}, "You"));
  if (pictures.length) {
    article.append(make("div", { className: "pictures" }, ...pictures.map(drawPicture)));
  }
  article.append(make("div", { className: "text" }, text));
  addArticle(article);
}

/** Show what tools gave back. */
export function showResults(results) {
  const lines = results.map(({ name, text }) =>
    make("div", { className: "result" }, make("strong", {}, name), make("div", { className: "text" }, text)));
  addArticle(make("article", { className: "tool" }, make("h2", {}, "Results"), ...lines));
}

export function clearTranscript() {
  place().replaceChildren(find("greeting") ?? make("p", { id: "greeting" }, "A new conversation."));
}

function addArticle(article) {
  find("greeting")?.remove();
  place().append(article);
  place().scrollTop = place().scrollHeight;
}

/** An answer on the page while it grows. All of it is text. */
export class AnswerView {
  #began = performance.now();
  #thought = document.createTextNode("");
  #text = document.createTextNode("");
  #summary = make("summary", {}, "Thinking…");
  #figures = make("p", { className: "figures" }, "waiting for a lane");
  #calls = make("div");
  #thinking = make("details", { className: "thinking", hidden: true }, this.#summary,
    make("div", { className: "thought" }, this.#thought));
  #article = make("article", { className: "assistant", ariaBusy: "true" },
    make("h2", {}, "Assistant"), this.#thinking,
    make("div", { className: "text" }, this.#text), this.#calls, this.#figures);
  #thinkingEnded = false;
  #waiting = { reasoning: "", content: "" };
  #timer = 0;
  #begun = false;
  #rate = "";

  constructor() {
    addArticle(this.#article);
  }

  /** Show what a chunk added, a little later with what else comes until then. */
  grow(added, answer) {
    this.#waiting.reasoning += added.reasoning;
    this.#waiting.content += added.content;
    this.#timer ||= setTimeout(() => this.#draw(answer), DRAW_PAUSE);
  }

  #draw(answer) {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const added = this.#waiting;
    this.#waiting = { reasoning: "", content: "" };
    const follows = place().scrollHeight - place().scrollTop - place().clientHeight < NEAR;
    this.#begun = !answer.empty;
    this.#figures.textContent = this.#begun ? this.#rate : "reading the prompt";
    if (added.reasoning) {
      this.#thinking.hidden = false;
      this.#thought.appendData(added.reasoning);
    }
    if (added.content) this.#text.appendData(added.content);
    if (answer.reasoning && (answer.content || answer.calls.length)) this.#endThinking();
    if (answer.calls.length) this.#drawCalls(answer);
    if (follows) place().scrollTop = place().scrollHeight;
  }

  /** Show how fast lanes are while this answer grows. */
  showRate(text) {
    this.#rate = text;
    if (this.#begun) this.#figures.textContent = text;
  }

  /** Show how the answer ended. */
  end(answer, stopped) {
    this.#draw(answer);
    if (answer.reasoning) this.#endThinking();
    this.#article.ariaBusy = "false";
    const parts = answer.timings ? [describeTimings(answer.timings)] : [];
    if (stopped) parts.push("stopped");
    else if (answer.finish === "length") parts.push("cut: no more tokens allowed");
    this.#figures.textContent = parts.join(" · ");
    for (const warning of answer.warnings) {
      this.#article.append(make("p", { className: "warning" }, warning));
    }
  }

  fail(message) {
    this.#article.ariaBusy = "false";
    this.#figures.textContent = "";
    this.#article.append(make("p", { className: "error", role: "alert" }, message));
  }

  /** Ask for the results of the calls; `send` gets a list of id, name and text. */
  askResults(calls, send) {
    const form = make("form", { className: "results" });
    const fields = calls.map((call) => {
      const field = make("textarea", { rows: 1, ariaLabel: `Result of ${call.name}` });
      form.append(make("label", {}, `Result of ${call.name}`, field));
      return field;
    });
    form.append(make("button", { type: "submit" }, "Send results"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      form.remove();
      send(calls.map(({ id, name }, index) => ({ id, name, text: fields[index].value })));
    });
    this.#article.append(form);
    form.scrollIntoView({ block: "nearest" });
    fields[0].focus();
    return form;
  }

  #endThinking() {
    if (this.#thinkingEnded) return;
    this.#thinkingEnded = true;
    const seconds = (performance.now() - this.#began) / 1000;
    this.#summary.textContent = `Thought for ${seconds.toFixed(1)} s`;
  }

  #drawCalls(answer) {
    answer.calls.forEach((call, index) => {
      while (this.#calls.children.length <= index) {
        this.#calls.append(make("div", { className: "call" }, make("strong"), make("pre")));
      }
      const [name, text] = this.#calls.children[index].children;
      name.textContent = call.name;
      text.textContent = answer.finish ? layArguments(call.text) : call.text;
    });
  }
}
