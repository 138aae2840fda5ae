// The order of the results of a search. Sphinx gives each page with the words the same score, and sorts them by title.
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    if (/^(CHANGELOG|CONTRIBUTING|bench|docs.decisions|docs.index)/.test(page)) return score - 4;
    return score + ({ "docs/errors": 3, "docs/settings": 2, "docs/tutorial": -1 }[page] ?? 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
