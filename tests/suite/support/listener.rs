//! What the oracles that speak on bare connections share: a free port, and a task for each connection.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Listens on a free loopback port until the tasks are dropped, and runs `converse` for each connection.
pub async fn listen<C>(mut converse: impl FnMut(TcpStream) -> C + Send + 'static) -> (SocketAddr, JoinSet<()>)
where
    C: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let addr = listener.local_addr().expect("an address");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            connections.spawn(converse(stream));
            while connections.try_join_next().is_some() {}
        }
    });
    (addr, tasks)
}
