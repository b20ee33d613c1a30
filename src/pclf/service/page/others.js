// Other people: two lists side by side, and somebody by their id.
import {$, ask, facts, patiently, PLACES, state} from "./ask.js";
import {make, number} from "./charts.js";
import {catalogueCard, say, showList} from "./lists.js";
import {guestQuestion, segments} from "./taste.js";

const AMONG = 4;                       // ratings of a person that are named
const sides = [{kind: "you", id: ""}, {kind: "new", id: ""}];
let catalogue = "", shown = 0;

const listOf = (id, domain) => ask(`/v1/users/${encodeURIComponent(id)}/recommend?${new URLSearchParams({domain, n: PLACES, explain: true})}`);

export async function showPair(name = catalogue || state.domains[0].name) {
  const mine = ++shown;
  catalogue = name;
  segments($("pair-domain"), name, showPair);
  $("sides").setAttribute("aria-busy", "true");
  const found = await patiently(() => Promise.all([ask("/v1/status"), ...sides.map((side) => sideList(side, name).catch((error) => ({error})))]), () => showPair(name));
  if (mine !== shown || !found) return;
  const [{versions = []}, ...answers] = found, older = versions.filter((v) => !v.current).map((v) => v.version);
  const kinds = [["you", "you, by what you rated"], ["new", "somebody new"], ["user", "a user, by id"], ...older.map((v) => [`model ${v}`, `you, by model version ${v}`])];
  const places = answers.map((a) => new Map((a.items ?? []).map((entry, i) => [String(entry.item), i])));
  const both = [...places[0].keys()].filter((id) => places[1].has(id)).length;
  $("pair-story").textContent = !state.rated.length && sides.some((side) => side.kind === "you") ? "You have not rated anything yet, so you are somebody new." :
    both ? `${both} of ${places[0].size} titles are on both lists; each says at which place it is on the other.` : places.every((there) => there.size) ? "No title is on both lists." : "";
  const focused = document.activeElement.id;
  $("sides").replaceChildren(...sides.map((side, s) => {
    const card = catalogueCard(name, headline(side));
    card.querySelector("header").after(chooser(side, s, kinds));
    if (answers[s].error) say(card, answers[s].error.message);
    else showList(card, answers[s], {shared: places[1 - s]});
    return card;
  }));
  $("sides").removeAttribute("aria-busy");
  ($(focused.replace("side-", "side-id-")) ?? $(focused))?.focus();
}

function headline({kind, id}) {
  if (kind === "user") return id || "A user";
  return kind === "you" ? "You" : kind === "new" ? "Somebody new" : `You, by version ${kind.slice(6)}`;
}

function chooser(side, s, kinds) {
  const select = make("select", {id: `side-${s}`, onchange: (event) => { side.kind = event.target.value; showPair(); }},
    ...kinds.map(([value, label]) => make("option", {value, selected: value === side.kind}, label)));
  return make("div", {class: "side-head"}, make("label", {}, s ? "with" : "Compare", select),
    side.kind === "user" ? make("label", {}, "User id", make("input", {id: `side-id-${s}`, value: side.id, maxlength: 200, autocomplete: "off", spellcheck: "false",
      onchange: (event) => { side.id = event.target.value.trim(); showPair(); }})) : null);
}

function sideList(side, domain) {
  if (side.kind === "user") return side.id ? listOf(side.id, domain) : Promise.reject(new Error("Give an id, and the list of that person comes here."));
  if (side.kind === "you") return guestQuestion(domain);
  if (side.kind.startsWith("model ")) return guestQuestion(domain, {model: Number(side.kind.slice(6))});
  return guestQuestion(domain, {ratings: {}});
}

export async function lookUp(id) {
  $("who").value = id;
  if (!id) return;
  const mine = ++shown, cards = state.domains.map((d) => catalogueCard(d.name));
  cards.forEach((card) => card.classList.add("waiting"));
  $("person-lists").replaceChildren(...cards);
  $("person-rated").replaceChildren();
  const found = await patiently(() => Promise.all([ask(`/v1/users/${encodeURIComponent(id)}/ratings`), ...state.domains.map((d) => listOf(id, d.name).catch((error) => ({error})))]), () => lookUp(id));
  if (mine !== shown) return;
  cards.forEach((card) => card.classList.remove("waiting"));
  if (!found) return;
  const [known, ...answers] = found, lines = Object.entries(known.ratings).map(([name, rated]) => ratingsIn(name, rated, known.titles[name]));
  $("person-rated").replaceChildren(...(lines.length ? lines : [make("p", {}, "Nobody of that id has rated anything, so these are the lists of somebody new.")]));
  cards.forEach((card, z) => (answers[z].error ? say(card, answers[z].error.message) : showList(card, answers[z])));
}

function ratingsIn(name, rated, titles) {
  const best = Object.entries(rated).sort((a, b) => b[1] - a[1]), n = best.length;
  const named = best.slice(0, AMONG).flatMap(([item, value], i) => [i ? ", " : "", make("b", {}, titles[item] ?? item), facts(name)?.events ? "" : ` (${value})`]);
  return make("p", {}, `${number(n)} ${n === 1 ? "rating" : "ratings"} in ${name}${n > AMONG ? ", among them " : ": "}`, ...named);
}
