//! How much of a source is read and kept. A source may be anything that somebody sent us.

/// The largest object, or document that is not a list. An API server takes bodies of 3 MiB and etcd 1.5 MiB; a dump
/// adds indentation, and YAML wraps lists that a generator wrote in its own form.
pub(crate) const OBJECT_BYTES_MAX: usize = 32 << 20;

/// What begins like JSON, is broken as such and is read again as YAML. People write that by hand; a dump is longer.
pub(crate) const READ_TWICE_BYTES_MAX: usize = 4 << 20;

/// The objects that are kept, as text. 150,000 pods with everything a kubelet writes about them are below 2 GiB.
pub(crate) const KEPT_BYTES_MAX: usize = 2 << 30;

/// Objects are kept as they are written until they take this much; from there on without what no decision reads, which
/// leaves a fifth of a pod or less.
pub(crate) const KEPT_WHOLE_BYTES_MAX: usize = 512 << 20;

/// Notes about different things; a dump of a thousand broken files is one problem, not a thousand.
pub(crate) const NOTES_MAX: usize = 50;

/// How deep archives and compressed files may lie in each other: a bundle in an archive in a compressed file.
pub(crate) const NESTING_MAX: usize = 4;

/// Files of one archive. The must-gather of a large cluster has some ten thousand.
pub(crate) const ENTRIES_MAX: usize = 1_000_000;

/// What compressed files may grow to, all of them together.
pub(crate) const DECOMPRESSED_BYTES_MAX: u64 = 16 << 30;

/// How much larger than its file the content may be. Dumps of pods that are all alike reach a hundred and more; a
/// bomb has a thousand.
pub(crate) const RATIO_MAX: u64 = 500;

/// Before this much has come out, the ratio does not count: small files of blanks are harmless.
pub(crate) const RATIO_GRACE_BYTES: u64 = 64 << 20;

/// A database that comes as a stream and must be held in memory. etcd suggests 8 GiB at most, most are far smaller;
/// a file is read in place, however large.
pub(crate) const DATABASE_BYTES_MAX: u64 = 2 << 30;

/// Events about failed attempts that are counted: an hour of them about 200,000 pods.
pub(crate) const ATTEMPT_EVENTS_MAX: usize = 200_000;

/// The longest message of an event; API servers take no longer ones.
pub(crate) const ATTEMPT_MESSAGE_BYTES_MAX: usize = 1024;
