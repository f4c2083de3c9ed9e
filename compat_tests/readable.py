"""Whether a person can read a page: the contrast of its texts, and the width of a phone."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

CONTRAST_MIN = 4.5  # of WCAG's level AA
PHONE = {"width": 375, "height": 700}

# The contrast of each text with its ground, as WCAG defines it.
CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const lum = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
    const [a, b] = [lum(parse(getComputedStyle(node).color)), lum(ground(node))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), walker.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
}"""


def poor_contrasts(page: "Page") -> list[tuple[float, str]]:
    """The texts that are hard to read, each with its contrast."""
    return [(contrast, text) for contrast, text in page.evaluate(CONTRASTS) if contrast < CONTRAST_MIN]
