// Transactions; ACLs and quotas.

import { html } from "./htm-preact.js";
import { count, duration, link } from "./live.js";
import { Asked, Silent, Table, Tabs } from "./parts.js";

export function Transactions() {
  return html`
    <h1>Transactions</h1>
    <${Asked} url="/v1/transactions" seconds=${2}>${(value) => html`
      <${Silent} brokers=${value.silent} />
      <${Table}
        label="transactions"
        empty="There is no transactional id that you may describe."
        rows=${value.transactions}
        text=${(each) => `${each.transactional_id} ${each.state}`}
        columns=${[
          ["Transactional id", (each) => html`<b>${each.transactional_id}</b>`],
          ["State", (each) => html`<span class=${each.state === "Ongoing" ? "warn" : "quiet"}>${each.state}</span>`],
          ["Open since", (each) => html`<${Age} transaction=${each} />`, "number"],
          ["Producer", (each) => html`${each.producer_id}<span class="quiet"> · ${each.producer_epoch}</span>`, "number"],
          ["Partitions", (each) => each.partitions.map(([topic, index]) => html`<a class="tag" href=${link("topics", topic)}>${topic}-${index}</a> `)],
          ["Coordinator", (each) => each.coordinator, "number"],
        ]} />
      ${value.total > value.transactions.length && html`<p class="quiet">${count(value.total)} in all; the open ones are first.</p>`}`}<//>
  `;
}

function Age({ transaction }) {
  if (transaction.age_ms === null) return html`<span class="quiet">–</span>`;
  const isLate = transaction.age_ms > transaction.timeout_ms / 2;
  return html`<span class=${isLate ? "bad" : ""}>${duration(transaction.age_ms)}</span><span class="quiet"> of ${duration(transaction.timeout_ms)}</span>`;
}

export function Access({ part }) {
  return html`
    <h1>Access</h1>
    <${Tabs} here=${part} label="parts of access" items=${[["acls", "#/access"], ["quotas", "#/access/quotas"]]} />
    ${part === "quotas" ? html`<${Quotas} />` : html`<${Acls} />`}
  `;
}

function Acls() {
  return html`<${Asked} url="/v1/acls" seconds=${10}>${(value) =>
    value.is_enabled
      ? html`<${Table}
          label="ACLs"
          empty="There is no ACL."
          rows=${value.acls}
          text=${(each) => Object.values(each).join(" ")}
          columns=${[
            ["Principal", (each) => html`<b>${each.principal}</b>`],
            ["Permission", (each) => html`<span class=${each.permission === "Deny" ? "bad" : "good"}>${each.permission}</span>`],
            ["Operation", (each) => each.operation],
            ["Resource", (each) => html`<span class="quiet">${each.resource_type}</span> ${each.resource}`],
            ["Pattern", (each) => html`<span class="quiet">${each.pattern}</span>`],
            ["Host", (each) => each.host],
          ]} />`
      : html`<p class="quiet">The broker has no authorizer: every caller may do everything (<code>authorizer.class.name</code>).</p>`}<//>`;
}

const ENTITIES = { user: "user", "client-id": "client id", ip: "address" };

function Quotas() {
  return html`<${Asked} url="/v1/quotas" seconds=${10}>${(value) => html`<${Table}
    label="quotas"
    empty="There is no quota."
    rows=${value.quotas}
    text=${(each) => JSON.stringify(each)}
    columns=${[
      ["For", (each) => each.entity.map((one) => html`<span class="tag">${ENTITIES[one.type] ?? one.type} ${one.name ?? "(default)"}</span> `)],
      ["Quota", (each) => Object.entries(each.values).map(([name, amount]) => html`<div><code>${name}</code> <b>${count(amount)}</b></div>`)],
    ]} />`}<//>`;
}
