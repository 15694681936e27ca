-- claim_due: claims entries whose time has come.
--
-- KEYS   1 parked  2 in flight  3 claims
-- ARGV   1 now  2 the deadline of the new claims, later than now  3 how many at most
-- back   the members that were claimed, the one due first in front; fewer than ARGV 3 does not mean that no more is due
-- bound  ARGV 3: entries looked at
--
-- Two drains at once never hold the same claim: an entry that is in flight is parked until that claim's deadline.
-- Where that has passed, and nobody has taken the claim again yet, it waits as long as a claim does: it must leave
-- the due ones, else a page of such entries would be looked at for ever.
local claimed = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])) do
  local deadline = redis.call('ZSCORE', KEYS[2], member)
  if not deadline then
    redis.call('HSET', KEYS[3], member, '0:' .. ARGV[1])
    redis.call('ZADD', KEYS[2], ARGV[2], member)
    redis.call('ZREM', KEYS[1], member)
    claimed[#claimed + 1] = member
  else
    if tonumber(deadline) <= tonumber(ARGV[1]) then deadline = ARGV[2] end
    redis.call('ZADD', KEYS[1], deadline, member)
  end
end
return claimed
