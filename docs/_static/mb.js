// Sorting and filtering of tables, and the search. Without it every table is whole and plain.
"use strict";
(() => {
  const chinese = document.documentElement.lang.startsWith("zh");
  const say = (en, zh) => (chinese ? zh : en);

  const number = (text) => {
    const found = /^[\s]*(-?[\d,]+(\.\d+)?)/.exec(text);
    return found ? Number(found[1].replaceAll(",", "")) : NaN;
  };

  function sortable(table) {
    const body = table.tBodies[0];
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "mb-sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        table.querySelectorAll("thead th").forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...body.rows].map((row) => [row.cells[column].textContent.trim(), row]);
        rows.sort(([a], [b]) => {
          const [x, y] = [number(a), number(b)];
          return (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y) * (up ? 1 : -1);
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  function filterable(form, table) {
    form.hidden = false;
    const value = (name) => form.querySelector(`[data-filter="${name}"]`).value.trim();
    const tags = [...table.tHead.rows[0].cells].slice(2).map((cell) => cell.textContent.trim());
    const apply = () => {
      const [kind, state, revision, words] = ["kind", "state", "revision", "words"].map(value);
      const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const cells = [...row.cells].slice(2).filter((_, n) => !revision || tags[n] === revision);
        const fits = (!kind || row.dataset.kind === kind)
          && (state ? cells.some((cell) => cell.dataset.state.split(" ").includes(state))
            : !revision || cells.some((cell) => !cell.dataset.state.startsWith("absent")))
          && wanted.every((word) => row.textContent.toLowerCase().includes(word));
        row.hidden = !fits;
        shown += fits;
      }
      for (const row of table.rows) [...row.cells].slice(2).forEach((cell, n) => { cell.hidden = Boolean(revision) && tags[n] !== revision; });
      form.querySelector("output").textContent = say(`${shown} entries`, `${shown} 条`);
    };
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }

  function search(input, list, count) {
    const parameters = new URLSearchParams(location.search);
    const run = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      list.replaceChildren();
      count.textContent = "";
      if (!words.length) return;
      const found = [];
      for (const entry of MB_INDEX) {
        const name = `${entry.name} ${entry.title}`.toLowerCase();
        const all = `${name} ${entry.text}`;
        if (!words.every((word) => all.includes(word))) continue;
        const exact = entry.name.toLowerCase() === input.value.trim().toLowerCase();
        found.push([exact ? 0 : words.every((word) => name.includes(word)) ? 1 : 2, entry]);
      }
      found.sort((a, b) => a[0] - b[0]);
      count.textContent = say(`${found.length} found`, `找到 ${found.length} 项`);
      for (const [, entry] of found.slice(0, 100)) {
        const item = document.createElement("li");
        const link = document.createElement("a");
        link.href = entry.url;
        link.textContent = entry.title ? `${entry.name}: ${entry.title}` : entry.name;
        item.append(link);
        list.append(item);
      }
    };
    input.value = parameters.get("q") || "";
    input.addEventListener("input", run);
    input.form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
    run();
  }

  // A page may be long: regions that scroll must be reachable by keyboard.
  document.querySelectorAll(".table-wrapper, div.highlight pre, .mb-figure, .mb-formula").forEach((region) => { region.tabIndex = 0; });
  document.querySelectorAll("table.mb-sortable").forEach(sortable);
  const matrix = document.getElementById("matrix");
  if (matrix) filterable(document.querySelector(".mb-filters"), matrix);
  const query = document.getElementById("mb-query");
  const start = () => search(query, document.getElementById("mb-results"), document.getElementById("mb-count"));
  if (query) (document.readyState === "complete" ? start() : addEventListener("load", start));
})();
