// Draws the figures into their places, as wide as the screen or the sheet of paper allows.
const PAPER = 680; // pixels between the margins of an A4 sheet
const figures = JSON.parse(document.getElementById("figures").textContent);
const places = figures.map((_, at) => document.getElementById(`figure-${at}`));
figures.forEach((figure, at) =>
  Plotly.newPlot(places[at], figure.data, figure.layout, { responsive: true, displaylogo: false })
);
addEventListener("beforeprint", () =>
  places.forEach((place) => Plotly.relayout(place, { width: PAPER }))
);
addEventListener("afterprint", () =>
  places.forEach((place) => Plotly.relayout(place, { width: null, autosize: true }))
);
