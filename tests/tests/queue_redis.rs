//! The retry queue in Redis: the suite of every queue, and what only a server on a network can do to it.

use recoup_tests::queue_rooms::RedisRooms;
use recoup_tests::queue_suite;

queue_suite!(RedisRooms::fresh);
