// A shared session: the strip, the keys and the buttons choose rows; nothing is fetched.
"use strict";
(() => {
  const timeline = document.getElementById("timeline");
  const slider = document.getElementById("scrubber");
  const status = document.getElementById("scrub-at");
  const rows = () => [...timeline.children];
  let at = 0;

  const go = (index, block = "start") => {
    const all = rows();
    if (!all.length) return;
    timeline.querySelector(":scope > .here")?.classList.remove("here");
    at = Math.min(Math.max(index, 0), all.length - 1);
    const row = all[at];
    row.classList.add("here");
    row.scrollIntoView({ block });
    slider.value = at;
    const cost = row.querySelector(".figures .cost")?.textContent ?? "";
    status.textContent = [`row ${at + 1} of ${all.length}`, row.id, row.querySelector("time")?.textContent ?? "", cost].filter(Boolean).join(" · ");
  };
  const goToHash = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest(".timeline > .row");
    if (target) go(rows().indexOf(target));
    return Boolean(target) || !location.hash;
  };
  slider.addEventListener("input", () => go(Number(slider.value)));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { j: at + 1, k: at - 1, g: 0, G: Infinity };
    if (event.key in steps) go(steps[event.key]);
  });
  const chips = [...document.querySelectorAll(".chip")];
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chips.forEach((other) => other.setAttribute("aria-pressed", other === chip));
      timeline.dataset.only = chip.dataset.only;
    });
  }
  // The later rows are compressed; they are added one part after the other, so that the page can be read at once.
  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const addParts = async () => {
    let found = goToHash();
    for (const part of document.querySelectorAll("script.part")) {
      const rest = document.createElement("template");
      rest.innerHTML = await unpack(part.textContent);
      timeline.append(rest.content);
      part.remove();
      found = found || goToHash();
      await new Promise((done) => { setTimeout(done); });
    }
    timeline.dataset.whole = "";
  };
  addParts();
})();
