// A list of a catalogue: each item with its place, its expected rating and how sure that is, and the reason.
import {facts, hue} from "./ask.js";
import {distribution, make, number, ordinal} from "./charts.js";

const BASIS = {guest: "from what you said", popular: "for anybody new", known: "known here", visitor: "a visitor"};
const GLIDE = {duration: 520, easing: "cubic-bezier(.2,.8,.2,1)"};

export function catalogueCard(name, label = name) {
  return make("section", {class: `catalogue ${hue(name)}`, "data-domain": name, "aria-label": label},
    make("header", {}, make("h2", {}, label), make("span", {class: "badge"})), make("ol"));
}

// rate: what to do with a rating that is given in the list; before: places in the list that it replaces, by item;
// shared: places in the list beside it.
export function showList(card, answer, more = {}) {
  const domain = facts(answer.domain), list = card.querySelector("ol");
  card.querySelector(".badge").textContent = BASIS[answer.basis] ?? answer.basis;
  const tops = new Map([...list.children].map((li) => [li.dataset.item, li.getBoundingClientRect().top]));
  const reasons = answer.basis !== "popular";    // to somebody new there is one reason for everything
  const rows = answer.items.map((entry, i) => row(reasons ? entry : {...entry, why: null}, i, domain, more));
  list.replaceChildren(...rows);
  if (!rows.length) say(card, "Nothing is left to recommend here.");
  if (!tops.size || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const li of rows) {                       // every item glides from where it was
    const was = tops.get(li.dataset.item), moved = was - li.getBoundingClientRect().top;
    if (was === undefined) li.animate([{opacity: 0, transform: "translateX(18px)"}, {opacity: 1, transform: "none"}], GLIDE);
    else if (moved) li.animate([{transform: `translateY(${moved}px)`}, {transform: "none"}], GLIDE);
  }
}

export function say(card, text) {
  card.querySelector("ol").replaceChildren(make("li", {class: "none"}, text));
}

function row(entry, i, domain, {rate, before, shared}) {
  const id = String(entry.item), was = before?.get(id);
  const here = rate && make("button", {class: "know", type: "button", "aria-label": `I know ${entry.title}`, onclick: (event) => {
    const choice = stars(domain, 0, (value) => rate(domain.name, id, entry.title, value), entry.title);
    event.currentTarget.replaceWith(choice);
    choice.querySelector("button").focus({preventScroll: true});
  }}, "I know it");
  const mark = shared?.has(id) ? make("span", {class: "shared"}, `${ordinal(shared.get(id) + 1)} there`) : null;
  return make("li", {"data-item": id, class: before && (was === undefined || was > i) ? "fresh" : null},
    make("span", {class: "place", "aria-hidden": "true"}, String(i + 1)),
    make("p", {class: "title", title: entry.title.length > 90 ? entry.title : null}, entry.title, before ? move(was, i) : null, mark),
    make("div", {class: "figures"}, distribution(entry.distribution, domain.scale, entry.interval),
      domain.events ? null : make("span", {class: "expected"}, number(entry.rating, 1), make("span", {class: "visually-hidden"}, ` of ${domain.scale.at(-1)} expected`))),
    entry.why || here ? make("p", {class: entry.why ? "why" : "why bare"}, ...quoted(entry.why), entry.why && here ? " " : null, here) : null);
}

function move(was, i) {
  if (was === undefined) return make("span", {class: "move new"}, "new");
  if (was === i) return null;
  const up = was > i, n = Math.abs(was - i);
  return make("span", {class: `move ${up ? "up" : "down"}`}, make("span", {"aria-hidden": "true"}, up ? "▲ " : "▼ "),
    make("span", {class: "visually-hidden"}, up ? "up " : "down "), String(n));
}

// A reason, with the titles in it a little darker.
const quoted = (why) => (why ?? "").split(/(“[^”]*”)/).filter(Boolean).map((part) => (part.startsWith("“") ? make("cite", {}, part) : part));

// A rating to give: stars, or numbers where a scale has many values, or a tick where there are only events.
export function stars(domain, value, chosen, title) {
  if (domain.events) {
    return make("span", {class: `stars ${hue(domain.name)}`}, make("button", {type: "button", class: `tick${value ? " on" : ""}`, "aria-label": `I know ${title}`, onclick: () => chosen(1)}, "✓"));
  }
  const many = domain.scale.length > 5, light = (upTo) => buttons.forEach((b, i) => b.classList.toggle("on", domain.scale[i] <= upTo));
  const buttons = domain.scale.map((v) => make("button", {type: "button", role: "radio", "aria-checked": String(v === value),
    tabindex: v === (value || domain.scale[0]) ? 0 : -1, "aria-label": `${v} of ${domain.scale.at(-1)}`, onclick: () => chosen(v),
    onmouseover: () => light(v)}, many ? String(v) : null));
  light(value || -Infinity);
  return make("span", {class: `stars${many ? " many" : ""} ${hue(domain.name)}`, role: "radiogroup", "aria-label": `Rating of ${title}`,
    onmouseleave: () => light(value || -Infinity), onkeydown: (event) => {
      const step = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
      if (!step) return;
      event.preventDefault();
      buttons[Math.min(buttons.length - 1, Math.max(0, buttons.indexOf(document.activeElement) + step))].focus();
    }}, ...buttons);
}
