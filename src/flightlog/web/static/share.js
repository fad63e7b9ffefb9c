// A shared session: the strip and the keys scroll to rows; nothing is fetched.
"use strict";
(() => {
  const rows = [...document.querySelectorAll(".timeline > .row")];
  const slider = document.getElementById("scrubber");
  const status = document.getElementById("scrub-at");
  let at = 0;
  const go = (index, block = "start") => {
    if (!rows.length) return;
    rows[at].classList.remove("here");
    at = Math.min(Math.max(index, 0), rows.length - 1);
    rows[at].classList.add("here");
    rows[at].scrollIntoView({ block });
    slider.value = at;
    const cost = rows[at].querySelector(".figures .cost")?.textContent ?? "";
    status.textContent = [`row ${at + 1} of ${rows.length}`, rows[at].id, rows[at].querySelector("time")?.textContent ?? "", cost].filter(Boolean).join(" · ");
  };
  slider.addEventListener("input", () => go(Number(slider.value)));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { j: at + 1, k: at - 1, g: 0, G: rows.length - 1 };
    if (event.key in steps) go(steps[event.key]);
  });
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target) go(rows.indexOf(target));
})();
