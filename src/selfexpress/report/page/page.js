"use strict";
// Light or dark: as the system says until the reader chooses.
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  function show() {
    button.setAttribute("aria-pressed", String(isDark()));
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    show();
    document.dispatchEvent(new Event("themechange"));
  });
  system.addEventListener("change", show);
  show();
})();

// The link of the section in view is marked in the navigation.
(() => {
  const links = new Map();
  for (const link of document.querySelectorAll("nav a")) {
    links.set(link.getAttribute("href").slice(1), link);
  }
  const seen = new Set();
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) seen.add(entry.target.id);
        else seen.delete(entry.target.id);
      }
      let isFirst = true;
      for (const [name, link] of links) {
        const isCurrent = seen.has(name) && isFirst;
        if (isCurrent) isFirst = false;
        if (isCurrent) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    },
    { rootMargin: "-15% 0px -70% 0px" },
  );
  for (const name of links.keys()) watcher.observe(document.getElementById(name));
})();
