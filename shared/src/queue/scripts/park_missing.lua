-- park_missing: parks entries that stand neither in parked nor in flight.
--
-- KEYS   1 parked  2 in flight
-- ARGV   two an entry: its time in ms, the member
-- back   how many were parked
-- bound  the caller's chunk
--
-- For one that is parked the earlier time wins, so that nobody's far-off time buries a retry that is overdue.
local parked = 0
for i = 1, #ARGV, 2 do
  if not redis.call('ZSCORE', KEYS[2], ARGV[i + 1]) then
    parked = parked + redis.call('ZADD', KEYS[1], 'LT', ARGV[i], ARGV[i + 1])
  end
end
return parked
