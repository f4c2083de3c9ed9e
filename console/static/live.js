// What the page knows: JSON that is asked for, and the feed that says what changes.

import { useEffect, useRef, useState } from "./htm-preact.js";

const RATE_SECONDS = 5;
const HISTORY_SECONDS = 120;

export const path = (...parts) => "/v1/" + parts.map(encodeURIComponent).join("/");

/** The JSON at a path, or an Error with the reason that the broker gives. */
export async function get(url, signal) {
  const response = await fetch(url, { signal, headers: { accept: "application/json" } });
  let body;
  try {
    body = await response.json();
  } catch {
    throw new Error(`${response.status} ${response.statusText}`);
  }
  if (!response.ok) {
    const error = new Error(body.error);
    error.status = response.status;
    throw error;
  }
  return body;
}

/** [value, error] of a path; asked again every `seconds`, and while an earlier value is shown. */
export function useJson(url, seconds = 0) {
  const [state, set] = useState({ url: null, value: null, error: null });
  useEffect(() => {
    if (url === null) return undefined;
    const controller = new AbortController();
    let timer;
    const ask = async () => {
      try {
        const value = await get(url, controller.signal);
        set({ url, value, error: null });
      } catch (error) {
        if (controller.signal.aborted) return;
        set((before) => ({ url, value: before.url === url ? before.value : null, error }));
      }
      if (seconds > 0 && !controller.signal.aborted) timer = setTimeout(ask, seconds * 1000);
    };
    ask();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [url, seconds]);
  return state.url === url ? [state.value, state.error] : [null, null];
}

/** One partition: its row, and the log end offsets of the last seconds. */
function applied(partition, changes, now) {
  const row = { ...(partition?.row ?? {}), ...changes };
  const samples = (partition?.samples ?? []).filter((each) => now - each[0] <= RATE_SECONDS * 1000);
  const end = endOf(row);
  if (end !== null && end !== undefined) samples.push([now, end]);
  return { row, samples, key: `${row.topic}-${row.partition}` };
}

export const endOf = (row) => row.log_end_offset ?? row.high_watermark ?? null;

/** Records a second, over the last seconds. */
export function rateOf(partition, now) {
  const samples = partition.samples;
  if (samples.length === 0) return 0;
  const [first, start] = samples[0];
  const [last, end] = samples[samples.length - 1];
  const ms = Math.max(now - first, 1000);
  return now - last > RATE_SECONDS * 1000 ? 0 : Math.max(0, ((end - start) * 1000) / ms);
}

const EMPTY = () => ({ cluster: null, partitions: new Map(), groups: new Map(), events: [], history: [], isOpen: false });

/** The feed of these topics and groups. It begins again by itself when the connection is lost. */
export function useFeed(topics, groups) {
  const [, redraw] = useState(0);
  const known = useRef(EMPTY());
  const query = new URLSearchParams();
  // A group's id may have a comma.
  if (topics.length) query.set("topics", topics.map(encodeURIComponent).join(","));
  if (groups.length) query.set("groups", groups.map(encodeURIComponent).join(","));
  const url = `/v1/feed?${query}`;
  useEffect(() => {
    const before = known.current;
    known.current = { ...EMPTY(), cluster: before.cluster, events: before.events };
    let isDue = false;
    let source;
    // Events of one moment make one drawing.
    const draw = () => {
      if (isDue) return;
      isDue = true;
      requestAnimationFrame(() => {
        isDue = false;
        redraw((count) => count + 1);
      });
    };
    const takes = {
      cluster: (value) => (known.current.cluster = value),
      group: (value) => known.current.groups.set(value.group, value),
      story: (value) => {
        const last = known.current.events.at(-1)?.number ?? 0;
        const fresh = value.events.filter((each) => each.number > last);
        known.current.events = [...known.current.events, ...fresh].slice(-1000);
      },
      partitions: (value) => {
        const partitions = known.current.partitions;
        for (const [topic, index] of value.gone) partitions.delete(`${topic}-${index}`);
        const now = performance.now();
        for (const row of value.rows) {
          const key = `${row.topic}-${row.partition}`;
          partitions.set(key, applied(partitions.get(key), row, now));
        }
      },
    };
    const open = () => {
      source = new EventSource(url);
      source.onopen = () => {
        // What was known before the connection was lost may be outdated: the feed begins with everything.
        known.current.partitions = new Map();
        known.current.isOpen = true;
        draw();
      };
      source.onerror = () => {
        known.current.isOpen = false;
        draw();
        // The browser gives up after an answer that is no stream: a broker that starts, or too many feeds.
        if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, 2000);
      };
      for (const [name, take] of Object.entries(takes)) {
        source.addEventListener(name, (event) => {
          take(JSON.parse(event.data));
          draw();
        });
      }
    };
    let timer;
    open();
    const history = setInterval(() => {
      const now = performance.now();
      let rate = 0;
      for (const partition of known.current.partitions.values()) rate += rateOf(partition, now);
      known.current.history = [...known.current.history, rate].slice(-HISTORY_SECONDS);
      draw();
    }, 1000);
    return () => {
      source.close();
      clearTimeout(timer);
      clearInterval(history);
    };
  }, [url]);
  return known.current;
}

/** The part of the address behind "#/", and a way to listen to it. */
export function usePlace() {
  const parse = () => location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const [place, set] = useState(parse);
  useEffect(() => {
    const changed = () => set(parse());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return place;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const link = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");

// -- how numbers are written

const WHOLE = new Intl.NumberFormat("en");

export const count = (value) => (value === null || value === undefined ? "–" : WHOLE.format(value));

export function bytes(value) {
  if (value === null || value === undefined || value < 0) return "–";
  // A disk in memory has no end.
  if (value > 1e17) return "unlimited";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function rate(value) {
  if (value < 0.05) return "0/s";
  if (value >= 10000) return `${(value / 1000).toFixed(0)}k/s`;
  if (value >= 1000) return `${(value / 1000).toFixed(1)}k/s`;
  return `${value >= 10 ? value.toFixed(0) : value.toFixed(1)}/s`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** The date of a time in ms; null of one that no date has, as of a record whose producer has counted in ns. */
export function dateOf(ms) {
  const date = new Date(ms);
  return ms < 0 || Number.isNaN(date.getTime()) ? null : date;
}

export function time(ms) {
  const date = dateOf(ms);
  if (date === null) return ms < 0 ? "–" : `${ms} ms`;
  const two = (value, width = 2) => String(value).padStart(width, "0");
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
  const isToday = new Date().toDateString() === date.toDateString();
  return isToday ? clock : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}`;
}
