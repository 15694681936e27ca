-- look_at_new: the first entries of the list, left where they are.
--
-- KEYS   1 the list of new entries
-- ARGV   1 how many at most  2 how many bytes at most
-- back   their bytes, oldest first: one at least where there is one, however large
-- bound  ARGV: the reader's memory. It reads one entry past the byte limit at most, so a page of huge entries never
--        stands in memory here either, as it would with LRANGE.
local entries, bytes = {}, 0
for i = 0, tonumber(ARGV[1]) - 1 do
  local entry = redis.call('LINDEX', KEYS[1], i)
  if not entry then break end
  bytes = bytes + #entry
  if i > 0 and bytes > tonumber(ARGV[2]) then break end
  entries[i + 1] = entry
end
return entries
