// The records of a topic: a page of them, or the tail.

import { html, useEffect, useRef, useState } from "./htm-preact.js";
import { bytes, count, dateOf, get, path, time } from "./live.js";
import { Asked, Problem } from "./parts.js";

const PAGE = 100;
const TAIL_KEPT = 300;
const TAIL_WAIT_MS = 1000;
const PREVIEW = 160;

export function Messages({ topic }) {
  return html`<${Asked} url=${path("topics", topic)}>${(value) => html`<${Reader} topic=${topic} partitions=${value.partitions} />`}<//>`;
}

function Reader({ topic, partitions }) {
  const [partition, setPartition] = useState("all");
  const [mode, setMode] = useState("newest");
  const [given, setGiven] = useState("");
  const [filter, setFilter] = useState("");
  const begin = beginOf(mode, given, partition);
  return html`
    <form class="filter" onSubmit=${(event) => event.preventDefault()}>
      <label>Partition <select name="partition" value=${partition} onChange=${(event) => setPartition(event.target.value)}>
        <option value="all">all</option>
        ${partitions.map((row) => html`<option value=${row.partition}>${row.partition}</option>`)}
      </select></label>
      <label>Begin <select name="mode" value=${mode} onChange=${(event) => { setMode(event.target.value); setGiven(""); }}>
        <option value="newest">the newest</option><option value="tail">live tail</option>
        <option value="offset">at an offset</option><option value="time">at a time</option><option value="oldest">the oldest</option>
      </select></label>
      ${mode === "offset" && html`<label>Offset <input name="offset" inputmode="numeric" size="12" value=${given} onInput=${(event) => setGiven(event.target.value)} /></label>`}
      ${mode === "time" && html`<label>Time <input name="time" type="datetime-local" step="1" value=${given} onInput=${(event) => setGiven(event.target.value)} /></label>`}
      <label>Filter <input name="filter" type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
      ${begin && html`<a class="button" href=${`${path("topics", topic, "download")}?${begin}`} download>Download JSON lines</a>`}
    </form>
    ${begin === null
      ? html`<p class="quiet">${mode === "offset" && partition === "all" ? "Choose a partition for the offset." : "Say where to begin."}</p>`
      : mode === "tail"
        ? html`<${Tail} key=${partition} topic=${topic} begin=${begin} filter=${filter} />`
        : html`<${Pages} key=${begin} topic=${topic} begin=${begin} filter=${filter} isNewest=${mode === "newest"} />`}
  `;
}

/** The query of the first page; null if something is missing. */
function beginOf(mode, given, partition) {
  const query = new URLSearchParams({ partition });
  if (mode === "newest") query.set("newest", PAGE);
  else if (mode === "tail") query.set("newest", 20);
  else if (mode === "oldest") query.set("time", 0);
  else if (mode === "offset") {
    if (partition === "all" || !/^\d+$/.test(given)) return null;
    query.set("offset", given);
  } else {
    const ms = new Date(given).getTime();
    if (Number.isNaN(ms)) return null;
    query.set("time", Math.max(ms, 0));
  }
  return query.toString();
}

function Pages({ topic, begin, filter, isNewest }) {
  const [pages, setPages] = useState([begin]);
  const query = pages.at(-1);
  return html`<${Asked} url=${`${path("topics", topic, "records")}?${query}&count=${PAGE}`}>${(page) => html`
    <${Problems} page=${page} />
    <${Records} topic=${topic} records=${isNewest && pages.length === 1 ? [...page.records].reverse() : page.records} filter=${filter} />
    <p class="pages">
      ${pages.length > 1 && html`<button onClick=${() => setPages(pages.slice(0, -1))}>Back</button>`}
      ${page.records.length > 0 && html`<button onClick=${() => setPages([...pages, `from=${page.next}`])}>Next</button>`}
    </p>`}<//>`;
}

function Problems({ page }) {
  const problems = Object.entries(page.problems);
  if (!problems.length) return null;
  return html`<p class="problem">${problems.map(([partition, why]) => `Partition ${partition}: ${why}. `)}</p>`;
}

/** Follows the end of the log by long polling: each answer says where the next one begins, so none is missed. */
function Tail({ topic, begin, filter }) {
  const state = useRef({ records: [], total: null, error: null, problems: {}, isPaused: false });
  const [, redraw] = useState(0);
  const draw = () => redraw((value) => value + 1);
  useEffect(() => {
    const controller = new AbortController();
    const follow = async () => {
      let place = begin;
      while (!controller.signal.aborted) {
        try {
          const url = `${path("topics", topic, "records")}?${place}&count=500&wait_ms=${TAIL_WAIT_MS}`;
          const page = await get(url, controller.signal);
          // Without any leader there is no place yet.
          place = page.next ? `from=${page.next}` : begin;
          const hadError = state.current.error !== null;
          const found = page.records.filter((each) => !each.is_marker);
          const isFirst = state.current.total === null;
          state.current.total = (state.current.total ?? 0) + found.length;
          state.current.error = null;
          if (!state.current.isPaused && found.length) {
            state.current.records = [...found.reverse(), ...state.current.records].slice(0, TAIL_KEPT);
          }
          const isOther = JSON.stringify(page.problems) !== JSON.stringify(state.current.problems);
          state.current.problems = page.problems;
          if (found.length || isFirst || isOther || hadError) draw();
          // The answer of a partition without a leader does not wait.
          if (Object.keys(page.problems).length) await new Promise((resolve) => setTimeout(resolve, 1000));
        } catch (error) {
          if (controller.signal.aborted) return;
          state.current.error = error;
          draw();
          await new Promise((resolve) => setTimeout(resolve, 1000));
        }
      }
    };
    follow();
    return () => controller.abort();
  }, [topic, begin]);
  const { records, total, error, problems, isPaused } = state.current;
  return html`
    <p class="pages"><button onClick=${() => { state.current.isPaused = !isPaused; draw(); }}>${isPaused ? "Go on" : "Pause"}</button>
      <span role="status">${total === null ? "…" : html`<b id="tailed">${count(total)}</b> received`}${records.length < total ? `, the last ${records.length} shown` : ""}</span></p>
    ${error && html`<${Problem} error=${error} />`}
    <${Problems} page=${{ problems }} />
    <${Records} topic=${topic} records=${records} filter=${filter} />
  `;
}

