-- Prints the result of a run as one line of numbers.
function done(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format("BENCH %d %d %d %d\n", summary.requests, summary.duration,
        errors.connect + errors.read + errors.write + errors.timeout, errors.status))
end
