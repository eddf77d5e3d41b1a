// Shows the version in the header, as a menu if there are several. ../versions.js, beside the folder of this version,
// sets window.kjmsVersions: the names of the folders, newest first. It is a script and not JSON, since pages that are
// opened from a file cannot fetch.
addEventListener("DOMContentLoaded", () => {
  const meta = document.querySelector("meta[name=kjms-version]");
  const place = document.querySelector(".md-header__topic > .md-ellipsis");
  const names = window.kjmsVersions || [];
  let shown = document.createElement("span");
  shown.textContent = meta.content;
  if (names.length > 1) {
    shown = document.createElement("select");
    shown.setAttribute("aria-label", "Version of the documentation");
    for (const name of names) shown.add(new Option(name, name, false, name === meta.content));
    shown.addEventListener("change", () => { location.href = meta.dataset.folder + shown.value + "/index.html"; });
  }
  shown.className = "kjms-version";
  place.after(shown);
});