function Records({ topic, records, filter }) {
  const [open, setOpen] = useState(null);
  const wanted = filter.toLowerCase();
  const found = wanted ? records.filter((each) => textOf(each).includes(wanted)) : records;
  if (!found.length) return html`<p class="quiet">${records.length ? "No record fits the filter." : "There are no records here."}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="records"><table class="records">
    <thead><tr><th scope="col" class="number">Part.</th><th scope="col" class="number">Offset</th><th scope="col">Time</th>
      <th scope="col">Key</th><th scope="col">Value</th><th scope="col" class="number">Size</th><th scope="col"></th></tr></thead>
    <tbody>${found.map((each) => {
      const id = `${each.partition}:${each.offset}`;
      const isOpen = open === id;
      const toggle = () => setOpen(isOpen ? null : id);
      return html`
        <${Row} key=${id} record=${each} isOpen=${isOpen} toggle=${toggle} />
        ${isOpen && html`<tr key=${`${id}+`} class="opened"><td colspan="7"><${Details} topic=${topic} record=${each} /></td></tr>`}`;
    })}</tbody>
  </table></div>`;
}

function Row({ record, isOpen, toggle }) {
  if (record.is_marker)
    return html`<tr class="marker"><td class="number">${record.partition}</td><td class="number">${record.offset}</td><td>${time(record.timestamp)}</td>
      <td colspan="4">transaction of producer ${record.producer_id} ${record.transaction}</td></tr>`;
  return html`<tr class=${record.transaction === "aborted" ? "aborted" : ""}>
    <td class="number">${record.partition}</td>
    <td class="number"><button class="fold" aria-expanded=${isOpen} onClick=${toggle}>${record.offset}</button></td>
    <td class="time">${time(record.timestamp)}</td>
    <td class="key"><${Preview} data=${record.key} /></td>
    <td class="preview"><${Preview} data=${record.value} /></td>
    <td class="number">${bytes(record.value?.size ?? 0)}</td>
    <td>${record.transaction && html`<span class="tag ${record.transaction}">${record.transaction}</span>`}</td>
  </tr>`;
}

function Preview({ data }) {
  if (data === null) return html`<i class="quiet">null</i>`;
  if (data.hex !== undefined) return html`<code class="hex">${data.hex.slice(0, PREVIEW)}</code>`;
  return data.text.slice(0, PREVIEW);
}

const textOf = (record) => JSON.stringify([record.key?.text ?? record.key?.hex, record.value?.text ?? record.value?.hex, record.headers]).toLowerCase();

function Details({ topic, record }) {
  const whole = (part) => path("topics", topic, "records", record.partition, record.offset, part);
  return html`<div class="details">
    <p class="quiet">${dateOf(record.timestamp)?.toISOString() ?? time(record.timestamp)} · codec ${record.codec ?? "of an older format"} · leader epoch ${record.leader_epoch}${record.producer_id >= 0 ? ` · producer ${record.producer_id}` : ""}</p>
    <${Part} title="Key" data=${record.key} href=${whole("key")} />
    <${Part} title="Value" data=${record.value} href=${whole("value")} />
    ${record.header_count > 0 && html`<h3>Headers <span class="quiet">${record.header_count}</span></h3>
      <dl class="headers">${record.headers.map(([name, value]) => html`<div><dt>${name}</dt><dd><${Preview} data=${value} /></dd></div>`)}</dl>`}
  </div>`;
}

function Part({ title, data, href }) {
  const [isRaw, setRaw] = useState(false);
  if (data === null) return html`<h3>${title} <span class="quiet">null</span></h3>`;
  const json = data.text !== undefined && !data.is_cut ? parsed(data.text) : undefined;
  const text = data.hex !== undefined ? hexDump(data.hex) : json !== undefined && !isRaw ? JSON.stringify(json, null, 2) : data.text;
  const kind = data.hex !== undefined ? "bytes" : json !== undefined ? "JSON" : "UTF-8";
  return html`<h3>${title} <span class="quiet">${kind}, ${bytes(data.size)}${data.is_cut ? ", the beginning" : ""}${data.schema_id !== undefined ? `, maybe of schema ${data.schema_id}` : ""}</span>
      <span class="tools">${json !== undefined && html`<button onClick=${() => setRaw(!isRaw)}>${isRaw ? "Pretty" : "As it is"}</button>`}
      <button onClick=${() => navigator.clipboard?.writeText(data.text ?? data.hex)}>Copy</button>
      <a class="button" href=${href} download>All bytes</a></span></h3>
    <pre tabindex="0">${text}</pre>`;
}

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

function hexDump(hex) {
  const lines = [];
  for (let start = 0; start < hex.length; start += 32) {
    const part = hex.slice(start, start + 32);
    const digits = part.match(/../g) ?? [];
    const text = digits.map((each) => parseInt(each, 16)).map((code) => (code >= 32 && code < 127 ? String.fromCharCode(code) : "·")).join("");
    lines.push(`${(start / 2).toString(16).padStart(6, "0")}  ${digits.join(" ").padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}
