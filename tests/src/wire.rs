//! A proxy that reads along: which commands a client sends to a server, on how many connections, and whether it sends
//! several without waiting for the answers.
//!
//! It stands between a real function and a real server, so what it counts is what a function costs, whichever layer
//! sends it. A command can be held back until so many of its kind are on their way: a client that waits for one
//! answer before it sends the next then gets none, which needs no clock to see.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// How requests are framed.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// `OP_MSG`, see <https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/>.
    MongoDb,
    /// RESP, see <https://redis.io/docs/latest/develop/reference/protocol-spec/>.
    Redis,
}

/// What drivers send of their own accord: greetings and farewells.
const NOT_COUNTED: [&str; 6] = ["hello", "isMaster", "ismaster", "ping", "endSessions", "CLIENT"];
/// The bytes of an `OP_MSG` before its first document: the header, the flags, and the kind of the first section.
const BEFORE_DOCUMENT: usize = 16 + 4 + 1;

/// Holds commands of one kind back until so many of them were sent.
struct Gate {
    command: &'static str,
    until: usize,
    came: watch::Sender<usize>,
}

#[derive(Default)]
struct Seen {
    commands: BTreeMap<String, usize>,
    connections: usize,
    gate: Option<Arc<Gate>>,
}

/// The proxy. It ends when this is dropped.
pub struct Wire {
    port: u16,
    seen: Arc<Mutex<Seen>>,
    server: JoinHandle<()>,
}

impl Wire {
    /// Listens on a free port and carries to this one.
    pub async fn start(protocol: Protocol, upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port can be had");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let counted = Arc::clone(&seen);
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                counted.lock().unwrap().connections += 1;
                tokio::spawn(carry(protocol, Arc::clone(&counted), client, upstream));
            }
        });
        Self { port, seen, server }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Forgets the commands that were sent so far, and holds none back.
    pub fn forget(&self) {
        let mut seen = self.seen.lock().unwrap();
        seen.commands.clear();
        seen.gate = None;
    }

    /// The commands that were sent, with how often; without greetings and farewells.
    pub fn commands(&self) -> BTreeMap<String, usize> {
        self.seen.lock().unwrap().commands.clone()
    }

    /// The connections that were made since the start.
    pub fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    /// Holds every further `command` back until `until` of them were sent; from then on none.
    pub fn hold(&self, command: &'static str, until: usize) {
        let gate = Gate { command, until, came: watch::Sender::new(0) };
        self.seen.lock().unwrap().gate = Some(Arc::new(gate));
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn carry(protocol: Protocol, seen: Arc<Mutex<Seen>>, client: TcpStream, upstream: u16) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)).await else { return };
    // Small requests and replies must not wait for each other.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    // What is held back must not keep us from reading what comes after it.
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::select! {
        _ = read_requests(protocol, &seen, from_client, sender) => {}
        _ = write_requests(receiver, to_server) => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
    }
}

type Request = (Vec<u8>, Option<Arc<Gate>>);

async fn read_requests(
    protocol: Protocol,
    seen: &Mutex<Seen>,
    from: impl AsyncRead + Unpin,
    to: mpsc::UnboundedSender<Request>,
) -> std::io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let (command, bytes) = match protocol {
            Protocol::MongoDb => mongodb_request(&mut from).await?,
            Protocol::Redis => redis_request(&mut from).await?,
        };
        let gate = note(&mut seen.lock().unwrap(), command);
        if to.send((bytes, gate)).is_err() {
            return Ok(());
        }
    }
}

/// Counts the command. The answer is the gate that it waits at.
fn note(seen: &mut Seen, command: String) -> Option<Arc<Gate>> {
    if NOT_COUNTED.contains(&command.as_str()) {
        return None;
    }
    let gate = seen.gate.clone().filter(|gate| gate.command == command);
    if let Some(gate) = &gate {
        gate.came.send_modify(|came| *came += 1);
    }
    *seen.commands.entry(command).or_default() += 1;
    gate
}

async fn write_requests(
    mut from: mpsc::UnboundedReceiver<Request>,
    mut to: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    while let Some((bytes, gate)) = from.recv().await {
        if let Some(gate) = gate {
            let mut came = gate.came.subscribe();
            let _ = came.wait_for(|came| *came >= gate.until).await;
        }
        to.write_all(&bytes).await?;
    }
    Ok(())
}

/// A message, and the name of its first document's first field, which is the command.
async fn mongodb_request(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<(String, Vec<u8>)> {
    let length = from.read_u32_le().await?;
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.resize(length as usize, 0);
    from.read_exact(&mut bytes[4..]).await?;
    // The document's length and the field's type stand before the name.
    let name = bytes.get(BEFORE_DOCUMENT + 4 + 1..).unwrap_or_default();
    let end = name.iter().position(|byte| *byte == 0).unwrap_or_default();
    Ok((String::from_utf8_lossy(&name[..end]).into_owned(), bytes))
}

/// `*<count>`, then `$<length>` and so many bytes for each part, of which the first is the command.
async fn redis_request(from: &mut (impl AsyncBufReadExt + Unpin)) -> std::io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let parts = redis_number(from, &mut bytes).await?;
    let mut command = String::new();
    for part in 0..parts {
        let length = redis_number(from, &mut bytes).await?;
        let start = bytes.len();
        bytes.resize(start + length + 2, 0);
        from.read_exact(&mut bytes[start..]).await?;
        if part == 0 {
            command = String::from_utf8_lossy(&bytes[start..start + length]).to_uppercase();
        }
    }
    Ok((command, bytes))
}

/// The number in a line such as `*3` or `$11`, which is added to `bytes`.
async fn redis_number(
    from: &mut (impl AsyncBufReadExt + Unpin),
    bytes: &mut Vec<u8>,
) -> std::io::Result<usize> {
    let start = bytes.len();
    from.read_until(b'\n', bytes).await?;
    let digits = String::from_utf8_lossy(bytes.get(start + 1..).unwrap_or_default()).into_owned();
    digits.trim().parse().map_err(|_| std::io::ErrorKind::InvalidData.into())
}
