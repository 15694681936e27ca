-- give_back: parks a claimed entry again, with nothing counted against it.
--
-- KEYS   1 in flight  2 claims  3 parked
-- ARGV   1 the member  2 the claim's deadline  3 its time in ms
-- back   1, or 0 where the claim is no longer the caller's
-- bound  one entry
--
-- It may have been pushed again meanwhile and be parked already: the earlier time wins.
local deadline = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not deadline or tonumber(deadline) ~= tonumber(ARGV[2]) then return 0 end
redis.call('HGET', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[3], 'LT', ARGV[3], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
