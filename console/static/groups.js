// Groups: the list, and one of them with its members and how far each partition is behind.

import { html } from "./htm-preact.js";
import { count, duration, link } from "./live.js";
import { Asked, Facts, Silent, Table } from "./parts.js";

export function Groups() {
  return html`
    <h1>Groups</h1>
    <${Asked} url="/v1/groups" seconds=${3}>${(value) => html`
      <${Silent} brokers=${value.silent} />
      <${Table}
        label="groups"
        empty="There is no group that you may describe."
        rows=${value.groups}
        text=${(each) => `${each.group} ${each.state}`}
        columns=${[
          ["Group", (each) => html`<a href=${link("groups", each.group)}>${each.group || "(empty)"}</a>`],
          ["State", (each) => html`<${State} state=${each.state} />`],
          ["Type", (each) => html`<span class="quiet">${each.type || "classic"}</span>`],
          ["Protocol", (each) => html`<span class="quiet">${each.protocol_type || "–"}</span>`],
          ["Coordinator", (each) => each.coordinator, "number"],
        ]} />`}<//>
  `;
}

function State({ state }) {
  const tone = state === "Stable" ? "good" : state.endsWith("Rebalance") ? "warn" : "quiet";
  return html`<span class=${tone}>${state}</span>`;
}

export function Group({ group, feed }) {
  const value = feed.groups.get(group);
  return html`
    <h1><a class="up" href="#/groups">Groups</a> ${group}</h1>
    ${!value && html`<p class="quiet">…</p>`}
    ${value?.error && html`<p class="problem" role="alert">${value.error}</p>`}
    ${value && !value.error && html`<${Shown} group=${value} />`}
  `;
}

const totalOf = (rows) => rows.reduce((sum, row) => sum + (row.lag ?? 0), 0);
const worstOf = (rows) => rows.reduce((worst, row) => Math.max(worst, row.lag_seconds ?? 0), 0);

function Shown({ group }) {
  const rows = group.offsets;
  const topics = [...new Set(rows.map((row) => row.topic))];
  return html`
    <${Facts} items=${[
      ["State", html`<${State} state=${group.state} />`],
      ["Members", count(group.members.length)],
      ["Protocol", group.protocol || "–"],
      ["Coordinator", group.coordinator],
      ["Lag", html`<span id="lag">${count(totalOf(rows))}</span> records`],
      ["Oldest", duration(worstOf(rows) * 1000)],
    ]} />
    <h2>Members</h2>
    <${Table} label="members" empty="The group has no members now."
      rows=${group.members} text=${(each) => `${each.member} ${each.client} ${each.host}`}
      columns=${[
        ["Client", (each) => html`<b>${each.client}</b>`],
        ["Member", (each) => html`<code class="long">${each.instance ?? each.member}</code>`],
        ["Host", (each) => each.host],
        ["Partitions", (each) => html`<${Assigned} assigned=${each.assigned} />`],
        ["Lag", (each) => count(totalOf(rows.filter((row) => row.member === each.member))), "number"],
      ]} />
    ${topics.map((topic) => {
      const own = rows.filter((row) => row.topic === topic);
      return html`<h2><a href=${link("topics", topic)}>${topic}</a> <span class="quiet">${count(totalOf(own))} behind</span></h2>
        <${Lags} rows=${own} members=${group.members} />`;
    })}
    ${rows.length === 0 && html`<p class="quiet">It has committed no offset.</p>`}
  `;
}

function Assigned({ assigned }) {
  if (assigned === null) return html`<span class="quiet">in a form of its own</span>`;
  const topics = Object.entries(assigned);
  if (!topics.length) return html`<span class="quiet">none</span>`;
  return html`<span>${topics.map(([topic, indexes]) => html`<span class="tag">${topic} ${indexes.join(", ")}</span> `)}</span>`;
}

function Lags({ rows, members }) {
  const most = Math.max(...rows.map((row) => row.lag ?? 0), 1);
  const clients = new Map(members.map((each) => [each.member, each.client]));
  return html`<${Table} label="lag by partition" empty="" rows=${rows} columns=${[
    ["Partition", (row) => row.partition, "number"],
    ["Committed", (row) => count(row.committed), "number"],
    ["High watermark", (row) => count(row.high_watermark), "number"],
    ["Lag", (row) => html`<b class=${row.lag ? "lag" : ""}>${count(row.lag)}</b>`, "number"],
    ["Seconds", (row) => (row.lag_seconds === null ? "–" : duration(row.lag_seconds * 1000)), "number"],
    ["", (row) => html`<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="100" height="8" /><rect class="appended" width=${((row.lag ?? 0) / most) * 100} height="8" /></svg>`],
    ["Member", (row) => html`<span class="quiet">${clients.get(row.member) ?? row.member ?? "–"}</span>`],
  ]} />`;
}
