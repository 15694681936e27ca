//! Reading a log line by line, holding no more than one line of bounded length in memory.

use std::io::{self, BufRead, Read};

/// The longest line that is read; an event has at most some ten short fields.
pub(crate) const MAX_LINE_BYTES: usize = 1 << 20;

/// The lines of a log, blank ones left out.
pub(crate) struct Lines<R> {
    source: R,
    line: Vec<u8>,
    /// The number of the last line read, counted from 1, blank lines included.
    pub(crate) number: u64,
    /// Bytes read so far.
    pub(crate) bytes: u64,
}

/// One line that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// Its bytes, without the line's end.
    Text(&'a [u8]),
    /// It was longer than [`MAX_LINE_BYTES`], and skipped.
    TooLong,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, line: Vec::new(), number: 0, bytes: 0 }
    }

    /// The next line that is not blank; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            self.line.clear();
            let bound = MAX_LINE_BYTES as u64 + 1;
            let read = Read::take(&mut self.source, bound).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.bytes += read as u64;
            if self.line.len() > MAX_LINE_BYTES && !self.line.ends_with(b"\n") {
                self.bytes += self.source.skip_until(b'\n')? as u64;
                return Ok(Some(Line::TooLong));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        Ok(Some(Line::Text(self.line.trim_ascii())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_and_line_ends_are_no_part_of_the_log() {
        let mut lines = Lines::new(&b"one\r\n\n  \r\ntwo\nthree"[..]);
        assert_eq!(lines.next().unwrap(), Some(Line::Text(b"one")));
        assert_eq!(lines.next().unwrap(), Some(Line::Text(b"two")));
        assert_eq!((lines.number, lines.bytes), (4, 14));
        assert_eq!(lines.next().unwrap(), Some(Line::Text(b"three")));
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn a_line_without_an_end_is_skipped_in_bounded_memory() {
        let long = vec![b'x'; 3 * MAX_LINE_BYTES];
        let log = [&long[..], b"\nnext\n"].concat();
        let mut lines = Lines::new(&log[..]);
        assert_eq!(lines.next().unwrap(), Some(Line::TooLong));
        assert_eq!(lines.next().unwrap(), Some(Line::Text(b"next")));
        assert_eq!(lines.number, 2);
        assert!(lines.line.capacity() <= 2 * MAX_LINE_BYTES + 2);
    }

    #[test]
    fn the_longest_line_is_read() {
        let log = [vec![b'x'; MAX_LINE_BYTES], b"\n".to_vec()].concat();
        assert_eq!(Lines::new(&log[..]).next().unwrap(), Some(Line::Text(&log[..MAX_LINE_BYTES])));
    }
}
