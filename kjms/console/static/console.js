// What a page does beyond what works without a script.
"use strict";

const THEMES = ["", "light", "dark"];
const LABELS = { "": "Colours: as the system says", light: "Colours: light", dark: "Colours: dark" };

function showTheme() {
  const theme = document.documentElement.dataset.theme || "";
  for (const button of document.querySelectorAll("[data-theme-switch]")) {
    button.setAttribute("aria-label", LABELS[theme]);
    button.title = LABELS[theme];
  }
}

function switchTheme() {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme || "") + 1) % THEMES.length];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  try { localStorage.setItem("kjms-theme", next); } catch { /* storage is off */ }
  showTheme();
}

function countSelected() {
  const shown = document.querySelector("[data-selected-count]");
  if (!shown) return;
  const boxes = [...document.querySelectorAll("input[name=message_id]")];
  const count = boxes.filter((box) => box.checked).length;
  shown.textContent = `(${count})`;
  const all = document.querySelector("[data-select-all]");
  if (all) {
    all.checked = count > 0 && count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
  }
}

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-theme-switch]")) switchTheme();
  if (event.target.closest("[data-add-property]")) {
    const rows = document.getElementById("properties");
    const row = rows.lastElementChild.cloneNode(true);
    for (const input of row.querySelectorAll("input")) input.value = "";
    rows.append(row);
    row.querySelector("input").focus();
  }
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-select-all]")) {
    for (const box of document.querySelectorAll("input[name=message_id]")) box.checked = event.target.checked;
  }
  if (event.target.type === "checkbox") countSelected();
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.querySelector("[data-search]")?.focus();
  }
});

// What is the same as before is not announced again.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, serverResponse } = event.detail;
  if (target.id === "banner" && target.dataset.text === serverResponse) event.detail.shouldSwap = false;
  else if (target.id === "banner") target.dataset.text = serverResponse;
});

// The console itself has ended, or cannot be reached.
document.addEventListener("htmx:sendError", () => {
  const banner = document.getElementById("banner");
  if (!banner || banner.dataset.text === "gone") return;
  const text = document.createElement("p");
  text.className = "banner bad";
  text.textContent = "The console does not answer: this page is old.";
  banner.replaceChildren(text);
  banner.dataset.text = "gone";
});

// A page in the background is not refreshed; a search in it goes on.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (document.hidden && !event.target.matches("[data-goes-on]")) event.preventDefault();
});

document.addEventListener("htmx:afterSwap", countSelected);

document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("[data-add-property]")) button.hidden = false;
  document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  showTheme();
  countSelected();
});
