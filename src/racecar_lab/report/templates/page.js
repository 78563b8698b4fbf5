"use strict";

// Tables: a click on a head sorts by that column, another one the other way round. Empty entries stay last.
const text = new Intl.Collator("en", { numeric: true });

function sort(head) {
  const table = head.closest("table");
  const descending = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  table.dataset.sorted = "";
  const rows = Array.from(table.tBodies[0].rows, (row) => {
    const cell = row.cells[head.cellIndex];
    const number = "value" in cell.dataset;
    const key = number ? cell.dataset.value : cell.textContent.trim();
    return { row, empty: key === "", key: number ? Number(key) : key };
  });
  rows.sort((a, b) => {
    if (a.empty || b.empty) return a.empty - b.empty;
    const order = typeof a.key === "number" ? a.key - b.key : text.compare(a.key, b.key);
    return descending ? -order : order;
  });
  table.tBodies[0].append(...rows.map((one) => one.row));
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sort(button.parentElement));
}

// Figures: a click shows them large. Esc closes the dialog and gives the focus back; browsers do that.
const dialog = document.getElementById("large");
const picture = dialog.querySelector(".picture");

function enlarge(button) {
  const figure = button.parentElement;
  const copy = button.querySelector("svg, img").cloneNode(true);
  for (const one of [copy, ...copy.querySelectorAll("[id]")]) one.removeAttribute("id"); // they stay unique
  dialog.style.cssText = figure.style.cssText;
  dialog.querySelector("#large-title").textContent = figure.querySelector("figcaption").textContent;
  picture.replaceChildren(copy);
  dialog.showModal();
}

for (const button of document.querySelectorAll(".enlarge")) {
  button.addEventListener("click", () => enlarge(button));
}
dialog.querySelector(".close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // beside the figure
});
dialog.addEventListener("close", () => picture.replaceChildren());

// Paper cannot unfold anything.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details:not([open])")];
  for (const one of unfolded) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of unfolded) one.open = false;
});
