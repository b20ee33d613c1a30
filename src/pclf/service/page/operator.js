// The operator's view: how old the model is, how its error went, what is asked, what is covered, what bridges bring.
import {ago, errorChart, make, number} from "./charts.js";
import {ask, tell} from "./page.js";

const board = () => document.getElementById("board");

const percent = (value) => `${number(value)}\u00a0%`;
const signed = (value) => `${Math.abs(value) < 0.05 ? "" : value > 0 ? "+" : "−"}${number(Math.abs(value), 1)}\u00a0%`;

function panel(size, title, ...children) {
  return make("section", {class: `panel ${size}`, "aria-label": title}, make("h2", {class: "small-caps"}, title), ...children);
}

function bars(rows) {
  return make("div", {class: "bars"}, ...rows.map(({name, share, said, hue}) => make("div", {class: `hue-${hue % 5}`},
    make("span", {}, name), make("meter", {min: 0, max: 1, value: Math.min(1, share), "aria-label": `${name} ${said}`}), make("span", {}, said))));
}

function modelPanel(s) {
  const fresh = s.counts?.fresh ?? 0, every = s.refit_every ? `Refits every ${number(s.refit_every)} hours` : "No refit by the clock";
  const after = s.refit_after ? `${every}, and after ${number(s.refit_after)} new ratings.` : `${every}.`;
  return panel("third", "Model", make("p", {class: "big"}, ago(s.now - s.model.fitted), make("small", {}, " old")),
    make("p", {}, `Version ${s.model.version}, ${s.model.kind}, of ${number(s.model.ratings)} ratings. ${number(fresh)} have come in since and already count. ${after}`),
    make("div", {class: "actions"}, make("button", {class: "action", type: "button", onclick: refit}, "Refit now"),
      (s.versions?.length ?? 0) > 1 ? make("button", {class: "quiet", type: "button", onclick: rollBack}, "Go back one version") : null));
}

function errorPanel(s) {
  const points = [...(s.refits ?? [])].reverse().filter((r) => r.figures.error !== undefined && r.outcome !== "rolled back")
    .map((r) => ({error: r.figures.error, accepted: r.outcome === "accepted", name: `refit ${r.outcome}`, short: r.version ? `v${r.version}` : "–"}));
  const first = [...(s.versions ?? [])].reverse().find((v) => v.figures.error !== undefined && !points.some((p) => p.short === `v${v.version}`));
  if (first) points.unshift({error: first.figures.error, accepted: true, name: `version ${first.version}`, short: `v${first.version}`});
  return panel("wide", "Held-out error over refits", points.length ? errorChart(points) : make("p", {}, "It is measured with the first refit: one rating in ten is held out, and the error on those is what every later version must not exceed."),
    points.length ? make("p", {}, "Mean absolute error on ratings that the trial has not seen. A ring is a refit that was worse: the old model stayed.") : null);
}

function trafficPanel(s) {
  const t = s.traffic, lists = Object.entries(t).filter(([name]) => name.startsWith("lists "));
  const by = {};
  for (const [name, n] of lists) { const basis = name.split(" ").at(-1); by[basis] = (by[basis] ?? 0) + n; }
  const all = Object.values(by).reduce((a, b) => a + b, 0) || 1;
  return panel("third", "Traffic", make("p", {class: "big"}, number(t.requests), make("small", {}, " requests")),
    make("p", {}, `${number(1000 * t.seconds / Math.max(1, t.requests), 1)} ms each on average, since the service started.`),
    bars(Object.entries(by).sort((a, b) => b[1] - a[1]).map(([name, n], i) => ({name, share: n / all, said: number(n), hue: i}))));
}

function coveragePanel(s) {
  const rows = s.domains.map((d, i) => ({name: d.name, share: d.coverage ?? 0, said: d.coverage === null ? "soon" : percent(100 * d.coverage), hue: i}));
  const popular = s.traffic.items ? s.traffic.popular / s.traffic.items : 0;
  return panel("third", "Coverage", bars(rows), make("p", {}, "The share of each catalogue that is among somebody's first ten. "
    + `Of what was listed, ${percent(100 * popular)} is among the most rated ${percent(5)}.`));
}

