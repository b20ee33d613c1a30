// Your taste: rate in any catalogue, and all of them re-rank. What is rated is sent with each question and kept nowhere
// but in the page's own address, which can be passed on.
import {$, ask, facts, hue, patiently, PLACES, post, state, tell} from "./ask.js";
import {make, number} from "./charts.js";
import {catalogueCard, showList, stars} from "./lists.js";

const IDEAS = 6;                       // and one more for each rating, up to twice as many: there is room beside them
let catalogue = "", ideas = [], found = [], places = {}, typing = 0, latest = null, spoken = "";

export function startTaste() {
  $("lists").replaceChildren(...state.domains.map((d) => catalogueCard(d.name)));
  $("find").addEventListener("input", (event) => search(event.target.value.trim()).catch((error) => tell(error.message)));
  $("find").addEventListener("keydown", keys);
  $("find").addEventListener("blur", close);
  $("clear").addEventListener("click", () => { state.rated = []; places = {}; spoken = "All ratings are taken back"; showBasket(); rank(); $("find").focus(); });
  $("link").addEventListener("click", copyLink);
  $("link").hidden = !navigator.clipboard;
  $("try").addEventListener("click", () => patiently(tryIt, tryIt));
  return pick(state.domains[0].name);
}

// What the address says was rated, if it says so.
export function readAddress(given) {
  if (given) try {
    const told = JSON.parse(given).filter(([domain, , value]) => facts(domain)?.scale.includes(value));
    state.rated = told.map(([domain, item, value, title]) => ({domain, item: String(item), value, title: String(title ?? item)}));
    places = {};
  } catch {                                      // part of it is missing
    state.rated = [];
  }
  showBasket();
}

function writeAddress() {
  const told = state.rated.map((r) => [r.domain, r.item, r.value, ...(r.title === r.item ? [] : [r.title])]);
  history.replaceState(null, "", told.length ? `#taste/${encodeURIComponent(JSON.stringify(told))}` : "#taste");
}

async function copyLink() {
  writeAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    $("link").textContent = "The link is copied";
  } catch {
    $("link").textContent = "The address bar has the link";
  }
  setTimeout(() => { $("link").textContent = "Copy a link to this"; }, 2500);
}

const said = () => state.rated.reduce((all, r) => ({...all, [r.domain]: {...all[r.domain], [r.item]: r.value}}), {});
export const guestQuestion = (domain, more = {}, options = {}) => post("/v1/recommend", {domain, ratings: said(), n: PLACES, explain: true, ...more}, options);

export async function rank() {
  latest?.abort();                               // somebody rated again: nobody waits for what was asked before
  const mine = latest = new AbortController(), cards = [...$("lists").children];
  cards.forEach((card) => { card.classList.add("waiting"); card.setAttribute("aria-busy", "true"); });
  const answers = await patiently(() => Promise.all(state.domains.map((d) => guestQuestion(d.name, {}, {signal: mine.signal}))), rank);
  if (mine !== latest) return;
  cards.forEach((card) => { card.classList.remove("waiting"); card.removeAttribute("aria-busy"); });
  if (!answers) return;
  const told = spoken ? [spoken] : [];
  answers.forEach((answer, z) => {
    const before = places[answer.domain];
    showList(cards[z], answer, {rate, before: state.rated.length ? before : null});
    const moved = answer.items.filter((entry, i) => before?.get(String(entry.item)) !== i).length;
    if (before && answer.items.length) told.push(`${answer.domain}: ${moved} of ${answer.items.length} moved, first is ${answer.items[0].title}`);
    places[answer.domain] = new Map(answer.items.map((entry, i) => [String(entry.item), i]));
  });
  $("spoken").textContent = told.join(". ");
  spoken = "";
  story(answers);
}

function story(answers) {
  const names = [...new Set(state.rated.map((r) => r.domain))], others = answers.filter((answer) => !names.includes(answer.domain) && answer.items.length);
  const listed = (all) => new Intl.ListFormat("en").format(all);
  $("story").textContent = !state.rated.length ? "These are the lists of somebody new. Nothing you say here is stored." :
    others.length ? `You rated only ${listed(names)}. For you, ${listed(others.map((answer) => `“${answer.items[0].title}” leads in ${answer.domain}`))}.` :
      "You rated in every catalogue. The more you say, the more the lists are yours.";
}

// --- what you said ---------------------------------------------------------------------------------------------------

function rate(domain, item, title, value) {
  const inLists = document.activeElement.closest("#lists"), known = state.rated.find((r) => r.domain === domain && r.item === item);
  if (known) known.value = value;
  else state.rated.unshift({domain, item, title, value});
  spoken = `You gave ${title} ${value} of ${facts(domain).scale.at(-1)}`;
  showBasket();
  if (inLists) focusOn(`${domain} ${item}`);     // the title leaves its list
  rank();
}

function takeBack(rated) {
  const at = state.rated.indexOf(rated);
  state.rated.splice(at, 1);
  spoken = `You took back ${rated.title}`;
  showBasket();
  ($("basket").children[Math.min(at, state.rated.length - 1)]?.querySelector(".drop") ?? $("find")).focus();
  rank();
}

