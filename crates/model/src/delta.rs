//! How an informer reports that an object changed: one type, passed unchanged from the watch to the cores.

/// A change of one object, with what it was before.
///
/// `T` is a cheap handle on the object: an `Arc` of its view, or an enum of such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta<T> {
    /// The object is new.
    Added(T),
    /// The object changed. A resync repeats the same version as both `old` and `new`.
    Updated {
        /// The version that was reported last.
        old: T,
        /// The version the object has now.
        new: T,
    },
    /// The object is gone, or no longer selected; this is its last known version.
    Deleted(T),
}

impl<T> Delta<T> {
    /// The object's newest known version.
    pub fn object(&self) -> &T {
        match self {
            Delta::Added(object) | Delta::Updated { new: object, .. } | Delta::Deleted(object) => object,
        }
    }

    /// The object, unless it is gone.
    pub fn current(&self) -> Option<&T> {
        match self {
            Delta::Added(object) | Delta::Updated { new: object, .. } => Some(object),
            Delta::Deleted(_) => None,
        }
    }

    /// The same change in another representation of the object.
    pub fn map<U>(self, mut convert: impl FnMut(T) -> U) -> Delta<U> {
        match self {
            Delta::Added(object) => Delta::Added(convert(object)),
            Delta::Updated { old, new } => Delta::Updated { old: convert(old), new: convert(new) },
            Delta::Deleted(object) => Delta::Deleted(convert(object)),
        }
    }
}
