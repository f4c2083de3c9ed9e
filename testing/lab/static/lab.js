// The laboratory on the page: a bar below the head of every view, and a view of its own.

import { extras } from "./extras.js";
import { html, useState } from "./htm-preact.js";
import { count, get, link, path, time, useJson } from "./live.js";
import { Asked, Problem, Table } from "./parts.js";
import { Act, Choice, Said, act, at, isOwn, perform, stateOf, useLab } from "./lab-parts.js";

const REQUESTS_SHOWN = 50;
const DISK = { fill: "full", slow: "slow", fail: "failing" };
const SLOW_SECONDS = 0.2;
const JUMPS = [
  ["+10 s", { seconds: 10 }],
  ["+1 min", { minutes: 1 }],
  ["+10 min", { minutes: 10 }],
  ["+1 h", { hours: 1 }],
  ["+7 days", { days: 7 }],
];

// -- below the head

function Bar({ place }) {
  const { brokers, faults, clock, error } = useLab();
  const [view, name] = place;
  if (view === "lab") return null;
  return html`<section class="lab-bar" aria-label="laboratory">
    <a class="title" href="#/lab">lab</a>
    ${error && html`<span class="bad">${error.message}</span>`}
    ${brokers?.brokers.map((each) => html`<span class="group ${stateOf(each)}" key=${each.id}>
      <b>${each.id}</b> <span class="quiet">${stateOf(each)}</span> <${Lives} broker=${each} /></span>`)}
    ${clock && html`<span class="group"><${Act} name="clock +10 min" url=${at("clock")} words=${{ minutes: 10 }} /></span>`}
    ${view === "topics" && name && brokers && html`<span class="group"><${MoveLeader} topic=${name} brokers=${brokers.brokers} /></span>`}
    <span class="group"><${Act} name="recover" label="recover all" url=${at("recover")} /></span>
    <${Armed} faults=${faults} />
    <${Said} />
  </section>`;
}

function Armed({ faults }) {
  const number = faults?.filter((each) => !each.is_removed).length ?? 0;
  if (number === 0) return null;
  return html`<a href="#/lab">${number === 1 ? "a fault is set" : `${count(number)} faults are set`}</a>`;
}

/** What may become of a broker now. */
function Lives({ broker }) {
  const { id } = broker;
  if (!broker.is_running) return html`<${Act} name="start" label="start broker ${id}" url=${at("brokers", id, "start")} />`;
  return html`
    <${Act} name="kill" label="kill broker ${id}" url=${at("brokers", id, "kill")} />
    <${Act} name="stop" label="stop broker ${id}" url=${at("brokers", id, "stop")} />
    ${broker.is_frozen
      ? html`<${Act} name="thaw" label="thaw broker ${id}" url=${at("brokers", id, "thaw")} />`
      : html`<${Act} name="freeze" label="freeze broker ${id}" url=${at("brokers", id, "freeze")} />`}`;
}

function MoveLeader({ topic, brokers }) {
  const [value] = useJson(path("topics", topic), 5);
  const [partition, setPartition] = useState("0");
  const [to, setTo] = useState("1");
  if (value === null) return null;
  return html`
    <${Choice} label="partition" value=${partition} values=${value.partitions.map((each) => String(each.partition))} onChange=${setPartition} />
    <${Choice} label="to" value=${to} values=${brokers.map((each) => String(each.id))} onChange=${setTo} />
    <${Act} name="move leader" label="move the leader of ${topic}-${partition} to ${to}"
      url=${at("partitions", topic, partition, "leader")} words=${{ to: Number(to) }} />`;
}

// -- the view

