//! The retry queue in the embedded file: the suite of every queue.

use recoup_tests::sqlite_rooms::SqliteRooms;

recoup_tests::queue_suite!(SqliteRooms::fresh);
