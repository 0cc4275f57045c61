//! Keys of the store: which kind of value is under each.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::kind::Kind;
use crate::scheme::Scheme;

/// The prefix of every key, as the registry names them; `--etcd-prefix` stands in its place in etcd.
const REGISTRY: &str = "/registry/";
/// The object that says which node ports are allocated.
pub const NODE_PORTS_KEY: &str = "/registry/ranges/servicenodeports";
/// The addresses of running API servers, one key each, which expire with their server.
pub const SERVER_LEASES: &str = "/registry/masterleases/";

/// What is stored under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// An object of a kind that is served; the kind is the storage version.
    Object(&'static Kind),
    /// A `RangeAllocation`.
    Range,
    /// What this server neither reads nor writes.
    Foreign,
}

static BY_PREFIX: LazyLock<FxHashMap<&'static str, &'static Kind>> = LazyLock::new(|| {
    let scheme = Scheme::built_in();
    let stored = scheme.served().filter(|kind| kind.stored());
    stored.map(|kind| (kind.storage_prefix, scheme.storage_version(kind))).collect()
});

/// The kind, in its storage version, whose objects are stored under keys like this one; none for kinds that are not
/// served.
pub fn kind_of_key(key: &str) -> Option<&'static Kind> {
    let path = key.strip_prefix(REGISTRY)?;
    let mut slashes = path.match_indices('/').map(|(at, _)| at);
    let (first, second) = (slashes.next()?, slashes.next());
    // `services/specs` and `services/endpoints` are prefixes of two segments.
    let longer = second.and_then(|second| BY_PREFIX.get(&path[..second]));
    longer.or_else(|| BY_PREFIX.get(&path[..first])).copied()
}

pub(super) fn content_of(key: &str) -> Content {
    if key == NODE_PORTS_KEY {
        return Content::Range;
    }
    let endpoints = || BY_PREFIX.get("services/endpoints").copied();
    let kind = if key.starts_with(SERVER_LEASES) { endpoints() } else { kind_of_key(key) };
    kind.map_or(Content::Foreign, Content::Object)
}
