// The kind of each line of the input: doi, short_doi, not_a_doi, error (a copying error, or not registered), unknown.
// usage: node classify.mjs BASE_URL < LINES
import { readFileSync } from "node:fs";

const texts = readFileSync(0, "utf8").replace(/\n$/, "").split("\n");

async function post(path, texts) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(process.argv[2] + path, { method: "POST", headers, body: JSON.stringify(texts) });
  if (!response.ok) throw new Error((await response.json()).detail);
  return response.json();
}

function classify(parsed, verdicts) {
  if (parsed.doi === null) return parsed.suggestions.length > 0 ? "error" : "not_a_doi";
  const others = { not_found: "error", unverified: "unknown", rate_limited: "unknown" };
  return others[verdicts.get(parsed.doi)] ?? parsed.kind;
}

const parsed = await post("/api/parse", texts);
const names = [...new Set(parsed.map((one) => one.doi).filter((doi) => doi !== null))];
const rows = await post("/api/resolve?output=json&encoding=literal", names);
const verdicts = new Map(rows.map((row) => [row.input, row.verdict]));
for (const one of parsed) console.log(classify(one, verdicts));
