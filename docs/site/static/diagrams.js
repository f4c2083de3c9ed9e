// Lets Mermaid draw the diagrams of a page in the colours of its theme, when the page is loaded.
// Furo writes the reader's choice into the body; "auto" is what the system says.
addEventListener("DOMContentLoaded", () => {
  const chosen = document.body.dataset.theme;
  const isDark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  mermaid.initialize({ startOnLoad: true, theme: isDark ? "dark" : "default" });
});
