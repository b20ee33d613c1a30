// The operator's view: how old the model is, how its error went, what is asked, what is covered, what bridges bring.
import {$, ask, tell} from "./ask.js";
import {ago, errorChart, make, number} from "./charts.js";

const percent = (value) => `${number(value)}\u00a0%`;
const signed = (value) => `${Math.abs(value) < 0.05 ? "" : value > 0 ? "+" : "−"}${number(Math.abs(value), 1)}\u00a0%`;

function panel(size, title, ...children) {
  return make("section", {class: `panel ${size}`, "aria-label": title}, make("h2", {class: "small-caps"}, title), ...children);
}

function bars(rows) {
  return make("div", {class: "bars"}, ...rows.map(({name, share, said, hue}) => make("div", {class: hue === undefined ? null : `hue-${hue % 5}`},
    make("span", {}, name), make("meter", {min: 0, max: 1, value: Math.min(1, share), "aria-label": `${name} ${said}`}), make("span", {}, said))));
}

function modelPanel(s) {
  const fresh = s.counts?.fresh ?? 0, clock = s.refit_every ? `It is refitted every ${number(s.refit_every)} hours` : "No refit comes by the clock";
  const came = fresh ? `${number(fresh)} ${fresh === 1 ? "has" : "have"} come in since and already count.` : "None has come in since.";
  return panel("third", "Model", make("p", {class: "big"}, ago(s.now - s.model.fitted), make("small", {}, " old")),
    make("p", {}, `Version ${s.model.version}, ${s.model.kind}, knows ${number(s.model.ratings)} ratings. ${came}`),
    make("p", {}, s.refit_after ? `${clock}, and one comes after ${number(s.refit_after)} new ratings.` : `${clock}.`),
    make("div", {class: "actions"}, make("button", {class: "action", id: "refit", type: "button", onclick: refit}, "Refit now"),
      (s.versions?.length ?? 0) > 1 ? make("button", {class: "quiet", id: "roll-back", type: "button", onclick: rollBack}, "Go back one version") : null));
}

function errorPanel(s) {
  const points = [...(s.refits ?? [])].reverse().filter((r) => r.figures.error !== undefined && r.outcome !== "rolled back")
    .map((r) => ({error: r.figures.error, accepted: r.outcome === "accepted", name: `refit ${r.outcome}`, short: r.version ? `v${r.version}` : "–"}));
  const first = [...(s.versions ?? [])].reverse().find((v) => v.figures.error !== undefined && !points.some((p) => p.short === `v${v.version}`));
  if (first) points.unshift({error: first.figures.error, accepted: true, name: `version ${first.version}`, short: `v${first.version}`});
  if (!points.length) return panel("wide", "Held-out error over refits", make("p", {class: "empty"}, "The first refit measures it: one rating in ten is held out, and no later version may be worse on those."));
  return panel("wide", "Held-out error over refits", errorChart(points, innerWidth < 704 ? innerWidth - 70 : 640),
    make("p", {}, "This is the mean absolute error on ratings that the trial has not seen. A ring is a refit that was worse, so the old model stayed. "
      + "New ratings are held out too, so the line may rise although on the ratings that both versions know nothing was lost."));
}

const WHO = {known: "known people", visitor: "visitors", guest: "guests", popular: "people who are new"};

function trafficPanel(s) {
  const t = s.traffic, by = {};
  for (const [name, n] of Object.entries(t).filter(([name]) => name.startsWith("lists "))) {
    const basis = name.split(" ").at(-1);
    by[basis] = (by[basis] ?? 0) + n;
  }
  const all = Object.values(by).reduce((a, b) => a + b, 0) || 1;
  return panel("third", "Traffic", make("p", {class: "big"}, number(t.requests), make("small", {}, " requests")),
    make("p", {}, `Each took ${number(1000 * t.seconds / Math.max(1, t.requests), 1)} ms on average since the service started. Lists were for:`),
    bars(Object.entries(by).sort((a, b) => b[1] - a[1]).map(([name, n]) => ({name: WHO[name] ?? name, share: n / all, said: number(n)}))));
}

