-- take_new: takes entries off the head of the list, one after the other, as far as each still is the head.
--
-- KEYS   1 the list of new entries  2 parked  3 the dead-letter list
-- ARGV   three an entry: the bytes that were looked at; its time in ms, or '' where it is malformed;
--        the member to park, or the line to keep for a person
-- back   how many were taken
-- bound  the caller's chunk of entries and bytes: other clients wait while a script runs
--
-- Another taker, or an emptied list, shows as another head: nothing is taken that was not looked at. Each entry
-- stands in its new place before it leaves the old one, so that an error on the way (a key of the wrong type) loses
-- none. Where an entry is parked already, the earlier time wins. One that is in flight is parked as well; claim_due
-- passes it over for as long as it is.
local taken = 0
for i = 1, #ARGV, 3 do
  local raw, time, text = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call('LINDEX', KEYS[1], 0) ~= raw then break end
  if time == '' then
    redis.call('RPUSH', KEYS[3], text)
  else
    redis.call('ZADD', KEYS[2], 'LT', time, text)
  end
  redis.call('LPOP', KEYS[1])
  taken = taken + 1
end
return taken
