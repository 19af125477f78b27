-- SPDX-License-Identifier: Apache-2.0
-- wrk -t1 -c1 -s operations.lua URL -- FILE
--
-- The requests of FILE, in their order, over and over on one connection. A line of FILE has four fields between tabs:
-- the operation, the method, the path and the body. `@` stands for the number of the round, `^` for the
-- metadata-location that the last createTable answered.
-- The last line of the output is JSON with the waits (microseconds) and the count of each status, by operation.

local ffi = require("ffi")
ffi.cdef("typedef struct { long tv_sec; long tv_nsec; } lp_timespec; int clock_gettime(int, lp_timespec *);")
local clock = ffi.new("lp_timespec")
local MONOTONIC = 1

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

local steps, step, round, location, began_us = {}, 1, 1, "", 0

local function now_us()
  ffi.C.clock_gettime(MONOTONIC, clock)
  return tonumber(clock.tv_sec) * 1e6 + tonumber(clock.tv_nsec) / 1e3
end

local function filled(text)
  return (text:gsub("@", round):gsub("%^", function() return location end))
end

function init(args)
  for line in io.lines(args[1]) do
    local operation, method, path, body = line:match("^([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$")
    table.insert(steps, { operation = operation, method = method, path = path, body = body })
  end
  waits, statuses = {}, {}
end

-- wrk makes one request more than it sends, before the first: only an answer moves on to the next step.
function request()
  local asked = steps[step]
  local body = asked.body ~= "" and filled(asked.body) or nil
  local made = wrk.format(asked.method, filled(asked.path), nil, body)
  began_us = now_us()
  return made
end

function response(status, _, body)
  local took_us, operation = now_us() - began_us, steps[step].operation
  waits[operation] = (waits[operation] or "") .. string.format("%d ", took_us)
  local key = operation .. " " .. status
  statuses[key] = (statuses[key] or 0) + 1
  if operation == "createTable" then
    location = body:match('"metadata%-location" ?: ?"([^"]*)"') or location
  end
  step = step + 1
  if step > #steps then
    step, round = 1, round + 1
  end
end

local function json(values, form)
  local listed = {}
  for name, value in pairs(values) do
    table.insert(listed, string.format('"%s": ' .. form, name, value))
  end
  return "{" .. table.concat(listed, ", ") .. "}"
end

function done(summary)
  local errors = summary.errors
  print(string.format(
    '{"waits": %s, "statuses": %s, "broken": {"connect": %d, "read": %d, "write": %d, "timeout": %d}}',
    json(threads[1]:get("waits"), '"%s"'), json(threads[1]:get("statuses"), "%d"),
    errors.connect, errors.read, errors.write, errors.timeout))
end