function Lab() {
  const { brokers, faults, clock, error } = useLab();
  return html`
    <h1>Laboratory</h1>
    <${Said} />
    ${error && html`<${Problem} error=${error} />`}
    ${brokers && html`
      <h2>Brokers</h2><${Brokers} rows=${brokers.brokers} />
      <h2>Links</h2><${Cuts} brokers=${brokers.brokers} cuts=${brokers.cuts} />
      <h2>Leaders</h2><${Leaders} brokers=${brokers.brokers} />`}
    ${clock && html`<h2>Time</h2><${Clock} clock=${clock} />`}
    ${faults && html`<h2>Faults</h2><${Faults} faults=${faults} />`}
    <h2>Requests</h2><${Requests} />
  `;
}

function Brokers({ rows }) {
  return html`<${Table} label="brokers of the laboratory" empty="There are none." rows=${rows} columns=${[
    ["Broker", (each) => (each.page_url && !isOwn(each) ? html`<a href=${each.page_url}>${each.id}</a>` : html`<b>${each.id}</b>`)],
    ["State", (each) => html`<span class=${each.is_running && !each.is_frozen ? "good" : "bad"}>${stateOf(each)}</span>`],
    ["", (each) => html`<span class="acts"><${Lives} broker=${each} />
      ${each.is_running && html`<${Act} name="kill, unnoticed" label="kill broker ${each.id}, unnoticed until its session ends"
        url=${at("brokers", each.id, "kill")} words=${{ failover: "session" }} />`}</span>`],
    ["Disk", (each) => html`<${Disk} broker=${each} />`],
  ]} />
  <p><${Act} name="recover all" url=${at("recover")} /> <span class="quiet">has all run, healed and in sync</span></p>`;
}

function Disk({ broker }) {
  if (broker.disk === null) return html`<span class="quiet">a directory</span>`;
  const harm = (name, verb, words) =>
    html`<${Act} name=${name} label="disk of broker ${broker.id}: ${name}" url=${at("brokers", broker.id, "disk", verb)} words=${words} />`;
  const state = broker.disk.map((each) => DISK[each]).join(", ");
  return html`<span class="acts"><span class=${state ? "bad" : "quiet"}>${state || "well"}</span>
    ${harm("full", "fill")} ${harm("slow", "slow", { seconds: SLOW_SECONDS })} ${harm("fail", "fail")}
    ${state && harm("heal", "heal")}</span>`;
}

function Cuts({ brokers, cuts }) {
  const parties = [...brokers.map((each) => String(each.id)), "clients", "store"];
  const [sender, setSender] = useState("1");
  const [receiver, setReceiver] = useState("clients");
  const [isBoth, setBoth] = useState(true);
  const party = (text) => (/^\d+$/.test(text) ? Number(text) : text);
  return html`<p class="acts">
      <${Choice} label="between" value=${sender} values=${parties} onChange=${setSender} />
      <${Choice} label="and" value=${receiver} values=${parties} onChange=${setReceiver} />
      <label><input type="checkbox" checked=${isBoth} onChange=${(event) => setBoth(event.target.checked)} /> both ways</label>
      <${Act} name="cut" label="cut ${sender} and ${receiver}" url=${at("cut")}
        words=${{ sender: party(sender), receiver: party(receiver), both: isBoth }} />
      <${Act} name="heal all" label="heal all links" url=${at("heal")} /></p>
    <p id="cuts" class=${cuts.length ? "bad" : "quiet"}>${cuts.length
      ? cuts.map(([from, to]) => html`<span class="tag bad">${from} ⇥ ${to}</span> `)
      : "Every message arrives."}</p>`;
}

function Leaders({ brokers }) {
  const [topic, setTopic] = useState(null);
  return html`<${Asked} url="/v1/topics" seconds=${5}>${(value) => {
    const names = value.topics.filter((each) => !each.is_internal).map((each) => each.topic);
    if (!names.length) return html`<p class="quiet">There is no topic.</p>`;
    const chosen = names.includes(topic) ? topic : names[0];
    return html`<p class="acts"><${Choice} label="topic" value=${chosen} values=${names} onChange=${setTopic} />
      <${MoveLeader} key=${chosen} topic=${chosen} brokers=${brokers} /> <a href=${link("topics", chosen)}>see it live</a></p>`;
  }}<//>`;
}

