// Keep the page up to date. Without this script, it is reloaded by hand.
"use strict";

const main = () => document.getElementById("main");
const offline = (is) => { document.getElementById("offline").hidden = !is; };

// typing reports whether somebody has changed a field, which must not be lost.
const typing = () => [...document.querySelectorAll("input:not([type=hidden]), textarea")].some((f) => f.value !== f.defaultValue);

// update replaces what has changed. What has the focus keeps it.
async function update() {
  if (typing()) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (typing() || !next.getElementById("main")) return;
  const had = document.activeElement;
  const find = (a) => a.id ? document.getElementById(a.id) : a.href && document.querySelector(`a[href="${CSS.escape(a.getAttribute("href"))}"]`);
  for (const id of ["main", "as-of", "stale"]) {
    document.getElementById(id).replaceWith(next.getElementById(id));
  }
  document.title = next.title;
  copyable();
  if (had && had !== document.body && !had.isConnected) find(had)?.focus({ preventScroll: true });
}

// copyable shows the buttons that copy a command: without a script, or where a browser keeps the clipboard from a page, they stay hidden.
const copyable = () => {
  for (const button of document.querySelectorAll(".copy")) button.hidden = !navigator.clipboard;
};

document.addEventListener("click", async (e) => {
  if (!e.target.matches(".copy")) return;
  await navigator.clipboard.writeText(e.target.previousElementSibling.textContent);
  e.target.textContent = "Copied";
});

let source;

// listen while the page is seen, so that the cluster is read only then.
function listen() {
  source?.close();
  source = undefined;
  if (document.hidden || !("live" in main().dataset)) return;
  source = new EventSource("events?version=" + main().dataset.version);
  source.onopen = () => offline(false);
  source.onerror = () => offline(true);
  source.onmessage = () => update().catch(() => offline(true));
  source.addEventListener("age", (e) => {
    const age = document.getElementById("age");
    if (age) age.textContent = e.data;
  });
}

// What somebody types stays when he reloads.
document.getElementById("reload")?.addEventListener("submit", (e) => {
  e.preventDefault();
  fetch(e.target.action, { method: "POST", redirect: "manual" }).catch(() => offline(true));
});

document.addEventListener("visibilitychange", listen);
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (e) => { if (e.persisted) listen(); });
copyable();
listen();
