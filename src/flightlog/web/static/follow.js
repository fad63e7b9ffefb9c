// Updates of a running session: changed rows are replaced in place, and nothing else moves.
"use strict";
(() => {
  const scrub = document.getElementById("scrub");
  const timeline = window.flightlog?.timeline;
  if (!scrub || !timeline || scrub.dataset.subagent || scrub.dataset.show) return;
  const page = document.getElementById("timeline");
  const follow = document.getElementById("follow");
  const live = document.getElementById("live");
  const QUIET_MS = 120_000;
  let quiet = 0;
  let first = true;

  const parseRow = (html) => {
    const holder = document.createElement("template");
    holder.innerHTML = html.trim();
    return holder.content.firstElementChild;
  };
  const place = (chunk, ids, drawn) => {
    const known = new Map(timeline.rowsIn(chunk).map((row) => [row.id, row]));
    let before = null;
    for (const id of ids) {
      let row = known.get(id);
      const fresh = drawn[id];
      if (fresh && row?.dataset.fingerprint !== fresh.fingerprint) {
        const next = parseRow(fresh.html);
        if (row) {
          const open = new Set([...row.querySelectorAll("details[open][data-key]")].map((details) => details.dataset.key));
          next.querySelectorAll("details[data-key]").forEach((details) => { details.open = open.has(details.dataset.key); });
          const wasCurrent = row.classList.contains("here");
          row.replaceWith(next);
          if (wasCurrent) timeline.mark(next, { focus: false });
        }
        row = next;
        window.htmx?.process(row);
      }
      if (!row) return false;
      if (row.parentElement !== chunk || row.previousElementSibling !== before) before ? before.after(row) : chunk.prepend(row);
      known.delete(id);
      before = row;
    }
    known.forEach((row) => row.remove());
    return true;
  };
  const grown = (number, ids) => {
    let chunk = timeline.chunkAt(number);
    if (chunk) return chunk;
    chunk = document.createElement("section");
    chunk.className = "chunk";
    Object.assign(chunk.dataset, { chunk: number, rows: ids.length });
    page.querySelector(":scope > .empty")?.remove();
    page.append(chunk);
    timeline.adopt(chunk);
    return chunk;
  };
  const news = (update) => {
    // A page with the latest state gets its first message at the next change; other pages get the current state first.
    const isNews = !first || scrub.dataset.have !== "";
    scrub.dataset.have = "";
    const missing = Math.ceil(update.total / update.size) - timeline.chunks().length;
    if (missing > update.chunks.length) return location.reload();
    page.dataset.total = update.total;
    for (const { number, ids } of update.chunks) {
      const chunk = grown(number, ids);
      chunk.dataset.rows = ids.length;
      if (chunk.hasAttribute("data-away")) timeline.reserve(chunk);
      else if (!place(chunk, ids, update.rows)) chunk.setAttribute("data-away", "");
    }
    document.getElementById("facts").innerHTML = update.facts;
    const slider = document.getElementById("scrubber");
    const position = slider.value;
    const focused = document.activeElement === slider;
    const at = document.getElementById("scrub-at").textContent;
    scrub.innerHTML = update.strip;
    if (!follow.checked) { document.getElementById("scrubber").value = position; document.getElementById("scrub-at").textContent = at; }
    if (focused) document.getElementById("scrubber").focus();
    if (isNews) wake();
    if (follow.checked && (isNews || live.classList.contains("live"))) timeline.goTo(update.total - 1, { focus: false, block: "end" });
    first = false;
  };
  const say = (word, beating) => {
    live.classList.toggle("live", beating);
    live.querySelector("span").textContent = word;
  };
  const wake = () => {
    say("active", true);
    clearTimeout(quiet);
    quiet = setTimeout(() => say("idle", false), QUIET_MS);
  };
  // A browser limits connections per server, so only a visible page keeps one open.
  let source = null;
  const watch = () => {
    if (document.hidden) {
      source?.close();
      source = null;
    } else if (!source) {
      first = true;
      source = new EventSource(`${document.documentElement.dataset.root}/sessions/${encodeURIComponent(scrub.dataset.session)}/live?have=${scrub.dataset.have}`);
      source.addEventListener("news", (event) => news(JSON.parse(event.data)));
      source.addEventListener("open", () => say(live.classList.contains("live") || follow.checked ? "active" : "idle", follow.checked));
      source.addEventListener("error", () => say(source?.readyState === EventSource.CLOSED ? "not connected" : "connecting…", false));
    }
  };
  document.addEventListener("visibilitychange", watch);
  watch();
})();
