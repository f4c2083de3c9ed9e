// The story: the lines of the broker's log; and the nodes of the metadata store.

import { html, useState } from "./htm-preact.js";
import { Lines } from "./cluster.js";
import { bytes, link } from "./live.js";
import { Asked } from "./parts.js";

export function Story({ feed }) {
  const [kind, setKind] = useState("");
  const [filter, setFilter] = useState("");
  return html`
    <h1>Story</h1>
    <${Asked} url="/v1/story">${(value) => {
      const last = value.events.at(-1)?.number ?? 0;
      const all = [...value.events, ...feed.events.filter((each) => each.number > last)];
      const kinds = [...new Set(all.map((each) => each.kind))].sort();
      const wanted = filter.toLowerCase();
      const found = all.filter((each) => (!kind || each.kind === kind) && each.text.toLowerCase().includes(wanted));
      return html`
        <div class="filter">
          <label>About <select value=${kind} onChange=${(event) => setKind(event.target.value)}>
            <option value="">everything</option>${kinds.map((each) => html`<option value=${each}>${each}</option>`)}
          </select></label>
          <label>Filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
          <span class="quiet" role="status">${found.length} of ${all.length}</span>
        </div>
        <${Lines} events=${found.slice(-1000)} />`;
    }}<//>
  `;
}

export function Store({ path }) {
  const parts = path.split("/").filter(Boolean);
  return html`
    <h1>Store</h1>
    <p class="crumbs"><a href="#/store">/</a>${parts.map((part, index) => html`
      <a href=${link("store", "/" + parts.slice(0, index + 1).join("/"))}>${part}</a>${index < parts.length - 1 ? "/" : ""}`)}</p>
    <${Asked} url=${`/v1/store?path=${encodeURIComponent(path)}`} seconds=${5}>${(node) => html`
      <div class="node">
        <ul class="children" aria-label="children">${node.children.map((child) => html`
          <li><a href=${link("store", (path === "/" ? "" : path) + "/" + child)}>${child}</a></li>`)}
          ${node.child_count > node.children.length && html`<li class="quiet">${node.child_count - node.children.length} more</li>`}
          ${node.children.length === 0 && html`<li class="quiet">no children</li>`}
        </ul>
        <div>
          <p class="quiet">${node.version === null ? "the root" : `version ${node.version} · ${bytes(node.size_bytes)}${node.is_ephemeral ? " · ephemeral" : ""}`}</p>
          ${node.data !== null && html`<pre tabindex="0">${pretty(node.data)}</pre>`}
        </div>
      </div>`}<//>
  `;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
