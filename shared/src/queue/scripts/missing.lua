-- missing: which members stand neither in parked nor in flight.
--
-- KEYS   1 parked  2 in flight
-- ARGV   the members
-- back   the positions of those that are missing, counted from 0
-- bound  the caller's chunk
--
-- A script because an entry moves from one set to the other: two commands could look at each just when it is not there.
local missing = {}
for i, member in ipairs(ARGV) do
  if not redis.call('ZSCORE', KEYS[1], member) and not redis.call('ZSCORE', KEYS[2], member) then
    missing[#missing + 1] = i - 1
  end
end
return missing
