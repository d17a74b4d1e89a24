/* Used if the page is built without Chart.js: the page shows a text in place of the charts. */
