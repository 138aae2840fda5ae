#!/bin/sh
# The kind of each line of the input: doi, short_doi, not_a_doi, error (a copying error, or not registered), unknown.
# usage: classify.sh BASE_URL < LINES. Needs curl and jq.
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
post() { # post URL FILE
    curl --silent --show-error --fail --header 'Content-Type: application/json' --data-binary @"$2" "$1"
}
jq -R . | jq -s . >"$work/texts.json"
post "$1/api/parse" "$work/texts.json" >"$work/parsed.json"
jq '[.[].doi | values] | unique' "$work/parsed.json" >"$work/names.json"
post "$1/api/resolve?output=json&encoding=literal" "$work/names.json" >"$work/rows.json"
jq -r --slurpfile rows "$work/rows.json" '
    ($rows[0] | map({key: .input, value: .verdict}) | from_entries) as $verdicts | .[] |
    if .doi == null then (if (.suggestions | length) > 0 then "error" else "not_a_doi" end)
    else {not_found: "error", unverified: "unknown", rate_limited: "unknown"}[$verdicts[.doi]] // .kind end
' "$work/parsed.json"
