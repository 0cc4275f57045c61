//! Taints, which repel pods, and tolerations, which bear them.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

/// So few tolerations are gone through for a taint; more are looked up.
const SCANNED_MAX: usize = 16;

/// The tolerations of a pod. A pod can have tens of thousands and the nodes thousands of taints, and every filter asks
/// about every node: a taint is borne or not in a time that hardly grows with the tolerations.
#[derive(Clone, Default)]
pub struct Tolerations {
    list: Box<[Toleration]>,
    /// The positions of those that can bear a taint, by what they bear; only for long lists.
    by_taints: Option<Box<[u32]>>,
}

/// What a toleration bears: an effect, a key and, unless it bears all of them, a value.
type Borne<'t> = (&'t str, &'t str, Option<&'t str>);

impl Toleration {
    /// What it bears; none if that is nothing.
    fn bears(&self) -> Option<Borne<'_>> {
        let value = match self.operator.as_str() {
            "" | "Equal" => Some(self.value.as_str()),
            "Exists" => None,
            _ => return None,
        };
        Some((&self.effect, &self.key, value))
    }
}

impl Tolerations {
    /// The first toleration that bears a taint.
    pub fn bearing(&self, taint: &Taint) -> Option<&Toleration> {
        let Some(by_taints) = &self.by_taints else {
            return self.list.iter().find(|toleration| toleration.tolerates(taint));
        };
        let at = |position: &u32| &self.list[*position as usize];
        let first_of = |borne: Borne<'_>| {
            let from = by_taints.partition_point(|position| at(position).bears() < Some(borne));
            by_taints.get(from).filter(|position| at(position).bears() == Some(borne))
        };
        let effects = ["", taint.effect.as_str()];
        let keys = ["", taint.key.as_str()];
        let values = [None, Some(taint.value.as_str())];
        let all = effects.into_iter().flat_map(|effect| {
            keys.into_iter().flat_map(move |key| values.into_iter().map(move |value| (effect, key, value)))
        });
        all.filter_map(first_of).min().map(at)
    }

    /// Whether a toleration bears the taint.
    pub fn bear(&self, taint: &Taint) -> bool {
        self.bearing(taint).is_some()
    }

    /// The first taint that keeps new pods away and that no toleration bears; upstream's
    /// `FindMatchingUntoleratedTaint`.
    pub fn untolerated<'t>(&self, taints: &'t [Taint]) -> Option<&'t Taint> {
        taints.iter().find(|taint| taint.repels() && !self.bear(taint))
    }
}

impl From<Vec<Toleration>> for Tolerations {
    fn from(list: Vec<Toleration>) -> Self {
        let order = || {
            let positions = (0u32..).zip(&list).filter(|(_, toleration)| toleration.bears().is_some());
            let mut positions: Vec<u32> = positions.map(|(position, _)| position).collect();
            // Those that bear the same stay in their order.
            positions.sort_by_key(|position| list[*position as usize].bears());
            positions.into_boxed_slice()
        };
        let by_taints = (list.len() > SCANNED_MAX).then(order);
        Tolerations { list: list.into(), by_taints }
    }
}

impl Deref for Tolerations {
    type Target = [Toleration];

    fn deref(&self) -> &[Toleration] {
        &self.list
    }
}

impl std::fmt::Debug for Tolerations {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.list.fmt(formatter)
    }
}

impl PartialEq for Tolerations {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl std::hash::Hash for Tolerations {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.list.hash(state);
    }
}

impl<'de> Deserialize<'de> for Tolerations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Tolerations::from)
    }
}

impl Serialize for Tolerations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.list.serialize(serializer)
    }
}

/// As [`Tolerations::untolerated`], for lists that the API keeps short: those of devices.
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
        assert_eq!(Tolerations::default().untolerated(&taints), Some(&taints[1]));
    }

    #[test]
    fn many_tolerations_bear_what_each_of_them_bears() {
        let words = ["", "a", "b", "c"];
        let operators = ["", "Equal", "Exists", "Gt"];
        // All combinations several times over, in an order in which few equal ones follow each other.
        let toleration = |i: usize| Toleration {
            key: words[i % 4].into(),
            operator: operators[i / 4 % 4].into(),
            value: words[i / 16 % 4].into(),
            effect: words[i / 64 % 4].into(),
            toleration_seconds: Some(i as i64),
        };
        for (count, step) in [(0, 1), (3, 7), (17, 7), (40, 37), (64, 5), (300, 37), (700, 11)] {
            let list: Vec<Toleration> = (0..count).map(|i| toleration(i * step + 1)).collect();
            let tolerations = Tolerations::from(list.clone());
            for i in 0..64 {
                let taint = taint(words[i % 4], words[i / 4 % 4], words[i / 16 % 4]);
                let expected = list.iter().find(|toleration| toleration.tolerates(&taint));
                assert_eq!(tolerations.bearing(&taint), expected, "{count} × {step}: {taint:?}");
            }
        }
    }
}
