// Before the page is drawn: the colours that the person has chosen.
"use strict";
try {
  const chosen = localStorage.getItem("kjms-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* storage is off: the system decides */ }
