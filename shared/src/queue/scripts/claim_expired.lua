-- claim_expired: claims again the one entry whose claim ran out first, and counts that it ran out.
--
-- KEYS   1 in flight  2 claims
-- ARGV   1 now  2 the deadline of the new claim, later than now
-- back   nothing, or: the member, how many of its claims ran out, when the first of those was made
-- bound  one entry: the one that kills whoever takes it must take no neighbour along
--
-- `claims` holds '<claims that ran out>:<time of the first claim in ms>' for each member in flight. Where it holds
-- nothing that reads so (another program put the member there, or cut the hash), the count starts here and now.
local member = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 1)[1]
if not member then return nil end
local count, first = string.match(redis.call('HGET', KEYS[2], member) or '', '^(%d+):(%-?%d+)$')
if not count or #count > 9 or #first > 16 then
  count, first = 0, ARGV[1]
end
count = string.format('%d', count + 1)
redis.call('HSET', KEYS[2], member, count .. ':' .. first)
redis.call('ZADD', KEYS[1], ARGV[2], member)
return { member, count, first }
