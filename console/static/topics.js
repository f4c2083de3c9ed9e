// Topics: the list, and one of them: live, its messages, its configuration.

import { html, useEffect, useState } from "./htm-preact.js";
import { Configs } from "./cluster.js";
import { count, link, path, rate } from "./live.js";
import { Messages } from "./messages.js";
import { Asked, Chart, Facts, Table, Tabs } from "./parts.js";
import { Legend, Partition } from "./replicas.js";

const OPEN_AT_FIRST = 12;

export function Topics() {
  return html`
    <h1>Topics</h1>
    <${Asked} url="/v1/topics" seconds=${5}>${(value) => html`<${Table}
      label="topics"
      empty="There is no topic that you may describe."
      rows=${[...value.topics].sort((a, b) => a.is_internal - b.is_internal)}
      text=${(each) => each.topic}
      columns=${[
        ["Topic", (each) => html`<a href=${link("topics", each.topic)} class=${each.is_internal ? "quiet" : ""}>${each.topic}</a>`],
        ["Partitions", (each) => count(each.partitions), "number"],
        ["Replicas", (each) => count(each.replication_factor), "number"],
        ["Records", (each) => count(each.records), "number"],
        ["State", (each) => html`<${State} topic=${each} />`],
        ["", (each) => html`<a class="quiet" href=${link("topics", each.topic, "messages")} aria-label="messages of ${each.topic}">messages</a>`],
      ]} />`}<//>
  `;
}

function State({ topic }) {
  if (topic.offline) return html`<b class="bad">${count(topic.offline)} without a leader</b>`;
  if (topic.under_replicated) return html`<span class="bad">${count(topic.under_replicated)} under-replicated</span>`;
  return html`<span class="good">in sync</span>`;
}

export function Topic({ topic, part, feed }) {
  return html`
    <h1><a class="up" href="#/topics">Topics</a> ${topic}</h1>
    <${Tabs} here=${part} label="parts of the topic" items=${[
      ["live", link("topics", topic)],
      ["messages", link("topics", topic, "messages")],
      ["configuration", link("topics", topic, "configuration")],
    ]} />
    ${part === "messages" && html`<${Messages} topic=${topic} />`}
    ${part === "configuration" &&
    html`<${Asked} url=${path("topics", topic, "configs")}>${(value) => html`<${Configs} configs=${value.configs} />`}<//>`}
    ${part === "live" && html`<${Live} topic=${topic} feed=${feed} />`}
  `;
}

function Live({ topic, feed }) {
  const [toggled, setToggled] = useState(new Set());
  const [second, setSecond] = useState(0);
  // Rates fall without an event: they are drawn again each second.
  useEffect(() => {
    const timer = setInterval(() => setSecond((value) => value + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  // Until the feed of this topic begins, there are the rows of the one that was looked at before.
  const partitions = [...feed.partitions.values()]
    .filter((each) => each.row.topic === topic)
    .sort((a, b) => a.row.partition - b.row.partition);
  if (!partitions.length)
    return html`<${Asked} url=${path("topics", topic)}>${() => html`<p class="quiet">…</p>`}<//>`;

  const toggle = (key) => {
    const next = new Set(toggled);
    if (!next.delete(key)) next.add(key);
    setToggled(next);
  };
  const rows = partitions.map((each) => each.row);
  const records = rows.reduce((sum, row) => sum + (row.high_watermark ?? 0) - (row.log_start_offset ?? 0), 0);
  const ill = rows.filter((row) => row.isr.length < row.replicas.length).length;
  return html`
    <div class="summary">
      <${Facts} items=${[
        ["Partitions", count(rows.length)],
        ["Records", count(records)],
        ["Under-replicated", count(ill), ill ? "bad" : ""],
        ["Now", rate(feed.history.at(-1) ?? 0)],
      ]} />
      <${Chart} values=${feed.history} label="records a second in the last two minutes" />
    </div>
    <${Legend} />
    ${partitions.map((each, index) => html`<${Partition}
      key=${each.key} partition=${each} second=${second} own=${feed.cluster?.broker}
      isOpen=${toggled.has(each.key) !== index < OPEN_AT_FIRST}
      onToggle=${() => toggle(each.key)} />`)}
  `;
}