function Clock({ clock }) {
  return html`<p class="acts"><span id="clock">${time(clock.now_ms)}</span>
    ${clock.is_stopped && html`<span class="bad">stands still</span>`}
    ${JUMPS.map(([name, words]) => html`<${Act} name=${name} label="clock ${name}" url=${at("clock")} words=${words} />`)}
    ${clock.is_stopped
      ? html`<${Act} name="go on" label="let the clock go on" url=${at("clock")} words=${{ stopped: false }} />`
      : html`<${Act} name="stop" label="stop the clock" url=${at("clock")} words=${{ stopped: true }} />`}</p>`;
}

// -- faults and requests

function Faults({ faults }) {
  return html`<${Table} label="faults" empty="None is set." rows=${faults} columns=${[
      ["Name", (each) => html`<b>${each.id}</b>`],
      ["Fault", (each) => html`<code>${each.fault}</code>`],
      ["Fired", (each) => count(each.fired), "number"],
      ["Has hit", (each) => html`<${Hits} key=${`${each.id} ${each.fired}`} id=${each.id} />`],
      ["", (each) => each.is_removed ? html`<span class="quiet">removed</span>` : html`<${Act} name="remove" label="remove ${each.id}" method="DELETE" url=${at("faults", each.id)} />`],
    ]} />
    <${NewFault} />
    <p><${Act} name="reset" label="reset the laboratory" url=${at("reset")} /> <span class="quiet">removes all faults, forgets the requests, and has all brokers run, healed and in sync</span></p>`;
}

function Hits({ id }) {
  const [value] = useJson(at("faults", id));
  if (!value?.seen.length) return html`<span class="quiet">nothing yet</span>`;
  return html`${value.seen.slice(-3).map((each) => html`<div class="request"><code>${each.text}</code></div>`)}`;
}

function NewFault() {
  const [text, setText] = useState(null);
  return html`<${Asked} url=${at("schema")}>${(schema) => {
    const examples = Object.entries(schema.$defs)
      .filter(([name, each]) => name.startsWith("fault-") && each.examples)
      .map(([name, each]) => [name.slice("fault-".length), JSON.stringify(each.examples[0])]);
    const given = text ?? examples[0][1];
    const submit = (event) => {
      event.preventDefault();
      perform("set a fault", () => act("POST", at("faults"), JSON.parse(given)));
    };
    return html`<form class="acts new-fault" onSubmit=${submit}>
      <label>A fault like <select name="kind" onChange=${(event) => setText(examples.find(([name]) => name === event.target.value)[1])}>
        ${examples.map(([name]) => html`<option value=${name}>${name}</option>`)}</select></label>
      <input name="fault" aria-label="the fault, as JSON" spellcheck="false" value=${given} onInput=${(event) => setText(event.target.value)} />
      <button>set</button></form>`;
  }}<//>`;
}

function Requests() {
  const [isOpen, setOpen] = useState(false);
  const [after, setAfter] = useState(0);
  const [rows, setRows] = useState([]);
  const more = async () => {
    const found = await get(`${at("requests")}?after=${after}`);
    setRows([...rows, ...found.requests].slice(-REQUESTS_SHOWN));
    setAfter(found.last);
    setOpen(true);
  };
  return html`<p><button onClick=${() => perform("look at the requests", more)}>${isOpen ? "look again" : "look"}</button>
      <span class="quiet"> of clients; <code>barnabas monitor</code> prints them as they come</span></p>
    ${isOpen && html`<ol class="lines requests">${[...rows].reverse().map((each) => html`<li key=${each.number}><code>${each.text}</code></li>`)}</ol>
      ${rows.length === 0 && html`<p class="quiet">There are none.</p>`}`}`;
}

extras.views.push({ key: "lab", title: "Lab", view: Lab });
extras.bars.push(Bar);
