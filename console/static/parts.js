// Small parts that several views have.

import { html, useState } from "./htm-preact.js";
import { useJson } from "./live.js";

/** What `useJson` knows: `children(value)`, or that it is asked for, or the reason why not. */
export function Asked({ url, seconds, children }) {
  const [value, error] = useJson(url, seconds);
  return html`
    ${error && html`<${Problem} error=${error} />`}
    ${value === null ? !error && html`<p class="quiet">…</p>` : children(value)}
  `;
}

export function Problem({ error }) {
  return html`<p class="problem" role="alert">${error.message ?? String(error)}</p>`;
}

export function Silent({ brokers }) {
  if (!brokers?.length) return null;
  return html`<p class="problem">No answer from broker ${brokers.join(", ")}: what it knows is missing here.</p>`;
}

/** Term and value pairs in one line. */
export function Facts({ items }) {
  return html`<dl class="facts">${items.map(
    ([name, value, tone]) => html`<div class=${tone ?? ""}><dt>${name}</dt><dd>${value}</dd></div>`,
  )}</dl>`;
}

/** A table with a filter. `columns` are [title, cell(row), class]; `text(row)` is what the filter searches. */
export function Table({ columns, rows, text, empty, label, initial = "" }) {
  const [filter, setFilter] = useState(initial);
  const [limit, setLimit] = useState(500);
  const wanted = filter.toLowerCase();
  const found = wanted && text ? rows.filter((row) => text(row).toLowerCase().includes(wanted)) : rows;
  return html`
    ${text && rows.length > 8 && html`
      <label class="filter">Filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} />
        <span class="quiet" role="status">${wanted ? `${found.length} of ${rows.length}` : `${rows.length}`}</span>
      </label>`}
    ${rows.length === 0
      ? html`<p class="quiet">${empty}</p>`
      : html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
          <table>
            <thead><tr>${columns.map(([title, , kind]) => html`<th scope="col" class=${kind ?? ""}>${title}</th>`)}</tr></thead>
            <tbody>${found.slice(0, limit).map(
              (row) => html`<tr>${columns.map(([, cell, kind]) => html`<td class=${kind ?? ""}>${cell(row)}</td>`)}</tr>`,
            )}</tbody>
          </table>
        </div>`}
    ${found.length > limit && html`<button onClick=${() => setLimit(limit * 4)}>Show more of ${found.length}</button>`}
  `;
}

/** Tabs are links, so the browser's history and a copied address know them. */
export function Tabs({ items, here, label }) {
  return html`<nav class="tabs" aria-label=${label}>${items.map(
    ([name, href]) => html`<a href=${href} aria-current=${name === here ? "page" : null}>${name}</a>`,
  )}</nav>`;
}

/** Values over time as an area; the last one is at the right edge. */
export function Chart({ values, label, slots = 120 }) {
  const top = Math.max(...values, 1);
  const points = values.map((value, index) => `${slots - values.length + index},${(39 - (value / top) * 36).toFixed(1)}`);
  const first = slots - values.length;
  return html`<svg class="chart" viewBox="0 0 ${slots - 1} 40" preserveAspectRatio="none" role="img" aria-label=${label}>
    <path class="base" d="M0,39.5 L${slots - 1},39.5" />
    ${points.length > 1 && html`
      <path class="area" d="M${first},40 L${points.join(" L")} L${slots - 1},40 Z" />
      <path class="line" d="M${points.join(" L")}" />`}
  </svg>`;
}
