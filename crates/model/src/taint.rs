//! Taints, which repel pods, and tolerations, which bear them.

use crate::view::views;

views! {
    /// What repels pods from a node.
    struct Taint {
        /// The taint's name.
        key: String,
        value: String,
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        effect: String,
    }

    /// What a pod bears.
    struct Toleration {
        /// The taint's name; empty for all.
        key: String,
        /// `Exists` or `Equal` (the default); `Lt` and `Gt` are behind a gate that is off.
        operator: String,
        /// The value `Equal` compares.
        value: String,
        /// The effect; empty for all.
        effect: String,
        /// How long a NoExecute taint is borne.
        toleration_seconds: Option<i64>,
    }
}

impl Taint {
    /// True for `NoSchedule` and `NoExecute`, which keep new pods away.
    pub fn repels(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }
}

impl Toleration {
    /// Whether this toleration bears that taint. `Lt` and `Gt` never do: TaintTolerationComparisonOperators is off.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator.as_str() {
                "" | "Equal" => self.value == taint.value,
                "Exists" => true,
                _ => false,
            }
    }
}

/// The first taint that keeps new pods away and that no toleration tolerates; upstream's
/// `FindMatchingUntoleratedTaint`.
pub fn untolerated<'t>(taints: &'t [Taint], tolerations: &[Toleration]) -> Option<&'t Taint> {
    taints.iter().find(|taint| taint.repels() && !tolerations.iter().any(|t| t.tolerates(taint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint { key: key.into(), value: value.into(), effect: effect.into() }
    }

    #[test]
    fn a_toleration_bears_what_its_key_operator_value_and_effect_cover() {
        let cases = [
            ("", "Exists", "", "", true),
            ("gpu", "Exists", "", "NoSchedule", true),
            ("gpu", "Exists", "", "NoExecute", false),
            ("gpu", "", "a100", "", true),
            ("gpu", "Equal", "h100", "", false),
            ("cpu", "Exists", "", "", false),
            ("gpu", "Gt", "1", "", false),
            ("", "Equal", "a100", "", true),
        ];
        for (key, operator, value, effect, expected) in cases {
            let toleration = Toleration {
                key: key.into(),
                operator: operator.into(),
                value: value.into(),
                effect: effect.into(),
                toleration_seconds: None,
            };
            assert_eq!(toleration.tolerates(&taint("gpu", "a100", "NoSchedule")), expected, "{toleration:?}");
        }
    }

    #[test]
    fn only_repelling_effects_keep_a_pod_away() {
        let taints = [taint("a", "", "PreferNoSchedule"), taint("b", "", "NoExecute")];
        assert_eq!(untolerated(&taints, &[]).map(|t| t.key.as_str()), Some("b"));
        assert_eq!(untolerated(&taints[..1], &[]), None);
    }
}
