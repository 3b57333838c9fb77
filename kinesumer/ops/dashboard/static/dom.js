// Helpers for elements. Values of rows are inserted as text, never as HTML.

/** Return an element; children are elements or text. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Return an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Set a listener, a class or an attribute; null removes the attribute. */
export function set(element, name, value) {
  if (name.startsWith("on")) {
    element.addEventListener(name.slice(2), value);
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value === true ? "" : value);
  }
}

/** Set an element's text if it differs, since screen readers announce each change. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Match a parent's children to the items, in order; kept elements keep the focus. */
export function keyed(parent, items, keyOf, create, update) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const known = parent.keyedChildren ?? new Map();
  const next = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    const element = known.get(key) ?? create(item);
    next.set(key, element);
    known.delete(key);
    if (element === place) place = place.nextSibling;
    else parent.insertBefore(element, place);
    update(element, item);
  }
  for (const element of known.values()) element.remove();
  parent.keyedChildren = next;
  // An element that is moved within its parent loses the focus.
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

/** Return a pill with a state's name. */
export function pill(text, tone) {
  return h("span", { class: "pill", "data-tone": tone }, text);
}

/** Return a modal dialog with a heading and content; Escape closes it. */
export function dialog(title, ...children) {
  const id = `dialog-${crypto.randomUUID()}`;
  const opened = h("dialog", { "aria-labelledby": id }, h("h2", { id }, title), ...children);
  opened.addEventListener("close", () => opened.remove());
  opened.addEventListener("click", (event) => {
    if (event.target === opened) opened.close();
  });
  document.body.append(opened);
  opened.showModal();
  return opened;
}

export const calm = matchMedia("(prefers-reduced-motion: reduce)");
