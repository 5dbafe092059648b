import { find, make } from "./elements.js";

/** Images that go with the next message: chosen, dropped or pasted. */
export class Pictures {
  #chosen = [];
  #tell;
  allowed = true;

  constructor(tell) {
    this.#tell = tell;
    find("choose").addEventListener("click", () => find("files").click());
    find("files").addEventListener("change", (event) => {
      this.add(event.target.files);
      event.target.value = "";
    });
    document.addEventListener("paste", (event) => {
      // Office programs put a picture of the text beside the text.
      if (!event.clipboardData.types.includes("text/plain")) this.add(event.clipboardData.files);
    });
    document.addEventListener("dragover", (event) => this.#hover(event, true));
    document.addEventListener("dragleave", (event) => this.#hover(event, false));
    document.addEventListener("drop", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      this.#hover(event, false);
      this.add(event.dataTransfer.files);
    });
  }

  allow(allowed) {
    this.allowed = allowed;
    find("choose").disabled = !allowed;
    find("choose").title = allowed ? "" : "the server was started without --vision";
  }

  async add(files) {
    for (const file of [...files]) {
      if (!this.allowed) {
        this.#tell("Images cannot be sent: the server was started without --vision.");
      } else if (!file.type.startsWith("image/")) {
        this.#tell(`${file.name} is not an image.`);
      } else {
        this.#chosen.push({ name: file.name, url: await readUrl(file) });
      }
    }
    this.#draw();
  }

  /** Return the images and forget them. */
  take() {
    const taken = this.#chosen;
    this.replace([]);
    return taken;
  }

  replace(pictures) {
    this.#chosen = pictures;
    this.#draw();
  }

  #hover(event, over) {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    find("composer").classList.toggle("over", over);
  }

  #draw() {
    const figures = this.#chosen.map((picture) => {
      const remove = make("button", { type: "button", ariaLabel: `Remove ${picture.name}` }, "×");
      remove.addEventListener("click", () => {
        this.replace(this.#chosen.filter((each) => each !== picture));
        find("question").focus();
      });
      return make("figure", {}, drawPicture(picture), remove);
    });
    find("pictures").replaceChildren(...figures);
  }
}

export function drawPicture(picture) {
  return make("img", { src: picture.url, alt: picture.name || "image" });
}

function readUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
