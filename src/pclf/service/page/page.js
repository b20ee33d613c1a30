// The page: rate in any catalogue, and all of them re-rank. What is rated here is sent with each question and kept nowhere.
import {distribution, make, number, ordinal} from "./charts.js";
import {showOperator} from "./operator.js";

const $ = (id) => document.getElementById(id);
const PLACES = 8;
const state = {domains: [], ranks: [], model: 0, rated: [], catalogue: "", pair: "", before: {}, asked: 0,
  sides: [{kind: "you", id: ""}, {kind: "new", id: ""}]};

export async function ask(path, options = {}) {
  const key = sessionStorage.getItem("key");
  const headers = {...(options.body ? {"Content-Type": "application/json"} : {}), ...(key ? {"X-API-Key": key} : {})};
  const answer = await fetch(path, {...options, headers});
  if (answer.status === 401 || answer.status === 403) {
    await wantKey();
    return ask(path, options);
  }
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error);
  return body;
}

function wantKey() {
  const dialog = $("key-dialog");
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    sessionStorage.setItem("key", $("key").value);
    resolve();
  }, {once: true}));
}

export function tell(text) {
  $("notice").textContent = text ?? "";
  $("notice").hidden = !text;
}

const hue = (name) => `hue-${Math.max(0, state.domains.findIndex((d) => d.name === name)) % 5}`;
const facts = (name) => state.domains.find((d) => d.name === name);

// --- lists -----------------------------------------------------------------------------------------------------------

function catalogueCard(name, label) {
  return make("section", {class: `catalogue ${hue(name)}`, "data-domain": name, "aria-label": label ?? name},
    make("header", {}, make("h2", {}, label ?? name), make("span", {class: "badge"}, "")), make("ol"));
}

const BASIS = {guest: "from what you said", popular: "for anybody new", known: "known here", visitor: "a visitor"};

function showList(card, answer, {rate, before, shared} = {}) {
  const domain = facts(answer.domain), list = card.querySelector("ol");
  card.querySelector(".badge").textContent = BASIS[answer.basis] ?? answer.basis;
  const old = new Map([...list.children].map((li) => [li.dataset.item, li]));
  const places = new Map([...old.values()].map((li) => [li.dataset.item, li.getBoundingClientRect().top]));
  const reasons = answer.basis !== "popular";    // to somebody new there is one reason for everything
  const rows = answer.items.map((entry, i) => row(reasons ? entry : {...entry, why: null}, i, domain, {rate, before, shared}));
  list.replaceChildren(...rows);
  if (!answer.items.length) list.replaceChildren(make("li", {class: "none"}, "Nothing is left to recommend here."));
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const li of rows) {                       // every item glides from where it was
    const was = places.get(li.dataset.item), moved = was === undefined ? 0 : was - li.getBoundingClientRect().top;
    if (was === undefined && old.size) li.animate([{opacity: 0, transform: "translateX(18px)"}, {opacity: 1, transform: "none"}], {duration: 420, easing: "cubic-bezier(.2,.8,.2,1)"});
    else if (moved) li.animate([{transform: `translateY(${moved}px)`}, {transform: "none"}], {duration: 520, easing: "cubic-bezier(.2,.8,.2,1)"});
  }
}

function row(entry, i, domain, {rate, before, shared}) {
  const id = String(entry.item), was = before?.get(id);
  const move = !before ? null : was === undefined ? make("span", {class: "move new"}, "new") :
    was > i ? make("span", {class: "move up", "aria-label": `up ${was - i}`}, `▲ ${was - i}`) :
    was < i ? make("span", {class: "move down", "aria-label": `down ${i - was}`}, `▼ ${i - was}`) : null;
  const mark = shared?.has(id) ? make("span", {class: "shared"}, `${ordinal(shared.get(id) + 1)} there`) : null;
  const expected = domain.events ? null : make("span", {class: "expected"}, number(entry.rating, 1), make("small", {}, ` of ${domain.scale.at(-1)}`));
  const here = rate ? make("span", {class: "rate-here"}, make("button", {class: "know", type: "button", "aria-label": `I know ${entry.title}`,
    onclick: (event) => {
    const choice = stars(domain, 0, (value) => say(domain.name, id, entry.title, value), entry.title);
    event.currentTarget.replaceWith(choice);
    choice.querySelector("button").focus({preventScroll: true});
  }}, "I know it")) : null;
  return make("li", {"data-item": id, class: before && (was === undefined || was > i) ? "fresh" : null},
    make("span", {class: "place", "aria-hidden": "true"}, String(i + 1)),
    make("div", {}, make("p", {class: "title"}, entry.title, move, mark), entry.why || here ? make("p", {class: "why"}, entry.why ? `${entry.why} ` : null, here) : null),
    make("div", {class: "figures"}, expected, distribution(entry.distribution, domain.scale, entry.interval)));
}

