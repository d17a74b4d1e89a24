/* Built without Chart.js: the page says so where charts would stand. */
