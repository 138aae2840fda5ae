#!/bin/sh
# The kind of each line of the input: doi, short_doi, not_a_doi, error (a copying error, or not registered), unknown.
# One request with the raw texts. usage: classify_list.sh BASE_URL < LINES. Needs curl and jq.
set -eu
jq -R . | curl --silent --show-error --fail --header 'Content-Type: application/x-ndjson' --data-binary @- \
    "$1/api/resolve?suggest=true&fields=doi,verdict,suggestions" | jq -r '
    if .error then error(.error.detail)
    elif .verdict == "not_a_doi" and .suggestions == [] then "not_a_doi"
    elif .verdict == "not_a_doi" or .verdict == "not_found" then "error"
    elif .verdict == "unverified" or .verdict == "rate_limited" then "unknown"
    elif .doi | startswith("10/") then "short_doi"
    else "doi" end'
