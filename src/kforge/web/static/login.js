// A login link has the token after #, a part that a browser never sends. This script reads it there and sends it once.
"use strict";
(() => {
  const enter = async () => {
    const token = decodeURIComponent(location.hash.slice(1));
    if (!token) return;
    history.replaceState(null, "", "/login");
    const answer = await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token }) });
    if (answer.ok) { location.replace("/"); return; }
    const said = document.getElementById("said");
    said.textContent = "The token of this link is not this server's. The server may have been started again since.";
    said.hidden = false;
  };
  addEventListener("hashchange", enter); // the link was opened where this page was open already
  enter();
})();