// --- rating ----------------------------------------------------------------------------------------------------------

function stars(domain, value, chosen, title) {
  if (domain.events) return make("span", {class: "stars"}, make("button", {type: "button", class: value ? "on" : "", "aria-label": `I know ${title}`, onclick: () => chosen(1)}, "✓"));
  const many = domain.scale.length > 5, box = make("span", {class: `stars${many ? " many" : ""} ${hue(domain.name)}`, role: "radiogroup", "aria-label": `Rating of ${title}`});
  const buttons = domain.scale.map((v) => make("button", {type: "button", role: "radio", "aria-checked": String(v === value), tabindex: v === value || (!value && v === domain.scale[0]) ? 0 : -1,
    class: v <= value ? "on" : "", "aria-label": `${v} of ${domain.scale.at(-1)}`, onclick: () => chosen(v)}, many ? String(v) : "★"));
  box.append(...buttons);
  box.addEventListener("keydown", (event) => {
    const step = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    const at = buttons.indexOf(document.activeElement);
    buttons[Math.min(buttons.length - 1, Math.max(0, at + step))].focus();
  });
  box.addEventListener("mouseover", (event) => buttons.forEach((b, i) => b.classList.toggle("on", i <= buttons.indexOf(event.target))));
  box.addEventListener("mouseleave", () => buttons.forEach((b, i) => b.classList.toggle("on", domain.scale[i] <= value)));
  return box;
}

function say(domain, item, title, value) {
  const inLists = document.activeElement.closest("#lists");
  const known = state.rated.find((r) => r.domain === domain && r.item === item);
  if (known) known.value = value;
  else state.rated.unshift({domain, item, title, value});
  showBasket();
  if (inLists) focusOn(`${domain} ${item}`);     // the title leaves its list
  rank();
}

const focusOn = (key) => [...$("basket").children].find((li) => li.dataset.key === key)?.querySelector("[tabindex='0'], button").focus({preventScroll: true});

function showBasket() {
  const focused = document.activeElement.closest("#basket li")?.dataset.key;
  $("basket-empty").hidden = state.rated.length > 0;
  $("clear").hidden = !state.rated.length;
  $("basket").replaceChildren(...state.rated.map((r) => make("li", {class: hue(r.domain), "data-key": `${r.domain} ${r.item}`},
    make("span", {class: "name"}, r.title, make("small", {}, r.domain)), stars(facts(r.domain), r.value, (v) => say(r.domain, r.item, r.title, v), r.title),
    make("button", {class: "drop", type: "button", "aria-label": `Take back ${r.title}`, onclick: () => {
      state.rated = state.rated.filter((other) => other !== r);
      showBasket();
      rank();
    }}, "✕"))));
  if (focused) focusOn(focused);
}

const said = () => state.rated.reduce((all, r) => ({...all, [r.domain]: {...all[r.domain], [r.item]: r.value}}), {});
const guestQuestion = (domain, more = {}) => ask("/v1/recommend", {method: "POST", body: JSON.stringify({domain, ratings: said(), n: PLACES, explain: true, ...more})});

async function rank() {
  const asked = ++state.asked;
  const cards = [...$("lists").children];
  cards.forEach((card) => card.classList.add("waiting"));
  try {
    const found = await Promise.all(state.domains.map((d) => guestQuestion(d.name)));
    if (asked !== state.asked) return;           // somebody clicked again in the meantime
    const spoken = [];
    found.forEach((answer, z) => {
      const before = state.before[answer.domain];
      showList(cards[z], answer, {rate: true, before: state.rated.length ? before : null});
      const moved = answer.items.filter((entry, i) => before?.get(String(entry.item)) !== i).length;
      if (before && answer.items.length) spoken.push(`${answer.domain}: ${moved} of ${answer.items.length} moved, first is ${answer.items[0].title}`);
      state.before[answer.domain] = new Map(answer.items.map((entry, i) => [String(entry.item), i]));
    });
    $("spoken").textContent = spoken.join(". ");
    story(found);
    tell();
  } catch (error) {
    tell(error.message);
  } finally {
    if (asked === state.asked) cards.forEach((card) => card.classList.remove("waiting"));
  }
}