function coveragePanel(s) {
  const rows = s.domains.map((d, i) => ({name: d.name, share: d.coverage ?? 0, said: (d.coverage ?? null) === null ? "soon" : percent(100 * d.coverage), hue: i}));
  const popular = s.traffic.items ? s.traffic.popular / s.traffic.items : 0;
  return panel("third", "Coverage", bars(rows), make("p", {}, "A bar is the share of a catalogue that is among somebody’s first ten. "
    + `Of what was listed, ${percent(100 * popular)} is among the most rated ${percent(5)}.`));
}

function keptPanel(s) {
  const c = s.counts ?? {};
  const lines = [["events", c.events], ["events on lists that were shown", c.clicked], ["lists that were shown", c.shown], ["new items", c.items], ["people whom the next refit erases", c.erasures]];
  return panel("third", "Kept", make("p", {class: "big"}, number(c.ratings ?? 0), make("small", {}, c.ratings === 1 ? " rating told" : " ratings told")),
    make("dl", {}, ...lines.map(([name, n]) => make("div", {}, make("dt", {}, name), make("dd", {}, number(n ?? 0))))));
}

function refitsPanel(s) {
  const refits = (s.refits ?? []).slice(0, 12);
  if (!refits.length) return null;
  return panel("full", "Refits", make("div", {class: "scroll"}, make("table", {}, make("thead", {}, make("tr", {}, ...["when", "outcome", "version", "why"].map((h) => make("th", {scope: "col"}, h)))),
    make("tbody", {}, ...refits.map((r) => make("tr", {}, make("td", {}, `${ago(s.now - r.started)} ago`), make("td", {}, r.outcome), make("td", {}, r.version ?? "–"), make("td", {}, r.reason ?? "")))))));
}

function bridgePanel(s) {
  const change = (name, value, used) => make("p", {class: `change ${used && value < -0.05 ? "good" : ""}`}, make("strong", {}, signed(value)), make("small", {}, name));
  const rows = s.domains.flatMap((d, i) => d.bridges.map((b) => make("div", {class: `bridge hue-${i % 5} ${b.used ? "" : "unused"}`},
    make("div", {}, make("h3", {}, d.name), make("small", {}, b.used ? `by ${b.kind}` : `${b.kind}, not used`)),
    change("known people", b.percent, b.used), b.visitors === null ? make("span") : change("visitors", b.visitors, b.used),
    make("p", {}, b.text.slice(b.kind.length + 2, b.kind.length + 3).toUpperCase() + b.text.slice(b.kind.length + 3)))));
  return panel("full", "What bridges bring", make("p", {}, "A number is how the error in a catalogue changes, on held-out ratings, when the model knows the others: less is better."),
    ...(rows.length ? rows : [make("p", {}, "Nothing ties these catalogues together: they have no people, things or attributes in common.")]));
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
    if ($("operator-view").hidden) return;
    try {
      const s = await showOperator(), last = s.refits?.[0];
      if (last && last.outcome !== "running" && s.now - last.started > 15) tell();
      else follow();
    } catch (error) {
      tell(error.message);
      follow();
    }
  }, 1500);
}

export async function showOperator() {
  const s = await ask("/v1/status");
  const running = s.refits?.[0]?.outcome === "running" ? `A refit is running: it ${s.refits[0].reason}.` : null;
  const last = s.refits?.find((r) => ["accepted", "worse", "failed"].includes(r.outcome));
  const refused = !last || last.outcome === "accepted" ? null : `The last refit ${last.outcome === "worse" ? "was worse" : "failed"}, so the model before it is still served.`;
  $("operator-story").textContent = !s.database ? "The database does not answer: lists go on, ratings are refused until it is back." : running ?? refused ?? "All is well.";
  const focused = document.activeElement.id;
  $("board").replaceChildren(...[modelPanel, errorPanel, trafficPanel, coveragePanel, keptPanel, refitsPanel, bridgePanel].map((made) => made(s)).filter(Boolean));
  $(focused)?.focus({preventScroll: true});
  if (running) follow();
  return s;
}
