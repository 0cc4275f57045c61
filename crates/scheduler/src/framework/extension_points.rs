//! The extension points of the scheduling framework, as a set of bits.

/// A set of extension points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtensionPoints(u16);

macro_rules! extension_points {
    ($($(#[$meta:meta])* $name:ident = $bit:literal, $interface:literal;)*) => {
        impl ExtensionPoints {
            $($(#[$meta])* pub const $name: ExtensionPoints = ExtensionPoints(1 << $bit);)*

            /// Upstream's name of the interface of a single extension point, as error messages show it.
            pub fn interface(self) -> &'static str {
                $(if self == ExtensionPoints::$name { return $interface; })*
                ""
            }
        }
    };
}

extension_points! {
    /// May hold a pod back before it enters the active queue.
    PRE_ENQUEUE = 0, "PreEnqueuePlugin";
    /// Orders the active queue.
    QUEUE_SORT = 1, "QueueSortPlugin";
    /// Prepares Filter, and may reject the pod or narrow the nodes.
    PRE_FILTER = 2, "PreFilterPlugin";
    /// Accepts or rejects a node.
    FILTER = 3, "FilterPlugin";
    /// Runs when no node fits; preemption happens here.
    POST_FILTER = 4, "PostFilterPlugin";
    /// Prepares Score.
    PRE_SCORE = 5, "PreScorePlugin";
    /// Scores a node.
    SCORE = 6, "ScorePlugin";
    /// Reserves something for the pod in the scheduler's memory.
    RESERVE = 7, "ReservePlugin";
    /// May delay the binding of a pod.
    PERMIT = 8, "PermitPlugin";
    /// Runs before the pod is bound.
    PRE_BIND = 9, "PreBindPlugin";
    /// Binds the pod.
    BIND = 10, "BindPlugin";
    /// Runs after the pod is bound.
    POST_BIND = 11, "PostBindPlugin";
    /// Proposes sets of nodes for a group of pods. Accepted in configurations and never run: upstream's gate is off.
    PLACEMENT_GENERATE = 12, "PlacementGeneratePlugin";
    /// Scores such a set. Accepted in configurations and never run.
    PLACEMENT_SCORE = 13, "PlacementScorePlugin";
}

impl ExtensionPoints {
    /// The points of both sets.
    pub const fn union(self, other: ExtensionPoints) -> ExtensionPoints {
        ExtensionPoints(self.0 | other.0)
    }

    /// True when the sets have a point in common.
    pub const fn intersects(self, other: ExtensionPoints) -> bool {
        self.0 & other.0 != 0
    }

    /// True when all points of `other` are in this set.
    pub const fn contains(self, other: ExtensionPoints) -> bool {
        self.0 & other.0 == other.0
    }
}
