// Gives life to a page that is complete without it: new events reload its parts, charts share a cursor, keys move.

const live = document.getElementById("live");
let said = 0;

function say(text, stale = false) {
  live.textContent = text;
  live.classList.toggle("stale", stale);
}

// What the server sent of each part, to replace only what has changed.
const shown = new Map([...document.querySelectorAll("[data-live]")].map((part) => [part.id, part.outerHTML]));

// One stream a tab. Parts marked data-live are taken from the same page, asked for again.
let stream, waiting;

function listen() {
  if (stream || document.hidden || !document.querySelector("[data-live]")) return;
  stream = new EventSource("/v1/events/stream");
  stream.onopen = () => say("live");
  stream.onmessage = () => { waiting ??= setTimeout(() => reload(), 400); };
  stream.onerror = () => say("not live: the server does not answer; this is the last state", true);
}

function hush() {
  stream?.close();
  stream = undefined;
}

// How the element that has the focus is found again in a part that was replaced.
function selectorOf(element) {
  const name = ["data-rank", "aria-label", "value", "href"].find((one) => element.hasAttribute(one));
  return name ? `[${name}="${CSS.escape(element.getAttribute(name))}"]` : "";
}

// Curves and heartbeats are no events: a page that shows them is asked for again at its own pace.
const every = Number(document.querySelector("[data-every]")?.dataset.every ?? 0);
if (every) setInterval(() => { if (stream && !document.hidden) reload(true); }, every * 1000);

async function reload(quiet = false) {
  waiting = undefined;
  let text;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.status === 401) { hush(); return say("the session has ended: orch serve --link prints a new link", true); }
    if (!answer.ok) return;
    text = await answer.text();
  } catch {
    return;
  }
  const page = new DOMParser().parseFromString(policy(text), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = page.getElementById(part.id);
    if (!next || next.outerHTML === shown.get(part.id)) continue;
    shown.set(part.id, next.outerHTML);
    const focused = part.contains(document.activeElement) ? selectorOf(document.activeElement) : "";
    const fresh = document.importNode(next, true);
    for (const box of part.querySelectorAll("input:checked")) {
      const same = fresh.querySelector(`input[name="${CSS.escape(box.name)}"][value="${CSS.escape(box.value)}"]`);
      if (same) same.checked = true;
    }
    for (const open of part.querySelectorAll("details[open][id]")) fresh.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute("open", "");
    part.replaceWith(fresh);
    if (focused) fresh.querySelector(focused)?.focus();
  }
  attachCharts();
  if (!quiet && Date.now() - said > 5000) {
    said = Date.now();
    say(`live, updated ${new Date().toLocaleTimeString()}`);
  }
}

// The parser above builds a document that is never shown as it is; only known parts of our own page are taken from it.
const trusted = globalThis.trustedTypes?.createPolicy("page", { createHTML: (text) => text });
function policy(text) { return trusted ? trusted.createHTML(text) : text; }

document.addEventListener("visibilitychange", () => (document.hidden ? hush() : (listen(), reload())));

// One cursor over both charts.
let points;

async function readPoints(panel) {
  if (!points) {
    points = [];
    const answer = await fetch(panel.dataset.curves);
    if (answer.ok) points = (await answer.json()).points;
  }
  return points;
}

function placeOf(point, axis) {
  if (axis === "dollars") return point.dollars;
  return axis === "time" ? (Date.parse(point.time) - Date.parse(points[0].time)) / 1000 : point.step;
}

function attachCharts() {
  const panel = document.querySelector("[data-curves]");
  if (!panel) return;
  points = undefined;
  for (const chart of document.querySelectorAll(".chart")) {
    if (!chart.nextElementSibling?.classList.contains("reading")) {
      const reading = document.createElement("p");
      reading.className = "reading";
      chart.after(reading);
    }
    chart.onpointermove = (event) => readPoints(panel).then(() => showCursor(chart, event.clientX, panel.dataset.axis));
    chart.onpointerleave = hideCursor;
  }
}

function showCursor(chart, clientX, axis) {
  if (!points?.length) return;
  const svg = chart.querySelector("svg");
  const box = svg.getBoundingClientRect();
  const [left, end, width] = [Number(chart.dataset.left), Number(chart.dataset.right), svg.viewBox.baseVal.width];
  const low = Number(chart.dataset.low), high = Number(chart.dataset.high);
  const at = low + (((clientX - box.left) / box.width) * width - left) / (end - left) * (high - low);
  const near = points.reduce((best, one) => Math.abs(placeOf(one, axis) - at) < Math.abs(placeOf(best, axis) - at) ? one : best);
  const x = high === low ? width / 2 : left + (placeOf(near, axis) - low) / (high - low) * (end - left);
  for (const one of document.querySelectorAll(".chart")) {
    const cursor = one.querySelector(".cursor");
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.style.visibility = "visible";
    const reading = one.nextElementSibling;
    const loss = near.loss === null ? "no number" : near.loss.toFixed(4);
    const cost = near.dollars === null ? "not known" : `$${near.dollars.toFixed(2)}`;
    reading.textContent = `step ${near.step.toLocaleString()} · loss ${loss} · ${cost} · ${new Date(near.time).toLocaleString()}`;
  }
}

function hideCursor() {
  for (const cursor of document.querySelectorAll(".cursor")) cursor.style.visibility = "hidden";
  for (const reading of document.querySelectorAll(".reading")) reading.textContent = "";
}

// Arrow keys move between hosts: one of them is in the order of Tab.
document.addEventListener("keydown", (event) => {
  const host = event.target.closest?.(".host");
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!host || !step) return;
  const hosts = [...host.parentNode.querySelectorAll(".host")];
  const next = hosts[hosts.indexOf(host) + step];
  if (!next) return;
  host.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  event.preventDefault();
});

attachCharts();
listen();
