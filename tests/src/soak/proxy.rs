//! A small TCP proxy between functions and servers that hurts connections when it is told to.
//!
//! It knows no protocol. A reply that is lost here belongs to a request that the server has seen: the write may be
//! applied, and the client does not know. Connections that are refused, cut or left hanging are the other ways in
//! which a network says nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use recoup::clock::{Clock, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bytes that are carried at once; a request of the functions is smaller.
const CHUNK: usize = 64 * 1024;

/// Changes a request on its way, keeping its length.
pub type Rewrite = fn(&mut [u8]);

struct State {
    upstream: u16,
    rewrite: Option<Rewrite>,
    cut: watch::Sender<u64>,
    /// How many of the next replies are lost, and their connections with them.
    lose: AtomicU32,
    /// How many connections hang from their next reply on.
    hang: AtomicU32,
    /// How many of the next replies are late, and by how much.
    slow: AtomicU32,
    slow_ms: AtomicU32,
    refuses: AtomicBool,
}

/// The proxy. It ends when this is dropped.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
    server: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port and carries to this one.
    pub async fn start(upstream: u16, rewrite: Option<Rewrite>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port can be had");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let state = Arc::new(State {
            upstream,
            rewrite,
            cut: watch::Sender::new(0),
            lose: AtomicU32::new(0),
            hang: AtomicU32::new(0),
            slow: AtomicU32::new(0),
            slow_ms: AtomicU32::new(0),
            refuses: AtomicBool::new(false),
        });
        let carried = Arc::clone(&state);
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(Arc::clone(&carried), client));
            }
        });
        Self { port, state, server }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts every connection there is.
    pub fn cut(&self) {
        self.state.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Loses the next `count` replies, and their connections with them.
    pub fn lose_replies(&self, count: u32) {
        self.state.lose.store(count, Ordering::Relaxed);
    }

    /// Lets the next `count` connections that have a reply hang, open and silent.
    pub fn hang(&self, count: u32) {
        self.state.hang.store(count, Ordering::Relaxed);
    }

    /// Holds the next `count` replies back for so long.
    pub fn slow_down(&self, count: u32, by_ms: u32) {
        self.state.slow_ms.store(by_ms, Ordering::Relaxed);
        self.state.slow.store(count, Ordering::Relaxed);
    }

    /// Refuses new connections, or takes them again.
    pub fn refuse(&self, refuses: bool) {
        self.state.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Carries faithfully again. What hangs is cut.
    pub fn heal(&self) {
        for count in [&self.state.lose, &self.state.hang, &self.state.slow] {
            count.store(0, Ordering::Relaxed);
        }
        self.refuse(false);
        self.cut();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
        self.cut();
    }
}

async fn carry(state: Arc<State>, client: TcpStream) {
    let mut cut = state.cut.subscribe();
    if state.refuses.load(Ordering::Relaxed) {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", state.upstream)).await else { return };
    // Small requests and replies must not wait for each other.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = requests(&state, from_client, to_server) => {}
        () = replies(&state, from_server, to_client) => {}
        _ = cut.changed() => {}
    }
}

async fn requests(state: &State, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if let Some(rewrite) = state.rewrite {
            rewrite(&mut buffer[..count]);
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn replies(state: &State, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if one_of(&state.lose) {
            return;
        }
        if one_of(&state.hang) {
            while let Ok(1..) = from.read(&mut buffer).await {}
            return;
        }
        if one_of(&state.slow) {
            SystemClock.sleep(Duration::from_millis(state.slow_ms.load(Ordering::Relaxed).into())).await;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Takes one off the count, unless none is left.
fn one_of(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use recoup::clock::Deadline;

    use super::*;

    /// A server that repeats what it hears, and what it has heard.
    async fn echo() -> (u16, Arc<Mutex<Vec<u8>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let hears = Arc::clone(&hears);
                tokio::spawn(async move {
                    let mut buffer = [0; 64];
                    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                        hears.lock().unwrap().extend_from_slice(&buffer[..count]);
                        stream.write_all(&buffer[..count]).await.unwrap();
                    }
                });
            }
        });
        (port, heard)
    }

    async fn connected(proxy: &Proxy) -> TcpStream {
        TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap()
    }

    /// What comes back; nothing where the connection was closed.
    async fn ask(stream: &mut TcpStream, what: &[u8]) -> Vec<u8> {
        let mut buffer = [0; 64];
        if stream.write_all(what).await.is_err() {
            return Vec::new();
        }
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        buffer[..count].to_vec()
    }

    #[tokio::test]
    async fn it_carries_both_ways() {
        let (upstream, _) = echo().await;
        let proxy = Proxy::start(upstream, None).await;
        let mut stream = connected(&proxy).await;
        assert_eq!(ask(&mut stream, b"one").await, b"one");
        assert_eq!(ask(&mut stream, b"two").await, b"two");
    }

    #[tokio::test]
    async fn a_lost_reply_belongs_to_a_request_that_arrived() {
        let (upstream, heard) = echo().await;
        let proxy = Proxy::start(upstream, None).await;
        let mut stream = connected(&proxy).await;
        proxy.lose_replies(1);
        assert_eq!(ask(&mut stream, b"one").await, b"");
        assert_eq!(*heard.lock().unwrap(), b"one");
        assert_eq!(ask(&mut connected(&proxy).await, b"two").await, b"two");
    }

    #[tokio::test]
    async fn a_hanging_connection_stays_open_and_silent_until_it_is_cut() {
        let (upstream, heard) = echo().await;
        let proxy = Proxy::start(upstream, None).await;
        let mut stream = connected(&proxy).await;
        proxy.hang(1);
        let answer = Deadline::after(Duration::from_millis(100)).bound(ask(&mut stream, b"one")).await;
        assert_eq!((answer, heard.lock().unwrap().as_slice()), (None, b"one".as_slice()));
        proxy.heal();
        assert_eq!(ask(&mut stream, b"two").await, b"");
    }

    #[tokio::test]
    async fn connections_are_cut_and_refused() {
        let (upstream, _) = echo().await;
        let proxy = Proxy::start(upstream, None).await;
        let mut stream = connected(&proxy).await;
        assert_eq!(ask(&mut stream, b"one").await, b"one");
        proxy.cut();
        assert_eq!(ask(&mut stream, b"two").await, b"");
        proxy.refuse(true);
        assert_eq!(ask(&mut connected(&proxy).await, b"three").await, b"");
        proxy.refuse(false);
        assert_eq!(ask(&mut connected(&proxy).await, b"four").await, b"four");
    }

    #[tokio::test]
    async fn a_request_is_rewritten_on_its_way() {
        let (upstream, _) = echo().await;
        let proxy = Proxy::start(upstream, Some(|bytes| bytes.make_ascii_uppercase())).await;
        assert_eq!(ask(&mut connected(&proxy).await, b"one").await, b"ONE");
    }
}
