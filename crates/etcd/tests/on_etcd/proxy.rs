//! A connection to etcd that can be cut.

use std::sync::Arc;

use bayplan_testkit::free_ports;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards connections to an address while it is not cut.
pub(crate) struct Proxy {
    port: u16,
    open: Arc<watch::Sender<bool>>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(address: String) -> Proxy {
        let [port] = free_ports();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let open = Arc::new(watch::channel(true).0);
        let (switch, address) = (open.clone(), Arc::new(address));
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(forward(client, address.clone(), switch.subscribe()));
            }
        });
        Proxy { port, open, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends all connections and takes no new ones.
    pub(crate) fn cut(&self) {
        self.open.send_replace(false);
    }

    /// Takes connections again.
    pub(crate) fn mend(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut client: TcpStream, address: Arc<String>, mut open: watch::Receiver<bool>) {
    if !*open.borrow_and_update() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(&**address).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = open.wait_for(|open| !open) => {}
    }
}
