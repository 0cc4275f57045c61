//! How much of a source is read and kept. A source may be anything that somebody sent us.

/// The largest object, or document that is not a list. An API server takes bodies of 3 MiB and etcd 1.5 MiB; a dump
/// adds indentation, and YAML wraps lists that a generator wrote in its own form.
pub(crate) const OBJECT_BYTES_MAX: usize = 32 << 20;

/// The objects that are kept, as text. 150,000 pods with everything a kubelet writes about them are below 2 GiB.
pub(crate) const KEPT_BYTES_MAX: usize = 4 << 30;

/// Notes about different things; a dump of a thousand broken files is one problem, not a thousand.
pub(crate) const NOTES_MAX: usize = 50;
