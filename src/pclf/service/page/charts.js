// Small drawings and the few words for making elements. Text is always set as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

export const number = (value, digits = 0) =>
  Number(value).toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});

export const ordinal = (n) => `${n}${{one: "st", two: "nd", few: "rd", other: "th"}[new Intl.PluralRules("en", {type: "ordinal"}).select(n)]}`;

export function ago(seconds) {
  const steps = [[86400, "day"], [3600, "hour"], [60, "minute"]];
  const [size, word] = steps.find(([size]) => seconds >= size) ?? [1, "second"];
  const n = Math.max(0, Math.floor(seconds / size));
  return `${n} ${word}${n === 1 ? "" : "s"}`;
}

// How probable each value of the scale is, above the ends of the scale; those inside the 80 % interval in full colour.
export function distribution(shares, scale, [low, high]) {
  const width = 64, tall = 27, gap = shares.length > 6 ? 1 : 2, most = Math.max(...shares, 1e-9);
  const bar = (width - gap * (shares.length - 1)) / shares.length, best = scale[shares.indexOf(most)];
  const svg = draw("svg", {viewBox: `0 0 ${width} ${tall}`, class: "dist", role: "img",
    "aria-label": `${best} is most likely; the rating lies ${low === high ? `at ${low}` : `between ${low} and ${high}`} with a probability of 80 %`});
  shares.forEach((share, i) => {
    const height = Math.max(1.5, (share / most) * (tall - 1));
    const rect = draw("rect", {x: i * (bar + gap), y: tall - height, width: bar, height, rx: Math.min(1.5, bar / 3),
      class: scale[i] >= low && scale[i] <= high ? "in" : "out"});
    rect.append(draw("title", {}, `${scale[i]}: ${Math.round(share * 100)} %`));
    svg.append(rect);
  });
  const ends = [[scale[0], bar / 2], [scale.at(-1), width - bar / 2]];
  for (const [value, x] of shares.length > 2 ? ends : []) svg.append(draw("text", {x, y: tall + 10, "text-anchor": "middle"}, value));
  return svg;
}

// Error over refits: a line through the accepted ones, a ring for each that was refused.
export function errorChart(points, width) {
  const height = 190, left = 46, right = 14, top = 14, bottom = 28;
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img",
    "aria-label": `held-out error of ${points.length} versions and refits, the last ${points.at(-1).error.toFixed(3)}`});
  const values = points.map((p) => p.error), low = Math.min(...values), high = Math.max(...values);
  const pad = Math.max((high - low) * 0.25, high * 0.03, 1e-6);          // a change of less than a hundredth looks like one
  const x = (i) => left + (points.length === 1 ? 0.5 : i / (points.length - 1)) * (width - left - right);
  const y = (v) => top + (1 - (v - low + pad) / (high - low + 2 * pad)) * (height - top - bottom);
  for (const v of [low, high]) {
    svg.append(draw("line", {x1: left, x2: width - right, y1: y(v), y2: y(v), class: "axis"}));
    svg.append(draw("text", {x: left - 8, y: y(v) + 4, "text-anchor": "end"}, v.toFixed(3)));
    if (y(low) - y(high) < 14) break;                              // two numbers would touch
  }
  const line = points.map((p, i) => [p, i]).filter(([p]) => p.accepted).map(([p, i]) => `${x(i)},${y(p.error)}`);
  if (line.length > 1) svg.append(draw("polyline", {points: line.join(" "), class: "line"}));
  const every = Math.ceil(points.length / (width / 40));          // so that names do not touch
  points.forEach((p, i) => {
    const dot = draw("circle", {cx: x(i), cy: y(p.error), r: 5, class: p.accepted ? "ok" : "no"});
    dot.append(draw("title", {}, `${p.name}: ${p.error.toFixed(4)}${p.accepted ? "" : ", refused"}`));
    svg.append(dot);
    if ((points.length - 1 - i) % every === 0) svg.append(draw("text", {x: x(i), y: height - 8, "text-anchor": "middle"}, p.short));
  });
  return svg;
}
