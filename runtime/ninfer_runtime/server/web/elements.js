/** Return the element of the page with this id. */
export function find(id) {
  return document.getElementById(id);
}

/** Return a new element. Children that are strings become text, never markup. */
export function make(name, settings = {}, ...children) {
  const element = Object.assign(document.createElement(name), settings);
  element.append(...children);
  return element;
}