function story(found) {
  const names = [...new Set(state.rated.map((r) => r.domain))], others = found.filter((answer) => !names.includes(answer.domain) && answer.items.length);
  const listed = (all) => new Intl.ListFormat("en").format(all);
  $("story").textContent = !state.rated.length ? "These are the lists of somebody new. Nothing you say here is stored." :
    others.length ? `You rated only ${listed(names)}. For you, ${listed(others.map((answer) => `“${answer.items[0].title}” leads in ${answer.domain}`))}.` :
      "You rated in every catalogue. The more you say, the more the lists are yours.";
}

let typing = 0;
async function search(text) {
  const mine = ++typing, found = await ask(`/v1/search?${new URLSearchParams({domain: state.catalogue, q: text, n: 8})}`);
  if (mine !== typing) return;
  const list = $("found");
  list.replaceChildren(...found.items.map((entry, i) => make("li", {role: "option", id: `option-${i}`, "aria-selected": "false", onmousedown: (event) => {
    event.preventDefault();
    choose(entry);
  }}, make("span", {}, entry.title), make("small", {}, `${number(entry.ratings)} ratings`))));
  list.items = found.items;
  const open = document.activeElement === $("find") && text && found.items.length > 0;
  list.hidden = !open;
  $("find").setAttribute("aria-expanded", String(Boolean(open)));
}

function choose(entry) {
  const scale = facts(state.catalogue).scale;
  $("find").value = "";
  $("found").hidden = true;
  $("find").setAttribute("aria-expanded", "false");
  $("find").removeAttribute("aria-activedescendant");
  say(state.catalogue, String(entry.item), entry.title, scale.at(-1));
}

function keys(event) {
  const options = [...$("found").children], at = options.findIndex((o) => o.getAttribute("aria-selected") === "true");
  if (event.key === "Escape") { $("found").hidden = true; return; }
  if (event.key === "Enter" && !$("found").hidden && options.length) {
    event.preventDefault();
    choose($("found").items[Math.max(0, at)]);
  }
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  const next = (at + (event.key === "ArrowDown" ? 1 : -1) + options.length) % options.length;
  options.forEach((o, i) => o.setAttribute("aria-selected", String(i === next)));
  $("find").setAttribute("aria-activedescendant", `option-${next}`);
  options[next]?.scrollIntoView({block: "nearest"});
}

function segments(box, chosen, pick) {
  box.replaceChildren(...state.domains.map((d) => make("button", {type: "button", role: "radio", class: hue(d.name), "aria-checked": String(d.name === chosen),
    tabindex: d.name === chosen ? 0 : -1, onclick: () => pick(d.name)}, d.name)));
  box.onkeydown = (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    const at = state.domains.findIndex((d) => d.name === chosen);
    pick(state.domains[(at + step + state.domains.length) % state.domains.length].name);
    box.querySelector("[aria-checked=true]").focus();
  };
}

async function catalogue(name) {
  state.catalogue = name;
  segments($("catalogues"), name, catalogue);
  $("find").placeholder = `Find something in ${name}`;
  const found = await ask(`/v1/search?${new URLSearchParams({domain: name, q: "", n: 6})}`);
  $("ideas").className = `ideas ${hue(name)}`;
  $("ideas").replaceChildren(...found.items.map((entry) => make("button", {type: "button", onclick: () => choose(entry)}, entry.title)));
}

// --- side by side, look up -------------------------------------------------------------------------------------------

async function showPair(name = state.pair || state.domains[0].name) {
  state.pair = name;
  segments($("pair-domain"), name, showPair);
  const versions = (await ask("/v1/status")).versions ?? [];
  const kinds = [["you", "you, by what you rated"], ["new", "somebody new"], ["user", "a user, by id"], ...versions.filter((v) => !v.current).map((v) => [`model ${v.version}`, `you, by model version ${v.version}`])];
  const answers = await Promise.all(state.sides.map((side) => sideList(side, name).catch((error) => ({error}))));
  const ids = answers.map((a) => new Set((a.items ?? []).map((entry) => String(entry.item))));
  const places = ids.map((mine) => new Map([...mine].map((id, i) => [id, i])));
  const both = [...ids[0]].filter((id) => ids[1].has(id)).length;
  $("pair-story").textContent = !state.rated.length && state.sides.some((side) => side.kind === "you") ? "You have not rated anything yet, so you are somebody new." :
    both ? `${both} of ${ids[0].size} titles are on both lists; each says at which place it is on the other.` : ids.every((mine) => mine.size) ? "No title is on both lists." : "";
  const focused = document.activeElement.id;
  $("sides").replaceChildren(...state.sides.map((side, s) => {
    const card = catalogueCard(name), head = make("div", {class: "side-head"});
    const select = make("select", {id: `side-${s}`, onchange: (event) => { side.kind = event.target.value; showPair(); }},
      ...kinds.map(([value, label]) => make("option", {value, selected: value === side.kind}, label)));
    head.append(make("label", {}, s ? "with" : "Compare", select));
    if (side.kind === "user") head.append(make("label", {}, "User id", make("input", {id: `side-id-${s}`, value: side.id, maxlength: 200, placeholder: "ana-000, in the demo", onchange: (event) => { side.id = event.target.value.trim(); showPair(); }})));
    card.querySelector("header").after(head);
    if (answers[s].error) card.querySelector("ol").append(make("li", {class: "none"}, answers[s].error.message));
    else showList(card, answers[s], {shared: places[1 - s]});
    return card;
  }));
  (document.getElementById(focused.replace("side-", "side-id-")) ?? document.getElementById(focused))?.focus();
}

