//! What Filter, Score and PostFilter of a plugin read, so that the engine knows how long their answers hold.

/// What an answer depends on. The engine caches answers and invalidates them accordingly.
///
/// All but [`Reads::Cluster`] promise that the plugin reads nothing of the pod but its signature: neither its name, UID
/// or annotations, nor its volumes or device claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reads {
    /// Only the pod: Filter passes and Score is 0 on every node.
    Pod,
    /// Also the node object.
    Node,
    /// Also what the pods on the node use: requests, host ports, their number.
    Usage,
    /// Also the pods in the node's topology domains; the plugin implements
    /// [`Plugin::domain_counting`](super::Plugin::domain_counting).
    Domain,
    /// Anything. Always correct, only slower.
    #[default]
    Cluster,
}

/// How a plugin turns the scores of all nodes into values from 0 to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalization {
    /// In its own way, which only [`Plugin::normalize`](super::Plugin::normalize) knows.
    #[default]
    Own,
    /// Not at all.
    None,
    /// By [`default_normalize`](super::default_normalize).
    Highest {
        /// Lower is better.
        reverse: bool,
    },
}

/// What Filter, Score and PostFilter of a plugin depend on, for one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// What Filter reads, PreFilter included.
    pub filter: Reads,
    /// What Score reads, PreScore included.
    pub score: Reads,
    /// How scores are normalised.
    pub normalization: Normalization,
    /// What PostFilter reads when it cannot help the pod.
    pub post_filter: Reads,
    /// Changes whenever something else changes that the plugin reads, such as another kind of object.
    pub version: u64,
}

impl Dependencies {
    /// For a plugin that neither filters nor scores the pod.
    pub const NOTHING: Dependencies = Dependencies {
        filter: Reads::Pod,
        score: Reads::Pod,
        normalization: Normalization::None,
        post_filter: Reads::Pod,
        version: 0,
    };

    /// For a plugin that only filters.
    pub fn filter(filter: Reads) -> Self {
        Dependencies { filter, ..Dependencies::NOTHING }
    }

    /// For a plugin that only scores.
    pub fn score(score: Reads, normalization: Normalization) -> Self {
        Dependencies { score, normalization, ..Dependencies::NOTHING }
    }

    /// The same dependencies at another version.
    #[must_use]
    pub fn at(self, version: u64) -> Self {
        Dependencies { version, ..self }
    }
}
