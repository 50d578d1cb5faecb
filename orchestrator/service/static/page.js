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
    if (answer.status === 401) { hush(); return say("the session has ended: sign in again", true); }
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

// One cursor over both charts of a run, or over the lines of several runs.
let lines;

async function readLines(panel) {
  lines ??= Promise.all(panel.dataset.curves.trim().split(" ").map(async (address, number) => {
    const answer = await fetch(address);
    const letter = panel.dataset.letters?.split(" ")[number];
    return { letter, points: answer.ok ? (await answer.json()).points : [] };
  }));
  return lines;
}

function placeOf(point, points, axis) {
  if (axis === "dollars") return point.dollars;
  return axis === "time" ? (Date.parse(point.time) - Date.parse(points[0].time)) / 1000 : point.step;
}

function findNearest(points, at, axis) {
  const far = (one) => Math.abs(placeOf(one, points, axis) - at);
  return points.reduce((best, one) => (far(one) < far(best) ? one : best));
}

function attachCharts() {
  const panel = document.querySelector("[data-curves]");
  if (!panel?.dataset.curves) return;
  lines = undefined;
  for (const chart of document.querySelectorAll(".chart")) {
    chart.onpointermove = (event) => readLines(panel).then((found) => showCursor(found, chart, event.clientX, panel.dataset.axis));
    chart.onpointerleave = hideCursor;
  }
}

function showCursor(found, chart, clientX, axis) {
  const svg = chart.querySelector("svg");
  const box = svg.getBoundingClientRect();
  const [left, end, width] = [Number(chart.dataset.left), Number(chart.dataset.right), svg.viewBox.baseVal.width];
  const low = Number(chart.dataset.low), high = Number(chart.dataset.high);
  const under = ((clientX - box.left) / box.width) * width;
  const at = low + (under - left) / (end - left) * (high - low);
  const several = found[0].letter !== undefined;
  const near = several ? undefined : found[0].points.length && findNearest(found[0].points, at, axis);
  if (near === 0 || (several && (at < low || at > high))) return hideCursor();
  const place = several ? at : placeOf(near, found[0].points, axis);
  const x = high === low ? width / 2 : left + (place - low) / (high - low) * (end - left);
  const text = several ? describeLines(found, at, axis) : describePoint(near);
  for (const one of document.querySelectorAll(".chart")) {
    const cursor = one.querySelector(".cursor");
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.style.visibility = "visible";
    one.nextElementSibling.textContent = text;
  }
}

const describeLoss = (point) => (point.loss === null ? "no number" : point.loss.toFixed(4));

function describePoint(point) {
  const cost = point.dollars === null ? "not known" : `$${point.dollars.toFixed(2)}`;
  return `step ${point.step.toLocaleString()} · loss ${describeLoss(point)} · ${cost} · ${new Date(point.time).toLocaleString()}`;
}

// The loss of each run there; a run that ended before, or begins later, has none.
function describeLines(found, at, axis) {
  const there = found.filter(({ points }) => {
    const places = points.map((one) => placeOf(one, points, axis));
    return places.length && at >= Math.min(...places) && at <= Math.max(...places);
  });
  const where = { step: `step ${Math.round(at).toLocaleString()}`, time: `${(at / 60).toFixed(1)} min`, dollars: `$${at.toFixed(2)}` }[axis];
  return [where, ...there.map(({ letter, points }) => `${letter} ${describeLoss(findNearest(points, at, axis))}`)].join(" · ");
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

// The secret of a link is behind the #, which browsers do not send. The form takes it from there; without script, a
// person types it.
function takeCode() {
  const field = document.querySelector("[data-code]");
  if (!field || location.hash.length < 2) return;
  field.querySelector("input").value = location.hash.slice(1);
  field.hidden = true;
  history.replaceState(null, "", location.pathname + location.search);
  field.closest("form").querySelector("button").focus();
}

addEventListener("hashchange", takeCode);
takeCode();
attachCharts();
listen();
