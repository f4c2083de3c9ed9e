// What the laboratory's views have in common: its state, and buttons that ask it for something.

import { html, useEffect, useState } from "./htm-preact.js";
import { get } from "./live.js";

const SECONDS = 1;
const BASE = "/lab/v1";

/** The path of an action. */
export const at = (...parts) => BASE + "/" + parts.map(encodeURIComponent).join("/");

/** What the laboratory says, for all parts of the page: it is asked once a second, and after each action. */
const state = { brokers: null, faults: null, clock: null, error: null };
const listeners = new Set();
let timer = null;
let asked = 0;

async function look() {
  clearTimeout(timer);
  const number = ++asked;
  let found;
  try {
    const [brokers, faults, clock] = await Promise.all(["brokers", "faults", "clock"].map((each) => get(at(each))));
    found = { brokers, faults: faults.faults, clock, error: null };
  } catch (error) {
    found = { error };
  }
  // An action may have asked again meanwhile: the latest answer is shown.
  if (number !== asked) return;
  Object.assign(state, found);
  for (const redraw of listeners) redraw((value) => value + 1);
  if (listeners.size) timer = setTimeout(look, SECONDS * 1000);
}

/** The state of the laboratory; asked for while a part of the page uses it. */
export function useLab() {
  const [, redraw] = useState(0);
  useEffect(() => {
    listeners.add(redraw);
    if (listeners.size === 1) look();
    return () => {
      listeners.delete(redraw);
      if (!listeners.size) clearTimeout(timer);
    };
  }, []);
  return state;
}

/** Ask for an action: its answer, or an Error with the reason. */
export async function act(method, url, words) {
  const response = await fetch(url, {
    method,
    headers: { "content-type": "application/json" },
    body: words === undefined ? undefined : JSON.stringify(words),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** Kept outside of the parts, so that a change of the view does not lose what was said. */
const said = { text: "", isError: false };

function say(text, isError = false) {
  Object.assign(said, { text, isError });
}

/** Do something by its name: what it has become is said, and the state is asked for at once. */
export async function perform(name, doing) {
  say(`${name} …`);
  for (const redraw of listeners) redraw((value) => value + 1);
  try {
    await doing();
    say(name);
  } catch (error) {
    say(`${name}: ${error.message}`, true);
  }
  await look();
}

/** The last thing that was done. */
export function Said() {
  return html`<p class="said ${said.isError ? "bad" : "quiet"}" role=${said.isError ? "alert" : "status"}>${said.text}</p>`;
}

/** A button that asks for one action. It cannot be pressed again before the answer. */
export function Act({ name, label, method = "POST", url, words }) {
  const [isBusy, setBusy] = useState(false);
  const press = async () => {
    setBusy(true);
    await perform(label ?? name, () => act(method, url, words));
    setBusy(false);
  };
  // A disabled button would lose the focus of a person who uses the keyboard.
  return html`<button aria-label=${label ?? name} aria-disabled=${isBusy} onClick=${() => !isBusy && press()}>${name}</button>`;
}

/** In words: what a broker is doing. */
export function stateOf(broker) {
  if (!broker.is_running) return "down";
  return broker.is_frozen ? "frozen" : "runs";
}

/** Whether this page is the one of that broker. */
export const isOwn = (broker) => broker.page_url !== null && new URL(broker.page_url).host === location.host;

/** A select of brokers, or of other parties. */
export function Choice({ label, value, values, onChange }) {
  return html`<label>${label} <select aria-label=${label} value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${values.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`;
}
