-- Requests the paths of a file in turn, repeatedly.
-- Arguments: the file; a tag. Every path "*" becomes a new name with that tag. A line can have a client after a tab.
local requests, count, at, fresh, tag = {}, 0, 0, 0, ""

function init(arguments)
    tag = arguments[2]
    for line in io.lines(arguments[1]) do
        local path, client = line:match("^([^\t]*)\t?(.*)$")
        wrk.headers["X-Forwarded-For"] = client ~= "" and client or nil
        count = count + 1
        requests[count] = path ~= "*" and wrk.format("GET", path) or false
    end
end

function request()
    at = at % count + 1
    local prepared = requests[at]
    if prepared then return prepared end
    fresh = fresh + 1
    return wrk.format("GET", "/10.5072/" .. tag .. "." .. fresh)
end
