//! Decodes only the fields that selectors may read and skips the others.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Selectable fields are at most this deep: `spec.nodeName`, `involvedObject.name`.
const DEPTH: u8 = 2;
/// Members that are decoded whole: one has the labels, the other is a selectable list.
const WHOLE: [&str; 2] = ["metadata", "podIPs"];

pub(super) fn decode(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Shallow { depth: DEPTH }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Decodes lists, and maps below a depth, as null.
struct Shallow {
    depth: u8,
}

impl<'de> DeserializeSeed<'de> for Shallow {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Shallow {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        if self.depth == 0 {
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = match WHOLE.contains(&key.as_str()) {
                true => members.next_value()?,
                false => members.next_value_seed(Shallow { depth: self.depth - 1 })?,
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use bayplan_kinds::{Kind, served};
    use serde_json::json;

    use super::*;

    #[test]
    fn every_selectable_field_is_read_and_deep_ones_are_not() {
        let pod = json!({
            "kind": "Pod", "metadata": {"name": "a", "labels": {"b": "c"}},
            "spec": {"nodeName": "n", "hostNetwork": true, "containers": [{"name": "x"}], "affinity": {"a": {"b": 1}}},
            "status": {
                "phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [1, [2], {"a": null}], "n": 1.5,
            },
        });
        let shallow = decode(pod.to_string().as_bytes()).unwrap();
        assert_eq!(
            shallow,
            json!({
                "kind": "Pod", "metadata": {"name": "a", "labels": {"b": "c"}},
                "spec": {"nodeName": "n", "hostNetwork": true, "containers": null, "affinity": null},
                "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": null, "n": 1.5},
            })
        );
        for field in served().flat_map(Kind::selectable_fields) {
            assert!(field.split('.').count() <= usize::from(DEPTH), "{field} is deeper");
        }
        assert!(decode(b"{\"a\":1} x").is_err());
    }
}
