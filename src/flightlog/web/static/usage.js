// Charts of usage. The tables below them have the same figures and need no script.
"use strict";
(() => {
  const raw = document.getElementById("usage-data");
  if (!raw || !window.Plot) return;
  const data = JSON.parse(raw.textContent);
  const CLASSES = ["cache_read_tokens", "cache_write_tokens", "input_tokens", "output_tokens"];
  const label = (name) => name.replace("_tokens", "").replace("_", " ");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const usd = (value) => value === null ? "cost unknown" : `$${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: value < 1 ? 4 : 2 })}`;
  const count = (value) => Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value);
  const short = (kind, key) => kind === "project" ? key.replace(/\/+$/, "").split("/").at(-1) || "?" : kind === "model" ? key.replace(/^claude-/, "").replace(/-20\d{6}$/, "") : key;
  const colors = () => ({ cache_read_tokens: css("--line-strong"), cache_write_tokens: css("--look"), input_tokens: css("--live"), output_tokens: css("--accent") });

  // Plot adds a style element, which the page's policy forbids; the stylesheet has its rules.
  const appendChart = (holder, title, chart) => {
    chart.querySelectorAll("style").forEach((style) => style.remove());
    chart.querySelectorAll("[aria-label]").forEach((part) => part.removeAttribute("aria-label"));
    const part = document.createElement("div");
    part.append(Object.assign(document.createElement("h3"), { textContent: title }), chart);
    holder.append(part);
  };
  const swatches = (scale) => {
    const key = Object.assign(document.createElement("div"), { className: "swatches" });
    for (const name of CLASSES) {
      const item = document.createElement("span");
      const box = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const square = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      for (const [attribute, value] of [["width", "100%"], ["height", "100%"], ["fill", scale[name]]]) square.setAttribute(attribute, value);
      box.append(square);
      item.append(box, label(name));
      key.append(item);
    }
    return key;
  };
  const overTime = (kind, rows, width) => {
    const parse = (key) => new Date(kind === "day" ? `${key}T00:00:00` : key);
    const unit = kind === "day" ? 86_400_000 : 5 * 3_600_000;
    const x = kind === "day" ? { x: (row) => parse(row.key), interval: "day" } : { x1: (row) => parse(row.key), x2: (row) => new Date(+parse(row.key) + unit) };
    // Show at least 14 units, so that a single day is a narrow bar.
    const begin = d3.min(rows, (row) => +parse(row.key));
    const end = d3.max(rows, (row) => +parse(row.key)) + unit;
    const domain = [new Date(Math.min(begin, end - 14 * unit)), new Date(end)];
    const common = { width, height: 190, marginLeft: 58, x: { label: null, type: kind === "day" ? "time" : "utc", domain } };
    const scale = colors();
    const tokens = rows.flatMap((row) => CLASSES.map((name) => ({ key: row.key, name, value: row[name] })));
    return [
      Plot.plot({ ...common, y: { label: null, tickFormat: usd, ticks: 4, grid: true }, marks: [Plot.rectY(rows, { ...x, y: (row) => row.cost_usd ?? 0, fill: css("--accent"), inset: 0.5, title: (row) => `${row.key}\n${usd(row.cost_usd)}`, tip: true }), Plot.ruleY([0])] }),
      Plot.plot({ ...common, color: { domain: CLASSES, range: CLASSES.map((name) => scale[name]) }, y: { label: null, tickFormat: count, ticks: 4, grid: true }, marks: [Plot.rectY(tokens, { ...x, y: "value", fill: "name", order: CLASSES, inset: 0.5, title: (row) => `${row.key}\n${label(row.name)}: ${count(row.value)} tokens`, tip: true }), Plot.ruleY([0])] }),
    ];
  };
  const ranked = (kind, rows, width) => {
    const best = [...rows].sort((a, b) => (b.cost_usd ?? 0) - (a.cost_usd ?? 0)).slice(0, 12);
    const names = best.map((row) => short(kind, row.key));
    const scale = colors();
    const labelWidth = Math.min(Math.max(...names.map((name) => name.length), 4) * 6.6 + 14, width * 0.38);
    const common = { width, height: best.length * 30 + 44, marginLeft: labelWidth, marginRight: 62, y: { label: null, domain: names.map((_, at) => at), tickFormat: (at) => names[at], tickSize: 0 } };
    const tokens = best.flatMap((row, at) => CLASSES.map((name) => ({ at, name, value: row[name] })));
    const sums = best.map((row, at) => ({ at, value: d3.sum(CLASSES, (name) => row[name]) }));
    return [
      Plot.plot({ ...common, x: { label: null, tickFormat: usd, ticks: 3, grid: true }, marks: [Plot.barX(best, { y: (_, at) => at, x: (row) => row.cost_usd ?? 0, fill: css("--accent"), insetTop: 3, insetBottom: 3 }), Plot.text(best, { y: (_, at) => at, x: (row) => row.cost_usd ?? 0, text: (row) => usd(row.cost_usd), textAnchor: "start", dx: 6, fill: "currentColor" }), Plot.ruleX([0])] }),
      Plot.plot({ ...common, color: { domain: CLASSES, range: CLASSES.map((name) => scale[name]) }, x: { label: null, tickFormat: count, ticks: 3, grid: true }, marks: [Plot.barX(tokens, { y: "at", x: "value", fill: "name", order: CLASSES, insetTop: 3, insetBottom: 3 }), Plot.text(sums, { y: "at", x: "value", text: (row) => count(row.value), textAnchor: "start", dx: 6, fill: "currentColor" }), Plot.ruleX([0])] }),
    ];
  };
  const draw = () => {
    for (const holder of document.querySelectorAll("[data-chart]")) {
      const kind = holder.dataset.chart;
      const rows = data[kind] ?? [];
      if (!rows.length) continue;
      const wide = holder.parentElement.clientWidth;
      const width = Math.max(Math.min(wide > 900 ? wide / 2 - 20 : wide, 900), 280);
      holder.replaceChildren();
      holder.classList.add("charts-two");
      const [cost, tokens] = kind === "day" || kind === "block" ? overTime(kind, rows, width) : ranked(kind, rows, width);
      appendChart(holder, "Cost, US dollars", cost);
      appendChart(holder, "Tokens", tokens);
      holder.lastElementChild.querySelector("h3").after(swatches(colors()));
    }
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let later = 0;
  addEventListener("resize", () => { clearTimeout(later); later = setTimeout(draw, 150); });
})();
