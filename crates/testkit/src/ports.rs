//! Ports for servers that cannot choose one themselves.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// First port that is handed out. Linux takes the local ports of outgoing connections from 32768 on, so no connection
/// of a test that runs at the same time can take a port below it between the moment it is chosen and the moment it is
/// used.
const FIRST: u32 = 16_384;
/// Number of ports that are handed out.
const COUNT: u32 = 16_384;
/// Ports between the first choices of two processes that start one after the other.
const STRIDE: u32 = 61;

/// Ports of 127.0.0.1 on which nobody listens, all different, also from those of earlier calls of this process.
pub fn free_ports<const N: usize>() -> [u16; N] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    [(); N].map(|()| {
        let free = (0..COUNT).find_map(|_| {
            let offset = std::process::id().wrapping_mul(STRIDE).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let port = u16::try_from(FIRST + offset % COUNT).unwrap();
            TcpListener::bind(("127.0.0.1", port)).is_ok().then_some(port)
        });
        free.expect("one of sixteen thousand ports is free")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_different_and_below_those_of_outgoing_connections() {
        let [a, b, c] = free_ports();
        assert!(a != b && b != c && a != c);
        for port in [a, b, c] {
            assert!((FIRST..FIRST + COUNT).contains(&u32::from(port)));
            TcpListener::bind(("127.0.0.1", port)).unwrap();
        }
    }
}
