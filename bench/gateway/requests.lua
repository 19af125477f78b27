-- SPDX-License-Identifier: Apache-2.0
-- wrk -s requests.lua URL -- MODE BASE NAMESPACE TABLES RATE LOADS_PER_COMMIT
--
-- Requests for the tables t0, t1, … of a namespace. MODE:
--   load    a table, chosen at random
--   commit  a property, without requirements, to a table chosen at random
--   own     as `commit`, to a table that no other thread of wrk commits to
--   mixed   LOADS_PER_COMMIT loads, then one commit
-- RATE (requests per second of one thread; 0: none) spaces requests evenly from the start of the run on.
-- The last line of the output is JSON with the latencies (microseconds) and, except for `load`, the count of each status.

local ffi = require("ffi")
ffi.cdef("typedef struct { long tv_sec; long tv_nsec; } lp_timespec; int clock_gettime(int, lp_timespec *);")
local clock = ffi.new("lp_timespec")
local MONOTONIC = 1

local threads = {}

function setup(thread)
  thread:set("number", #threads)
  table.insert(threads, thread)
end

local mode, prefix, namespace, tables, rate, loads_per_commit
local sent, paced, began_ms = 0, 0, nil

local function now_ms()
  ffi.C.clock_gettime(MONOTONIC, clock)
  return tonumber(clock.tv_sec) * 1e3 + tonumber(clock.tv_nsec) / 1e6
end

local function load(name)
  return wrk.format("GET", prefix .. name)
end

local function commit(name)
  local body = '{"identifier":{"namespace":["' .. namespace .. '"],"name":"' .. name .. '"},"requirements":[],'
    .. '"updates":[{"action":"set-properties","updates":{"n":"' .. math.random(1, 1e9) .. '"}}]}'
  return wrk.format("POST", prefix .. name, nil, body)
end

function init(args)
  mode, namespace, tables, rate, loads_per_commit = args[1], args[3], tonumber(args[4]), tonumber(args[5]), tonumber(args[6])
  prefix = args[2] .. "/namespaces/" .. namespace .. "/tables/"
  math.randomseed(now_ms() * 1e3 % 1e9 + number)
  statuses = {}
  if mode ~= "load" then
    function response(status)
      local key = tostring(status)
      statuses[key] = (statuses[key] or 0) + 1
    end
  end
  if rate > 0 then
    function delay()
      began_ms = began_ms or now_ms()
      paced = paced + 1
      return math.max(0, began_ms + paced * 1e3 / rate - now_ms())
    end
  end
end

function request()
  sent = sent + 1
  local name = "t" .. (mode == "own" and number or math.random(0, tables - 1))
  if mode == "load" or (mode == "mixed" and sent % (loads_per_commit + 1) ~= 0) then
    return load(name)
  end
  return commit(name)
end

function done(summary, latency, requests)
  local counts = {}
  for _, thread in ipairs(threads) do
    for status, count in pairs(thread:get("statuses")) do
      counts[status] = (counts[status] or 0) + count
    end
  end
  local listed = {}
  for status, count in pairs(counts) do
    table.insert(listed, string.format('"%s": %d', status, count))
  end
  local errors = summary.errors
  print(string.format(
    '{"requests": %d, "duration_us": %d, "bytes": %d, "failed": %d, "connect": %d, "read": %d, "write": %d, '
      .. '"timeout": %d, "min_us": %d, "p50_us": %d, "p95_us": %d, "p99_us": %d, "max_us": %d, "statuses": {%s}}',
    summary.requests, summary.duration, summary.bytes, errors.status, errors.connect, errors.read, errors.write,
    errors.timeout, latency.min, latency:percentile(50), latency:percentile(95), latency:percentile(99), latency.max,
    table.concat(listed, ", ")))
end
