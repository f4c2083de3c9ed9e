// A partition, live: the log of each replica as a bar, from an offset at the left to the leader's log end.

import { Component, html } from "./htm-preact.js";
import { bytes, count, duration, endOf, link, rate, rateOf } from "./live.js";

const WIDTH = 1000;
const SPAN_MIN = 64;
const SPAN_SECONDS = 4;

/** The offsets that a bar shows: the last seconds, and the replica that is furthest behind; in steps, so it is steady. */
function windowOf(row, replicas, perSecond) {
  const end = Math.max(endOf(row) ?? 0, 1);
  const start = row.log_start_offset ?? 0;
  const known = replicas.map((each) => each.end).filter((each) => each !== null);
  const lowest = Math.min(row.high_watermark ?? end, ...known);
  let span = SPAN_MIN;
  while (span < Math.max((end - lowest) * 1.5, perSecond * SPAN_SECONDS)) span *= 2;
  const from = Math.max(start, end - span);
  return { from, to: end, isCut: from > start };
}

function replicasOf(row, own) {
  return row.replicas.map((broker) => {
    const isLeader = broker === row.leader;
    const inSync = row.isr.includes(broker);
    const follower = row.followers.find((each) => each.broker === broker);
    const isOffline = row.offline.includes(broker);
    let end = null;
    if (row.role === "leader") end = isLeader ? row.log_end_offset : (follower?.log_end_offset ?? null);
    // A follower knows its own log, and of the others no more than the high watermark says.
    else if (broker === own) end = row.log_end_offset;
    return { broker, isLeader, inSync, isOffline, end, behindMs: follower?.behind_ms ?? 0 };
  });
}

function stateOf(replica, row) {
  if (replica.isLeader) return "leads";
  if (replica.isOffline) return "offline";
  const missing = replica.end === null || row.role !== "leader" ? null : row.log_end_offset - replica.end;
  if (!replica.inSync) {
    const since = replica.behindMs ? `, ${duration(replica.behindMs)}` : "";
    return missing ? `out of sync, ${count(missing)} behind${since}` : "out of sync";
  }
  if (missing) return `${count(missing)} behind${replica.behindMs >= 1000 ? `, ${duration(replica.behindMs)}` : ""}`;
  return "in sync";
}

function Bar({ replica, row, view }) {
  const x = (offset) => (Math.min(Math.max(offset, view.from), view.to) - view.from) / Math.max(view.to - view.from, 1) * WIDTH;
  // A broker that does not lead knows the high watermark only: every replica in sync has at least that.
  const end = replica.end ?? (replica.inSync ? row.high_watermark : null);
  const high = row.high_watermark ?? 0;
  const state = stateOf(replica, row);
  const committed = end === null ? 0 : x(Math.min(end, high));
  const appended = end === null ? 0 : x(end);
  return html`<div class="bar ${replica.inSync ? "" : "out"}">
    <span class="who"><b>${replica.broker}</b><i aria-hidden="true">${replica.isLeader ? "★" : replica.inSync ? "" : "✕"}</i></span>
    <svg viewBox="0 0 ${WIDTH} 12" preserveAspectRatio="none" role="img"
      aria-label="replica ${replica.broker}: ${state}, log end ${count(replica.end)}, high watermark ${count(high)}">
      <rect class="track" width=${WIDTH} height="12" />
      <rect class="committed" width=${committed} height="12" />
      <rect class="appended" x=${committed} width=${Math.max(appended - committed, 0)} height="12" />
      <rect class="mark" x=${Math.min(x(high), WIDTH - 2)} width="2" height="12" />
    </svg>
    <span class="end">${replica.end === null && replica.inSync ? html`<span class="quiet" title="every replica in sync has the committed records">≥ ${count(high)}</span>` : count(replica.end)}</span>
    <span class="state">${state}</span>
  </div>`;
}

/** One partition. It is drawn again only when its row has changed. */
export class Partition extends Component {
  shouldComponentUpdate(next) {
    return next.partition !== this.props.partition || next.second !== this.props.second || next.isOpen !== this.props.isOpen;
  }

  render({ partition, isOpen, onToggle, own }) {
    const row = partition.row;
    const replicas = replicasOf(row, own);
    const perSecond = rateOf(partition, performance.now());
    const view = windowOf(row, replicas, perSecond);
    const out = row.replicas.filter((each) => !row.isr.includes(each));
    const hasLeader = row.leader >= 0;
    return html`<section class="partition ${out.length || !hasLeader ? "ill" : ""}" aria-label="partition ${row.partition}">
      <header>
        <button class="fold" aria-expanded=${isOpen} onClick=${onToggle}>${row.topic}-${row.partition}</button>
        <span>${hasLeader ? html`leader <b class="leader">${row.leader}</b>` : html`<b class="bad">no leader</b>`}</span>
        <span>epoch <b class="epoch">${row.leader_epoch}</b></span>
        <span>ISR <b class="isr">{${row.isr.join(", ")}}</b></span>
        ${out.length > 0 && html`<span class="bad">${out.join(", ")} out of sync</span>`}
        <span class="end-of-line">
          <span class="offsets" title="log start offset … high watermark">${count(row.log_start_offset)} … <b class="hw">${count(row.high_watermark)}</b></span>
          <span class="size">${bytes(row.size_bytes)}</span>
          <b class="rate">${rate(perSecond)}</b>
        </span>
      </header>
      ${isOpen && html`
        <div class="axis"><span>${view.isCut ? "⋯ " : ""}${count(view.from)}</span>
          <span>HW ${count(row.high_watermark)} · LEO <b class="leo">${count(row.log_end_offset)}</b></span></div>
        ${replicas.map((replica) => html`<${Bar} key=${replica.broker} replica=${replica} row=${row} view=${view} />`)}
        ${row.role !== "leader" && html`<p class="quiet">Broker ${row.leader} leads: it knows how far each follower is.</p>`}`}
    </section>`;
  }
}

export function Legend() {
  return html`<p class="legend">
    <span><i class="swatch committed"></i>committed</span>
    <span><i class="swatch appended"></i>appended, not committed</span>
    <span><i class="swatch track"></i>missing</span>
    <span>★ leads</span><span>✕ out of sync</span>
  </p>`;
}

export const topicLink = (topic, ...more) => link("topics", topic, ...more);
