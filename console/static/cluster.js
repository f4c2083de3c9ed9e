// The cluster: its brokers, what is wrong, the disks; and the configuration of one broker.

import { html } from "./htm-preact.js";
import { Asked, Facts, Table } from "./parts.js";
import { bytes, count, link, path, time } from "./live.js";

export function Cluster({ feed }) {
  const cluster = feed.cluster;
  return html`
    ${cluster ? html`<${Head} cluster=${cluster} />` : html`<p class="quiet">…</p>`}
    ${cluster && html`<${Brokers} cluster=${cluster} />`}
    <h2>Log directories</h2>
    <${Asked} url="/v1/cluster" seconds=${10}>${(value) => html`<${Table}
      label="log directories"
      empty="You may not describe the cluster."
      rows=${value.log_dirs}
      columns=${[
        ["Broker", (each) => each.broker, "number"],
        ["Path", (each) => html`<code>${each.path}</code>`],
        ["State", (each) => (each.error ? html`<span class="bad">${each.error}</span>` : "online")],
        ["Free", (each) => bytes(each.usable_bytes), "number"],
        ["Size", (each) => bytes(each.total_bytes), "number"],
        ["", (each) => html`<${Used} dir=${each} />`],
      ]} />`}<//>
    <h2>Lately <a class="more" href="#/story">the whole story</a></h2>
    <${Lines} events=${feed.events.slice(-8)} />
  `;
}

function Head({ cluster }) {
  const ill = cluster.under_replicated + cluster.offline;
  return html`
    <h1>${ill === 0 ? "All replicas are in sync" : html`<span class="bad">${count(ill)} partitions need attention</span>`}</h1>
    <${Facts} items=${[
      ["Cluster", html`<code id="cluster-id">${cluster.cluster_id}</code>`],
      ["Brokers", html`<span id="brokers">${count(cluster.brokers.length)}</span>`],
      ["Controller", html`<span id="controller">${cluster.controller}</span>`],
      ["Topics", html`<a href="#/topics" id="topics">${count(cluster.topics)}</a>`],
      ["Partitions", html`<span id="partitions">${count(cluster.partitions)}</span>`],
      ["Under-replicated", html`<span id="under-replicated">${count(cluster.under_replicated)}</span>`, cluster.under_replicated ? "bad" : ""],
      ["Without a leader", html`<span id="offline">${count(cluster.offline)}</span>`, cluster.offline ? "bad" : ""],
    ]} />`;
}

function Brokers({ cluster }) {
  const most = Math.max(...cluster.brokers.map((each) => each.replicas), 1);
  return html`<div class="brokers">${cluster.brokers.map((each) => html`
    <a class="broker" href=${link("brokers", each.broker)}>
      <span class="number">${each.broker}</span>
      <span class="where"><b>${each.host}:${each.port}</b>
        <span>${each.broker === cluster.controller ? "controller" : each.rack ? `rack ${each.rack}` : "broker"}</span></span>
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="${each.leaders} led of ${each.replicas} replicas">
        <rect class="track" width="100" height="8" />
        <rect class="replicas" width=${(each.replicas / most) * 100} height="8" />
        <rect class="committed" width=${(each.leaders / most) * 100} height="8" />
      </svg>
      <span class="figures"><span>leads <b>${count(each.leaders)}</b></span><span>replicas <b>${count(each.replicas)}</b></span>
        <span class=${each.out_of_sync ? "bad" : ""}>out of sync <b>${count(each.out_of_sync)}</b></span></span>
    </a>`)}</div>`;
}

function Used({ dir }) {
  const used = dir.total_bytes > 0 ? 1 - dir.usable_bytes / dir.total_bytes : 0;
  return html`<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="${Math.round(used * 100)} % used">
    <rect class="track" width="100" height="8" /><rect class=${used > 0.9 ? "full" : "committed"} width=${used * 100} height="8" />
  </svg>`;
}

export function Lines({ events }) {
  if (!events.length) return html`<p class="quiet">Nothing yet. Elections, ISR changes and rebalances appear here.</p>`;
  return html`<ol class="lines">${[...events].reverse().map((each) => html`
    <li key=${each.number} class=${each.level}><time>${time(each.time_ms)}</time><span class="kind">${each.kind}</span>
      <span class="text">${each.text}</span></li>`)}</ol>`;
}

export function Broker({ broker }) {
  return html`
    <h1>Broker ${broker}</h1>
    <${Asked} url=${path("brokers", broker, "configs")}>${(value) => html`<${Configs} configs=${value.configs} />`}<//>
  `;
}

/** Properties: those that are set first. */
export function Configs({ configs }) {
  const isSet = (each) => each.source !== "default";
  const rows = [...configs].sort((a, b) => isSet(b) - isSet(a) || (a.name < b.name ? -1 : 1));
  return html`<${Table}
    label="properties"
    empty="There are none."
    rows=${rows}
    text=${(each) => `${each.name} ${each.value} ${each.source}`}
    columns=${[
      ["Property", (each) => html`<details><summary class=${isSet(each) ? "set" : ""}><code>${each.name}</code></summary>
        <p class="doc">${each.doc}</p>
        ${each.synonyms.map((one) => html`<p class="doc"><code>${one.name}</code> = ${one.value ?? "hidden"} <span class="quiet">${one.source}</span></p>`)}
      </details>`],
      ["Value", (each) => html`<code class="value">${each.is_sensitive ? "hidden" : (each.value ?? "–")}</code>`],
      ["From", (each) => html`<span class=${isSet(each) ? "" : "quiet"}>${each.source}</span>`],
      ["", (each) => (each.is_read_only ? html`<span class="quiet">at the start</span>` : "")],
    ]} />`;
}

