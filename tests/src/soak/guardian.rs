//! Ends what the soak started, whatever becomes of the soak.
//!
//! A soak that ends, fails or is asked to stop ends its processes itself. One that is killed cannot; so a small process
//! is told each id, in a process group of its own, and where its standard input ends it kills those that are left.
//! The soak's end, however it comes, closes that pipe.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::servers::{self, Server};

/// The argument by which the program `soak` becomes the guardian.
pub const ARGUMENT: &str = "guardian";

/// The guardian's other end. Dropped, it has the guardian end what is left.
pub struct Guardian {
    child: Child,
    input: Mutex<Option<ChildStdin>>,
}

impl Guardian {
    /// Starts the process.
    pub fn start() -> Self {
        let mut child = Command::new(servers::binary("soak"))
            .arg(ARGUMENT)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("our own binary starts");
        let input = child.stdin.take();
        Self { child, input: Mutex::new(input) }
    }

    /// Starts a server, minding it from the first moment on.
    pub fn start_server(&self, server: &mut Server) {
        self.mind(server.launch());
        tokio::task::block_in_place(|| server.wait_until_it_listens());
    }

    /// This process must not outlive the soak.
    pub fn mind(&self, pid: u32) {
        self.tell(&format!("+{pid}"));
    }

    /// This process has ended.
    pub fn forget(&self, pid: u32) {
        self.tell(&format!("-{pid}"));
    }

    fn tell(&self, line: &str) {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let input = input.as_mut().expect("the pipe is open until the end");
        // Whoever killed the guardian has taken the net away, and not what it is there for.
        let _ = writeln!(input, "{line}");
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.child.wait();
    }
}

/// The guardian's own work.
pub fn keep_watch(input: impl BufRead) {
    let left = minded(input);
    if !left.is_empty() {
        let _ = Command::new("kill").arg("-KILL").args(left.iter().map(u32::to_string)).status();
    }
}

/// The processes that stand there unforgotten when the input ends.
fn minded(input: impl BufRead) -> BTreeSet<u32> {
    let mut minded = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        if let Some(Ok(pid)) = line.strip_prefix('+').map(str::parse) {
            minded.insert(pid);
        } else if let Some(Ok(pid)) = line.strip_prefix('-').map(str::parse) {
            minded.remove(&pid);
        }
    }
    minded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_forgotten_is_left() {
        assert_eq!(minded("+12\n+13\n-12\n\n+14\n".as_bytes()), BTreeSet::from([13, 14]));
    }

    #[test]
    fn what_is_left_is_killed_when_the_input_ends() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        keep_watch(format!("+{}\n", sleeper.id()).as_bytes());
        assert!(!sleeper.wait().unwrap().success());
    }
}
