-- acknowledge: lets go of a claim for good.
--
-- KEYS   1 in flight  2 claims
-- ARGV   1 the member  2 the claim's deadline
-- back   1, or 0 where the claim is no longer the caller's
-- bound  one entry
local deadline = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not deadline or tonumber(deadline) ~= tonumber(ARGV[2]) then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
