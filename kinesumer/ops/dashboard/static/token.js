// The token for changes and records, which the page gets for the printed link.

const KEPT = "kinesumer token";
let token = sessionStorage.getItem(KEPT);
let refusal = "open the printed link for more";

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

/** Return in words what this page may do. */
export function permission(state) {
  const allowed = [state.control ? "changes" : null, state.records ? "records" : null].filter(Boolean);
  if (!allowed.length) return "read-only";
  return token ? `${allowed.join(" and ")} allowed` : `read-only: ${refusal}`;
}

/** Return whether this page may make changes. */
export function mayChange(state) {
  return Boolean(state.control && token);
}

/** Return whether this page may read records. */
export function mayBrowse(state) {
  return Boolean(state.records && token);
}

/** Send a request with the token; return the answer, or an object with an error. */
export async function post(path, body) {
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
