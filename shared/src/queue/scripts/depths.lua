-- depths: how much stands where, all at one moment.
--
-- KEYS   1 the list of new entries  2 parked  3 in flight  4 ready  5 the dead-letter list
-- ARGV   none
-- back   five counts, in the order of the keys
-- bound  five counters that Redis keeps anyway
return {
  redis.call('LLEN', KEYS[1]),
  redis.call('ZCARD', KEYS[2]),
  redis.call('ZCARD', KEYS[3]),
  redis.call('LLEN', KEYS[4]),
  redis.call('LLEN', KEYS[5]),
}
