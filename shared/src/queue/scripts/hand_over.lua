-- hand_over: pushes a claim's message and lets go of the claim, both or neither.
--
-- KEYS   1 in flight  2 claims  3 the list that the message goes to
-- ARGV   1 the member  2 the claim's deadline  3 the message
-- back   1, or 0 where the claim is no longer the caller's and nothing was pushed
-- bound  one entry
--
-- The push comes before the other writes because it alone can be refused (memory, a key of the wrong type); that of
-- `claims` is found out by reading it first.
local deadline = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not deadline or tonumber(deadline) ~= tonumber(ARGV[2]) then return 0 end
redis.call('HGET', KEYS[2], ARGV[1])
redis.call('RPUSH', KEYS[3], ARGV[3])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
