/** An answer as it grows out of the chunks of a stream. */
export class Answer {
  reasoning = "";
  content = "";
  calls = [];
  finish = null;
  timings = null;
  usage = null;
  warnings = [];

  /** Add a chunk; return what it added to reasoning and content. Throws what the server reports. */
  add(chunk) {
    if (chunk.error) throw new Error(chunk.error.message ?? "the server reports an error");
    const choice = chunk.choices?.[0];
    const delta = choice?.delta ?? {};
    const added = { reasoning: delta.reasoning_content ?? "", content: delta.content ?? "" };
    this.reasoning += added.reasoning;
    this.content += added.content;
    for (const piece of delta.tool_calls ?? []) this.#addCall(piece);
    this.finish = choice?.finish_reason ?? this.finish;
    this.timings = chunk.timings ?? this.timings;
    this.usage = chunk.usage ?? this.usage;
    this.warnings = chunk.warnings ?? this.warnings;
    return added;
  }

  #addCall(piece) {
    const call = (this.calls[piece.index] ??= { id: "", name: "", text: "" });
    call.id = piece.id ?? call.id;
    call.name = piece.function?.name ?? call.name;
    call.text += piece.function?.arguments ?? "";
  }

  get empty() {
    return !this.reasoning && !this.content && !this.calls.length;
  }

  /** Return the message that stands for this answer in the next request. Calls whose arguments
   * are not whole, as after a stop, are left out. */
  message() {
    const found = { role: "assistant", content: this.content };
    if (this.reasoning) found.reasoning_content = this.reasoning;
    const calls = this.wholeCalls();
    if (calls.length) {
      found.tool_calls = calls.map((call) => ({
        id: call.id, type: "function", function: { name: call.name, arguments: call.text },
      }));
    }
    return found;
  }

  wholeCalls() {
    return this.calls.filter((call) => call && readObject(call.text) !== null);
  }
}

/** Return arguments with one line each, or the text itself when it is not (yet) an object. */
export function layArguments(text) {
  const found = readObject(text);
  return found === null ? text : JSON.stringify(found, null, 2);
}

function readObject(text) {
  try {
    const found = JSON.parse(text);
    return found !== null && typeof found === "object" ? found : null;
  } catch {
    return null;
  }
}
