// Live pages: when the server says that something has changed, the page loads itself again and takes over the changes.
// The server escapes all text; what it sends is parsed without being run, and nothing of a run becomes a script.
"use strict";
(() => {
  const say = (text) => { const place = document.getElementById("live"); if (place) place.textContent = text; };

  // Make `old` equal to `fresh` with few changes, so that what is open, focused or scrolled stays so.
  const merge = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    for (const { name, value } of [...fresh.attributes]) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
    let next = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const known = wanted.id && named.get(wanted.id);
      const match = known || (next && next.nodeName === wanted.nodeName && !next.id && !wanted.id ? next : null);
      if (!match) { old.insertBefore(document.importNode(wanted, true), next); continue; }
      if (match === next) next = next.nextSibling; else old.insertBefore(match, next);
      if (match.nodeType === Node.ELEMENT_NODE) merge(match, wanted);
      else if (match.nodeValue !== wanted.nodeValue) match.nodeValue = wanted.nodeValue;
    }
    while (next) { const after = next.nextSibling; next.remove(); next = after; }
  };

  let asking = false, again = false;
  const refresh = async () => {
    if (asking) { again = true; return; }
    asking = true;
    try {
      const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const part of document.querySelectorAll("[data-live]")) {
          const wanted = fresh.getElementById(part.id);
          if (wanted) merge(part, wanted);
        }
        const rows = fresh.getElementById("rows");
        if (rows && window.kforge) window.kforge.update(JSON.parse(rows.textContent));
        choose();
      }
    } catch { say("the server does not answer"); }
    asking = false;
    if (again) { again = false; refresh(); }
  };

  const choose = () => {
    const button = document.getElementById("compare");
    if (button) button.disabled = document.querySelectorAll("input[name=pick]:checked").length !== 2;
  };
  document.addEventListener("change", (event) => { if (event.target.name === "pick") choose(); });
  document.addEventListener("submit", (event) => {
    const picked = [...document.querySelectorAll("input[name=pick]:checked")].map((box) => box.value);
    if (event.target.getAttribute("action") !== "/compare" || picked.length !== 2) return;
    event.preventDefault();
    location.href = `/compare?left=${encodeURIComponent(picked[0])}&right=${encodeURIComponent(picked[1])}`;
  });
  choose();

  const stream = document.body.dataset.events;
  if (stream) {
    const source = new EventSource(stream);
    source.addEventListener("open", () => say("live"));
    source.addEventListener("error", () => say("not connected"));
    source.addEventListener("change", refresh);
    addEventListener("pagehide", () => source.close());
  }
})();
