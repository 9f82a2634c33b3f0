//! Ports of the loopback that nobody else is given while a test needs them.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpSocket;

/// A port that nobody else is given as long as this lives. It is bound and never listened on: a daemon can bind it too,
/// because both say SO_REUSEADDR (socket(7)), and where none does, a connection is refused.
pub struct Port(TcpSocket);

impl Port {
    /// Takes a free one.
    pub fn reserve() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        Self(socket)
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }
}

/// An address where nothing ever listens.
pub fn refusing() -> SocketAddr {
    static HELD: Mutex<Vec<Port>> = Mutex::new(vec![]);
    let port = Port::reserve();
    let address = port.address();
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(port);
    address
}
