//! Looks kinds up by the names that URLs and objects use. Upstream's word: `runtime.Scheme`.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::kind::Kind;
use crate::table::KINDS;

static BUILT_IN: LazyLock<Scheme> = LazyLock::new(|| Scheme::new(KINDS.iter().copied()));

/// Group, version, and either a plural or a kind.
type Name = (&'static str, &'static str, &'static str);

/// A set of kinds and the names they are found by.
#[derive(Debug)]
pub struct Scheme {
    kinds: Vec<&'static Kind>,
    by_resource: FxHashMap<Name, &'static Kind>,
    by_kind: FxHashMap<Name, &'static Kind>,
    /// The first kind of a storage prefix is the storage version.
    by_storage_prefix: FxHashMap<&'static str, &'static Kind>,
}

impl Scheme {
    /// The kinds this crate defines.
    pub fn built_in() -> &'static Scheme {
        &BUILT_IN
    }

    /// A scheme of any kinds. Of two with the same storage prefix, objects are stored as the first.
    pub fn new(kinds: impl IntoIterator<Item = &'static Kind>) -> Scheme {
        let kinds: Vec<&'static Kind> = kinds.into_iter().collect();
        let mut by_storage_prefix = FxHashMap::default();
        for kind in kinds.iter().filter(|kind| kind.stored()) {
            by_storage_prefix.entry(kind.storage_prefix).or_insert(*kind);
        }
        let urls = kinds.iter().filter(|kind| !kind.plural.is_empty());
        Scheme {
            by_resource: urls.map(|kind| ((kind.group, kind.version, kind.plural), *kind)).collect(),
            by_kind: kinds.iter().map(|kind| ((kind.group, kind.version, kind.kind), *kind)).collect(),
            by_storage_prefix,
            kinds,
        }
    }

    /// Every kind, in the order of the table.
    pub fn kinds(&self) -> impl Iterator<Item = &'static Kind> {
        self.kinds.iter().copied()
    }

    /// The kinds with URLs of their own, in discovery's order.
    pub fn served(&self) -> impl Iterator<Item = &'static Kind> {
        self.kinds().filter(|kind| !kind.plural.is_empty())
    }

    /// The kind of a resource as URLs name it.
    pub fn by_resource(&self, group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
        self.by_resource.get(&(group, version, plural)).copied()
    }

    /// The kind that objects name.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&'static Kind> {
        self.by_kind.get(&(group, version, kind)).copied()
    }

    /// The version in which objects of `kind` are stored.
    pub fn storage_version(&self, kind: &'static Kind) -> &'static Kind {
        self.by_storage_prefix.get(kind.storage_prefix).copied().unwrap_or(kind)
    }
}

/// The built-in kind of a resource as URLs name it.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    Scheme::built_in().by_resource(group, version, plural)
}

/// The built-in kinds with URLs of their own, in discovery's order.
pub fn served() -> impl Iterator<Item = &'static Kind> {
    Scheme::built_in().served()
}