function keptPanel(s) {
  const c = s.counts ?? {};
  const lines = [["events", c.events], ["of them on a list", c.clicked], ["lists that were shown", c.shown], ["new items", c.items], ["people to be erased by the next refit", c.erasures]];
  return panel("third", "Kept", make("p", {class: "big"}, number(c.ratings ?? 0), make("small", {}, " ratings told")),
    make("dl", {}, ...lines.map(([name, n]) => make("div", {}, make("dt", {}, name), make("dd", {}, number(n ?? 0))))));
}

function bridgePanel(s) {
  const change = (name, value, good) => make("p", {class: `change ${good ? "good" : ""}`}, make("strong", {}, signed(value)), make("small", {}, name));
  const rows = s.domains.flatMap((d, i) => d.bridges.map((b) => make("div", {class: `bridge hue-${i % 5} ${b.used ? "" : "unused"}`},
    make("div", {}, make("h3", {}, d.name), make("small", {}, b.used ? `by ${b.kind}` : `${b.kind}, not used`)),
    make("div", {}, change("known people", b.percent, b.used && b.percent < -0.05), b.visitors === null ? null : change("visitors", b.visitors, b.used && b.visitors < -0.05)),
    make("p", {}, b.text.slice(b.kind.length + 2, b.kind.length + 3).toUpperCase() + b.text.slice(b.kind.length + 3)))));
  return panel(s.refits?.length ? "wide" : "full", "What bridges bring", make("p", {}, "The change of the error in a catalogue, on held-out ratings, that knowing the others makes."),
    ...(rows.length ? rows : [make("p", {}, "Nothing ties these catalogues together: no common people, things or attributes.")]));
}

function refitsPanel(s) {
  const refits = s.refits ?? [];
  if (!refits.length) return null;
  return panel("third", "Refits", make("div", {class: "scroll"}, make("table", {}, make("thead", {}, make("tr", {}, ...["when", "outcome", "why"].map((h) => make("th", {scope: "col"}, h)))),
    make("tbody", {}, ...refits.slice(0, 12).map((r) => make("tr", {}, make("td", {}, `${ago(s.now - r.started)} ago`), make("td", {}, r.version ? `${r.outcome}, v${r.version}` : r.outcome), make("td", {}, r.reason ?? "")))))));
}

async function refit() {
  try {
    const answer = await ask("/v1/refit", {method: "POST"});
    tell(answer.state === "started" ? "A refit has started. This page follows it." : "Another refit is running.");
    follow();
  } catch (error) { tell(error.message); }
}

async function rollBack() {
  try {
    const answer = await ask("/v1/rollback", {method: "POST"});
    tell(`Version ${answer.model} is served again.`);
    await showOperator();
  } catch (error) { tell(error.message); }
}

let following = 0;
function follow() {
  clearTimeout(following);
  following = setTimeout(async () => {
    if (document.getElementById("operator").hidden) return;
    const s = await showOperator();
    if (s.refits?.[0]?.outcome === "running" || s.now - (s.refits?.[0]?.started ?? 0) < 15) follow();
  }, 1500);
}

export async function showOperator() {
  const s = await ask("/v1/status");
  const running = s.refits?.[0]?.outcome === "running" ? `A refit is running: it ${s.refits[0].reason}.` : null;
  const last = s.refits?.find((r) => ["accepted", "worse", "failed"].includes(r.outcome));
  const refused = !last || last.outcome === "accepted" ? null : `The last refit ${last.outcome === "worse" ? "was worse" : "failed"}, so the model before it is still served.`;
  document.getElementById("operator-story").textContent = !s.database ? "The database does not answer: lists go on, ratings are refused until it is back." : running ?? refused ?? "All is well.";
  board().replaceChildren(...[modelPanel(s), errorPanel(s), trafficPanel(s), coveragePanel(s), keptPanel(s), bridgePanel(s), refitsPanel(s)].filter(Boolean));
  if (running) follow();
  return s;
}
