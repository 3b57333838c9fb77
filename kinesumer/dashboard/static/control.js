// Changes, if the server accepts them and the page has the token from the printed link.

import { dialog, h, keyed, say } from "./dom.js";
import { shown } from "./format.js";

const KEPT = "kinesumer token";
const TYPING_MILLIS = 700;
let token = sessionStorage.getItem(KEPT);
let refusal = "changes need the printed link";

/** Exchange the printed link's invitation for the token, once. */
export async function enter() {
  const invitation = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!invitation) return;
  history.replaceState(null, "", location.pathname);
  const answer = await post("token", { invitation });
  if (!answer.token) {
    refusal = answer.error;
    return;
  }
  token = answer.token;
  sessionStorage.setItem(KEPT, token);
}

/** Return in words whether this page may make changes. */
export function permission(state) {
  if (!state.control) return "read-only";
  return token ? "changes allowed" : `read-only: ${refusal}`;
}

/** Return whether this page may make changes. */
export function mayChange(state) {
  return Boolean(state.control && token);
}

/** Show the buttons of the possible changes in an element. */
export function actions(place, state, requested, name) {
  keyed(place, mayChange(state) ? requested : [], ([text]) => text,
    ([text]) => h("button", { type: "button", onclick: (event) => begin(event.currentTarget.requested) }, text),
    (button, [text, change]) => {
      button.requested = { text, change, name: shown(name) };
      button.setAttribute("aria-label", `${text} ${shown(name)}`);
    });
}

async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers["X-Kinesumer-Token"] = token;
  try {
    const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
    return (answer.headers.get("Content-Type") ?? "").includes("json")
      ? await answer.json() : { error: await answer.text() };
  } catch {
    return { error: "the server doesn't answer" };
  }
}

/** Preview a change, and ask for confirmation; a seek first needs a position. */
function begin({ text, change, name }) {
  const summary = h("p", { class: "summary", role: "status" });
  const changes = h("ul", { class: "changes", "aria-label": "What will change" });
  const failed = h("p", { class: "failed", role: "alert" });
  const go = h("button", { type: "submit", class: "main" }, `${text} ${name}`);
  const entry = field(change);
  const form = h("form", {}, entry.element, entry.counts ? summary : null, changes, failed, h("div", { class: "buttons" },
    h("button", { type: "button", onclick: () => opened.close() }, "Cancel"), go));
  const opened = dialog(`${text} ${name}?`, form);
  const requested = () => ({ ...change, ...entry.read() });
  const forget = () => {
    go.disabled = true;
    say(failed, "");
    changes.replaceChildren();
    say(summary, entry.missing?.() ?? "");
  };
  let previewed = null;
  const preview = async () => {
    if (previewed === JSON.stringify(requested())) return; // the field is unchanged
    forget();
    previewed = entry.missing?.() ? null : JSON.stringify(requested());
    if (previewed === null) return;
    const mine = previewed;
    if (entry.counts) say(summary, "Counting what is skipped and repeated …");
    const answer = await post("preview", JSON.parse(mine));
    if (previewed !== mine) return; // the field has changed meanwhile
    changes.replaceChildren(...(answer.lines ?? []).map((line) => h("li", {}, shown(line))));
    say(summary, shown(answer.summary ? `In total: ${answer.summary}.` : ""));
    say(failed, shown(answer.error ?? ""));
    go.disabled = !answer.lines;
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    const done = await post("change", requested());
    if (done.error) {
      say(failed, shown(done.error));
      go.disabled = false;
      return;
    }
    opened.close();
    say(document.getElementById("live"), shown(done.done));
  });
  if (entry.counts) {
    entry.element.addEventListener("change", preview);
    let typing;
    entry.element.addEventListener("input", () => {
      previewed = null; // the shown preview is of another position
      forget();
      clearTimeout(typing);
      typing = setTimeout(preview, TYPING_MILLIS);
    });
  }
  preview();
}

/** Return the input field of a change, if it needs one. */
function field(change) {
  if (change.do === "pause") {
    const input = h("input", { name: "reason", maxlength: "200", autocomplete: "off" });
    return { element: h("label", {}, "Reason (optional)", input), read: () => ({ reason: input.value }) };
  }
  if (change.do !== "seek") return { element: null, read: () => ({}) };
  const input = h("input", { name: "to", required: true, autocomplete: "off", list: "places", spellcheck: "false" });
  const places = h("datalist", { id: "places" },
    ...["LATEST", "TRIM_HORIZON", "1h", "24h"].map((value) => h("option", { value })));
  const hint = change.shard ? ", or a sequence number to read on after" : "";
  return {
    element: h("label", {}, `To: LATEST, TRIM_HORIZON, a time like 2026-01-31T12:00:00Z, how long ago like 2h${hint}`, input, places),
    read: () => ({ to: input.value.trim() }),
    counts: true,
    missing: () => (input.value.trim() ? null : "Enter where to continue reading. Skipped and repeated records are counted before you can confirm."),
  };
}
