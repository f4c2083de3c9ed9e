// The page: its head, its views, and which of them is shown.

import { html, render, useEffect, useState } from "./htm-preact.js";
import { Cluster, Broker } from "./cluster.js";
import { Group, Groups } from "./groups.js";
import { Access, Transactions } from "./access.js";
import { extras } from "./extras.js";
import { useFeed, usePlace } from "./live.js";
import { Story, Store } from "./story.js";
import { Topic, Topics } from "./topics.js";

const VIEWS = [
  ["topics", "Topics"],
  ["groups", "Groups"],
  ["transactions", "Transactions"],
  ["access", "Access"],
  ["story", "Story"],
  ["store", "Store"],
  ...extras.views.map((each) => [each.key, each.title]),
];

function App() {
  const place = usePlace();
  const [view, name] = place;
  const isLive = view === "topics" && name && (place[2] ?? "live") === "live";
  const feed = useFeed(isLive ? [name] : [], view === "groups" && name ? [name] : []);
  useEffect(() => {
    const title = [name, view].filter(Boolean).join(" · ");
    document.title = title ? `${title} · Barnabas` : "Barnabas";
  }, [view, name]);

  return html`
    <a class="skip" href="#main" onClick=${skip}>To the content</a>
    <header class="head">
      <a class="brand" href="#/" aria-current=${view ? null : "page"}>
        <span class="dot ${feed.isOpen ? "on" : ""}" aria-hidden="true"></span>barnabas</a>
      <nav aria-label="Views">${VIEWS.map(
        ([key, title]) => html`<a href="#/${key}" aria-current=${view === key ? "page" : null}>${title}</a>`,
      )}</nav>
      <span class="state" role="status">${feed.isOpen ? "" : "not connected"}</span>
      <${Theme} />
    </header>
    ${extras.bars.map((Bar) => html`<${Bar} place=${place} />`)}
    <main id="main" tabindex="-1">${shown(place, feed)}</main>
  `;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function shown([view, name, part], feed) {
  switch (view) {
    case "":
      return html`<${Cluster} feed=${feed} />`;
    case "brokers":
      return html`<${Broker} key=${name} broker=${name} />`;
    case "topics":
      return name ? html`<${Topic} key=${name} topic=${name} part=${part || "live"} feed=${feed} />` : html`<${Topics} />`;
    case "groups":
      return name ? html`<${Group} key=${name} group=${name} feed=${feed} />` : html`<${Groups} />`;
    case "transactions":
      return html`<${Transactions} />`;
    case "access":
      return html`<${Access} part=${name || "acls"} />`;
    case "story":
      return html`<${Story} feed=${feed} />`;
    case "store":
      return html`<${Store} path=${name || "/"} />`;
    default: {
      const added = extras.views.find((each) => each.key === view);
      if (added) return html`<${added.view} />`;
      return html`<p class="problem">There is no view “${view}”. <a href="#/">To the cluster</a></p>`;
    }
  }
}

const THEMES = ["auto", "light", "dark"];

function Theme() {
  const [theme, set] = useState(stored);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
  }, [theme]);
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return html`<button class="theme" title="Colours: ${theme}" aria-label="Colours: ${theme}, change to ${next}"
    onClick=${() => set(next)}>◐</button>`;
}

function stored() {
  try {
    const theme = localStorage.getItem("theme");
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto";
  }
}

render(html`<${App} />`, document.body);
