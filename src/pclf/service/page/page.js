// The page: four views, by the address after the #.
import {$, ask, patiently, state, tell} from "./ask.js";
import {showOperator} from "./operator.js";
import {lookUp, showPair} from "./others.js";
import {rank, readAddress, startTaste} from "./taste.js";

const VIEWS = {
  taste: (given) => { readAddress(given); return rank(); },
  pair: () => showPair(),
  person: (given) => lookUp(given),
  operator: () => patiently(showOperator, view),
};

async function view() {
  const [, word, given] = location.hash.match(/^#([^/]*)\/?(.*)$/s) ?? [], name = word in VIEWS ? word : "taste";
  document.querySelectorAll(".view").forEach((section) => { section.hidden = section.id !== `${name}-view`; });
  document.querySelectorAll("nav a").forEach((a) => (a.hash === `#${name}` ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current")));
  document.title = `${$(`${name}-h`).textContent} · pclf`;
  tell();
  scrollTo(0, 0);
  await VIEWS[name](plain(given ?? ""));
}

function plain(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function theme() {
  const root = document.documentElement.dataset, kept = localStorage.getItem("theme");
  if (kept) root.theme = kept;
  $("theme").addEventListener("click", () => {
    const now = root.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.theme = now === "dark" ? "light" : "dark";
    localStorage.setItem("theme", root.theme);
  });
}

async function start() {
  const known = await patiently(async () => {
    Object.assign(state, await ask("/v1/domains"));
    await startTaste();
    return true;
  }, start);
  if (!known) return;
  addEventListener("hashchange", view);
  await view();
  document.documentElement.dataset.ready = "yes";
}

theme();
$("look-up").addEventListener("submit", (event) => {
  event.preventDefault();
  const there = `#person/${encodeURIComponent($("who").value.trim())}`;
  if (location.hash === there) view();
  else location.hash = there;
});
document.querySelector(".skip").addEventListener("click", (event) => {     // the address says which view it is
  event.preventDefault();
  $("main").focus();
});
start();
