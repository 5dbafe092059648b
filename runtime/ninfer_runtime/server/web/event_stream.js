/** Server-sent events out of pieces of text that are cut anywhere. */
export class EventReader {
  #line = "";
  #data = [];

  /** Return the data of every event that `piece` completes. */
  push(piece) {
    const lines = piece.split("\n");
    lines[0] = this.#line + lines[0];
    this.#line = lines.pop();
    return lines.map((line) => this.#take(line.replace(/\r$/, ""))).filter((data) => data !== null);
  }

  /** Keep what a line says; return the data of the event that it ends, else null. */
  #take(line) {
    if (line === "") {
      const data = this.#data;
      this.#data = [];
      return data.length ? data.join("\n") : null;
    }
    if (line.startsWith("data:")) this.#data.push(line.slice(5).replace(/^ /, ""));
    return null;
  }
}
