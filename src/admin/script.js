"use strict";
(() => {
  const root = document.documentElement, q = s => document.querySelector(s);
  const typing = () => /^(INPUT|SELECT|TEXTAREA)$/.test((document.activeElement || {}).tagName || "");
  const url = new URL(location.href), pause = q("#pause"), every = Number(root.dataset.live);
  if (every && pause) {
    const off = () => url.searchParams.get("paused") === "1";
    const name = () => { pause.textContent = off() ? "Go on" : "Pause"; };
    pause.hidden = false;
    name();
    pause.onclick = () => {
      off() ? url.searchParams.delete("paused") : url.searchParams.set("paused", "1");
      history.replaceState(null, "", url);
      name();
    };
    setInterval(() => {
      const open = [...document.querySelectorAll("details")].some(d => d.open);
      if (!off() && !typing() && !open && document.visibilityState === "visible" && !getSelection().toString())
        location.reload();
    }, every * 1000);
  }
  let at = -1, last = "";
  const go = { n: "/", e: "/events", r: "/reviews", o: "/outbox", f: "/refused", b: "/books", s: "/system", a: "/audit" };
  document.addEventListener("keydown", e => {
    if (e.ctrlKey || e.metaKey || e.altKey || typing()) return;
    const rows = [...document.querySelectorAll("tbody tr")];
    if (e.key === "/") { const f = q("form.filter input"); if (f) { e.preventDefault(); f.focus(); } }
    else if (e.key === "j" || e.key === "k") {
      if (!rows.length) return;
      if (rows[at]) rows[at].classList.remove("at");
      at = Math.max(0, Math.min(rows.length - 1, at + (e.key === "j" ? 1 : -1)));
      rows[at].classList.add("at");
      rows[at].scrollIntoView({ block: "nearest" });
    }
    else if (e.key === "Enter" && rows[at] && document.activeElement === document.body) {
      const a = rows[at].querySelector("a"); if (a) a.click();
    }
    else if (last === "g" && go[e.key]) location.href = go[e.key];
    last = e.key;
  });
})();
