// In asv's page: who comes without a place in mind lands on the front page. From a file asv's own pages cannot
// load their data, so there everything leads to it, and who wanted one of them is told why.
"use strict";
if (!window.location.hash) {
  window.location.replace("dashboard.html");
} else if (window.location.protocol === "file:") {
  window.location.replace("dashboard.html#needs-server");
}
