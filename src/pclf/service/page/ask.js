// What every view needs: questions to the service, the key that it may want, and words for whoever looks on.
import {make} from "./charts.js";

export const $ = (id) => document.getElementById(id);
export const PLACES = 8;
export const state = {domains: [], rated: []};         // rated: {domain, item, title, value}, the latest first
const SLOW = 2500;                                     // milliseconds after which somebody wonders

export const facts = (name) => state.domains.find((d) => d.name === name);
export const hue = (name) => `hue-${Math.max(0, state.domains.indexOf(facts(name))) % 5}`;

export async function ask(path, options = {}) {
  const key = sessionStorage.getItem("key");
  const headers = {...(options.body ? {"Content-Type": "application/json"} : {}), ...(key ? {"X-API-Key": key} : {})};
  let answer;
  try {
    answer = await fetch(path, {...options, headers});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The service does not answer. It may have been stopped, or the network is gone.");
  }
  const body = await answer.json().catch(() => ({}));
  if (answer.status === 401 || answer.status === 403) {
    await wantKey(key ? body.error : "");
    return ask(path, options);
  }
  if (!answer.ok) throw new Error(body.error ? sentence(body.error) : `The service answered with ${answer.status} and no reason.`);
  return body;
}

export const post = (path, body, more = {}) => ask(path, {method: "POST", body: JSON.stringify(body), ...more});

// What the page waits for; after a while it says so. When nothing comes it says why, with a way to try again.
export async function patiently(work, again) {
  const wondering = setTimeout(() => tell("This takes longer than usual. The lists come as soon as they are made."), SLOW);
  try {
    const found = await work();
    tell();
    return found;
  } catch (error) {
    if (error.name !== "AbortError") tell(error.message, again);
    return null;
  } finally {
    clearTimeout(wondering);
  }
}

export function tell(text, again) {
  const button = again && make("button", {class: "quiet", type: "button", onclick: again}, "Try again");
  $("notice").replaceChildren(text ?? "", ...(button ? [button] : []));
  $("notice").hidden = !text;
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}`;

function wantKey(wrong) {
  const dialog = $("key-dialog");
  $("key-wrong").textContent = wrong ? sentence(wrong) : "";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    sessionStorage.setItem("key", $("key").value);
    resolve();
  }, {once: true}));
}
