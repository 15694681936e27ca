-- park_missing: parks entries that stand neither in parked nor in flight.
--
-- KEYS   1 parked  2 in flight
-- ARGV   1 a time in ms; then two an entry: its time in ms, the member
-- back   how many were parked
-- bound  the caller's chunk
--
-- One that is parked beyond the first time gets its own, so that nobody's far-off time buries a retry that is overdue; one
-- that was given back for a while waits for that while.
local parked = 0
for i = 2, #ARGV, 2 do
  if not redis.call('ZSCORE', KEYS[2], ARGV[i + 1]) then
    local due = redis.call('ZSCORE', KEYS[1], ARGV[i + 1])
    if not due or tonumber(due) > tonumber(ARGV[1]) then
      parked = parked + redis.call('ZADD', KEYS[1], 'LT', ARGV[i], ARGV[i + 1])
    end
  end
end
return parked