function sideList(side, domain) {
  if (side.kind === "user" && !side.id) return Promise.reject(new Error("Whose list? Give an id."));
  if (side.kind === "user") return ask(`/v1/users/${encodeURIComponent(side.id)}/recommend?${new URLSearchParams({domain, n: PLACES, explain: true})}`);
  if (side.kind === "you") return guestQuestion(domain);
  if (side.kind.startsWith("model ")) return guestQuestion(domain, {model: Number(side.kind.slice(6))});
  return guestQuestion(domain, {ratings: {}});
}

async function lookUp(id) {
  if (!id) return;
  try {
    const known = await ask(`/v1/users/${encodeURIComponent(id)}/ratings`);
    const lines = Object.entries(known.ratings).map(([name, rated]) => {
      const best = Object.entries(rated).sort((a, b) => b[1] - a[1]);
      const p = make("p", {}, `${number(best.length)} rating${best.length === 1 ? "" : "s"} in ${name}${best.length > 4 ? ", among them" : ":"} `);
      best.slice(0, 4).forEach(([item, value], i) => p.append(i ? ", " : "", make("b", {}, known.titles[name][item] ?? item), facts(name)?.events ? "" : ` (${value})`));
      return p;
    });
    $("person-rated").replaceChildren(...(lines.length ? lines : [make("p", {}, "Nobody of that id has rated anything: this is what a newcomer gets.")]));
    const cards = state.domains.map((d) => catalogueCard(d.name));
    $("person-lists").replaceChildren(...cards);
    await Promise.all(state.domains.map(async (d, z) => {
      const path = `/v1/users/${encodeURIComponent(id)}/recommend?${new URLSearchParams({domain: d.name, n: PLACES, explain: true})}`;
      try { showList(cards[z], await ask(path), {}); } catch (error) { cards[z].querySelector("ol").replaceChildren(make("li", {class: "none"}, error.message)); }
    }));
    tell();
  } catch (error) { tell(error.message); }
}

// --- views -----------------------------------------------------------------------------------------------------------

function view() {
  const name = ["taste", "pair", "person", "operator"].find((v) => location.hash.startsWith(`#${v}`)) ?? "taste";
  document.querySelectorAll(".view").forEach((section) => { section.hidden = section.id !== name; });
  document.querySelectorAll("nav a").forEach((a) => (a.hash === `#${name}` ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current")));
  const given = decodeURIComponent(location.hash.split("/")[1] ?? "");
  const show = {pair: () => showPair(), operator: () => showOperator(), person: () => { if (given) { $("who").value = given; return lookUp(given); } return null; }}[name];
  Promise.resolve(show?.()).catch((error) => tell(error.message));
  scrollTo(0, 0);
}

async function start() {
  const kept = localStorage.getItem("theme");
  if (kept) document.documentElement.dataset.theme = kept;
  $("theme").addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  });
  Object.assign(state, await ask("/v1/domains"));
  $("lists").replaceChildren(...state.domains.map((d) => catalogueCard(d.name)));
  $("find").addEventListener("input", (event) => search(event.target.value.trim()).catch((error) => tell(error.message)));
  $("find").addEventListener("keydown", keys);
  $("find").addEventListener("blur", () => { $("found").hidden = true; });
  $("clear").addEventListener("click", () => { state.rated = []; state.before = {}; showBasket(); rank(); });
  $("look-up").addEventListener("submit", (event) => { event.preventDefault(); lookUp($("who").value.trim()); });
  addEventListener("hashchange", view);
  await catalogue(state.domains[0].name);
  await rank();
  view();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => tell(error.message));