const focusOn = (key) => [...$("basket").children].find((li) => li.dataset.key === key)?.querySelector("[tabindex='0'], button").focus({preventScroll: true});

function showBasket() {
  const focused = document.activeElement.closest("#basket li")?.dataset.key;
  $("basket-empty").hidden = state.rated.length > 0;
  $("basket-actions").hidden = !state.rated.length;
  $("basket").replaceChildren(...state.rated.map((r) => make("li", {class: hue(r.domain), "data-key": `${r.domain} ${r.item}`},
    make("span", {class: "name"}, r.title), make("small", {}, r.domain),
    stars(facts(r.domain), r.value, (value) => rate(r.domain, r.item, r.title, value), r.title),
    make("button", {class: "drop", type: "button", "aria-label": `Take back ${r.title}`, onclick: () => takeBack(r)}, "✕"))));
  if (focused) focusOn(focused);
  showIdeas();
  writeAddress();
}

// Three titles of the catalogue, two of them loved: to see what happens.
async function tryIt() {
  const {items} = await ask(`/v1/search?${new URLSearchParams({domain: catalogue, q: "", n: 40})}`), {scale, events} = facts(catalogue);
  const some = items.map((entry) => [Math.random(), entry]).sort(([a], [b]) => a - b).slice(0, 3).map(([, entry]) => entry);
  state.rated = some.map((entry, i) => ({domain: catalogue, item: String(entry.item), title: entry.title, value: i < 2 || events ? scale.at(-1) : scale[0]}));
  spoken = `Three titles are rated: ${some.map((entry) => entry.title).join(", ")}`;
  showBasket();
  $("basket").querySelector("[tabindex='0'], button")?.focus({preventScroll: true});
  await rank();
}

// --- finding titles --------------------------------------------------------------------------------------------------

export function segments(box, chosen, pick) {
  box.replaceChildren(...state.domains.map((d) => make("button", {type: "button", role: "radio", class: hue(d.name), "aria-checked": String(d.name === chosen),
    tabindex: d.name === chosen ? 0 : -1, onclick: () => pick(d.name)}, d.name)));
  box.onkeydown = (event) => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    const at = state.domains.indexOf(facts(chosen));
    pick(state.domains[(at + step + state.domains.length) % state.domains.length].name);
    box.querySelector("[aria-checked=true]").focus();
  };
}

async function pick(name) {
  catalogue = name;
  segments($("catalogues"), name, pick);
  $("find").placeholder = `Find something in ${name}`;
  const {items} = await ask(`/v1/search?${new URLSearchParams({domain: name, q: "", n: 30})}`);
  if (name !== catalogue) return;
  ideas = items;
  showIdeas();
}

function showIdeas() {
  const left = ideas.filter((entry) => !state.rated.some((r) => r.domain === catalogue && r.item === String(entry.item)));
  $("ideas").className = `ideas ${hue(catalogue)}`;
  $("ideas").replaceChildren(...left.slice(0, IDEAS + Math.min(IDEAS, state.rated.length)).map((entry) => make("button", {type: "button", onclick: () => choose(entry)}, entry.title)));
}

async function search(text) {
  const mine = ++typing, answer = await ask(`/v1/search?${new URLSearchParams({domain: catalogue, q: text, n: 8})}`);
  if (mine !== typing) return;
  found = answer.items;
  $("found").replaceChildren(...found.map((entry, i) => make("li", {role: "option", id: `option-${i}`, "aria-selected": "false", onmousedown: (event) => {
    event.preventDefault();
    choose(entry);
  }}, make("span", {}, entry.title), make("small", {}, `${number(entry.ratings)} ${entry.ratings === 1 ? "rating" : "ratings"}`))));
  if (!found.length) $("found").append(make("li", {class: "none", role: "option", "aria-disabled": "true"}, `No title in ${catalogue} has these words.`));
  const open = document.activeElement === $("find") && Boolean(text);
  $("found").hidden = !open;
  $("find").setAttribute("aria-expanded", String(open));
}

function close() {
  typing++;                                      // an answer that is on its way comes too late
  $("found").hidden = true;
  $("find").setAttribute("aria-expanded", "false");
  $("find").removeAttribute("aria-activedescendant");
}

function choose(entry) {
  $("find").value = "";
  close();
  rate(catalogue, String(entry.item), entry.title, facts(catalogue).scale.at(-1));
}

function keys(event) {
  const options = [...$("found").children], at = options.findIndex((o) => o.getAttribute("aria-selected") === "true");
  if (event.key === "Escape") close();
  if ($("found").hidden || !found.length || !["Enter", "ArrowDown", "ArrowUp"].includes(event.key)) return;
  event.preventDefault();
  if (event.key === "Enter") return choose(found[Math.max(0, at)]);
  const next = event.key === "ArrowDown" ? (at + 1) % options.length : (at <= 0 ? options.length : at) - 1;
  options.forEach((o, i) => o.setAttribute("aria-selected", String(i === next)));
  $("find").setAttribute("aria-activedescendant", `option-${next}`);
  options[next].scrollIntoView({block: "nearest"});
}
