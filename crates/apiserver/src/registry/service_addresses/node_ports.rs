//! Node ports: one bitmap for the cluster, in upstream's range object, changed by compare-and-swap.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bayplan_kinds::stored_value::NODE_PORTS_KEY;
use bayplan_model::status::Status;
use bayplan_store::{Entry, WriteError};
use bytes::Bytes;
use rand::RngExt;
use serde_json::{Value, json};

use super::super::Registry;
use crate::{chance, status_errors};

/// The ports of services of type `NodePort`, unless somebody says otherwise; upstream's `--service-node-port-range`.
pub(crate) const NODE_PORTS: RangeInclusive<u16> = 30000..=32767;
/// Random attempts before a systematic search.
const TRIES: usize = 16;

/// The port before the first that a dry run shows; upstream's.
const DRY_RUN_PORT: i64 = 32_768;

/// Why ports were not claimed.
pub(super) enum Refused {
    /// The one at this place in the request is another service's, or asked for twice.
    Taken(usize),
    /// The one at this place in the request is not in the range.
    OutOfRange(usize),
    /// No port is left to choose.
    Full,
    /// The store failed.
    Failed(Status),
}

/// The allocated ports of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bitmap {
    range: RangeInclusive<i64>,
    ports: BTreeSet<i64>,
}

impl Bitmap {
    pub(super) fn of(range: RangeInclusive<i64>, ports: impl IntoIterator<Item = i64>) -> Bitmap {
        Bitmap { ports: ports.into_iter().filter(|port| range.contains(port)).collect(), range }
    }

    pub(super) fn ports(&self) -> &BTreeSet<i64> {
        &self.ports
    }

    /// Other ports of the same range.
    pub(super) fn with(&self, ports: impl IntoIterator<Item = i64>) -> Bitmap {
        Bitmap::of(self.range.clone(), ports)
    }

    /// Reads the range object; one of another range is not ours to change.
    fn read(own: RangeInclusive<i64>, value: &[u8]) -> Result<Bitmap, String> {
        let object: Value = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        let range = object["range"].as_str().unwrap_or_default();
        if range != shown(&own) {
            return Err(format!("it is for the range {range:?}, and this server's is {}", shown(&own)));
        }
        let data = BASE64.decode(object["data"].as_str().unwrap_or_default()).map_err(|error| error.to_string())?;
        // The lowest port is the lowest bit of the last byte, as of a big integer.
        let ports = data.iter().rev().zip((*own.start()..).step_by(8)).flat_map(|(byte, first)| {
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| first + i64::from(bit))
        });
        Ok(Bitmap::of(own.clone(), ports))
    }

    fn write(&self) -> Bytes {
        let first = *self.range.start();
        let length = self.ports.last().map_or(0, |last| (last - first) / 8 + 1);
        let mut data = vec![0_u8; usize::try_from(length).unwrap_or_default()];
        for port in &self.ports {
            let bit = port - first;
            let from_end = usize::try_from(bit / 8).unwrap_or_default();
            let at = data.len() - 1 - from_end;
            data[at] |= 1 << (bit % 8);
        }
        let data = BASE64.encode(data);
        let object = json!({
            "kind": "RangeAllocation", "apiVersion": "v1", "metadata": {}, "range": shown(&self.range), "data": data,
        });
        Bytes::from(object.to_string())
    }

    /// A free port, at random, above the lowest ones, which are left to those who name theirs while there are others.
    fn free(&self) -> Option<i64> {
        let mut rng = chance::rng();
        let upper = *self.range.start() + self.left_to_names()..=*self.range.end();
        let random = (0..TRIES).map(|_| rng.random_range(upper.clone()));
        let all = upper.clone().chain(self.range.clone());
        random.chain(all).find(|port| !self.ports.contains(port))
    }

    /// How many ports are left to names (KEP-3668). Upstream: `calculateRangeOffset`.
    fn left_to_names(&self) -> i64 {
        const MIN: i64 = 16;
        const MAX: i64 = 128;
        const STEP: i64 = 32;
        let size = self.range.end() - self.range.start() + 1;
        if size <= MIN { 0 } else { (size / STEP).clamp(MIN, MAX) }
    }
}

/// A range as the range object and messages name it.
pub(super) fn shown(range: &RangeInclusive<i64>) -> String {
    format!("{}-{}", range.start(), range.end())
}

impl Registry {
    /// Claims ports by number, and as many as `count` of the server's choice, all or none. A dry run claims nothing,
    /// and its choices are no ports at all, as upstream's.
    pub(super) async fn claim_ports(&self, given: &[i64], count: usize, dry_run: bool) -> Result<Vec<i64>, Refused> {
        if given.is_empty() && count == 0 {
            return Ok(Vec::new());
        }
        loop {
            let (entry, mut bitmap) = self.port_bitmap().await.map_err(Refused::Failed)?;
            for (at, port) in given.iter().enumerate() {
                if !self.port_range().contains(port) && !dry_run {
                    return Err(Refused::OutOfRange(at));
                }
                if !bitmap.ports.insert(*port) {
                    return Err(Refused::Taken(at));
                }
            }
            if dry_run {
                let last = given.iter().copied().max().unwrap_or(DRY_RUN_PORT);
                return Ok((0..count).zip(last + 1..).map(|(_, port)| port).collect());
            }
            let mut chosen = Vec::new();
            for _ in 0..count {
                let port = bitmap.free().ok_or(Refused::Full)?;
                bitmap.ports.insert(port);
                chosen.push(port);
            }
            if self.write_ports(entry.as_ref(), &bitmap).await.map_err(Refused::Failed)? {
                return Ok(chosen);
            }
        }
    }

    /// Gives ports back.
    pub(super) async fn release_ports(&self, ports: &[i64]) -> Result<(), Status> {
        if ports.is_empty() {
            return Ok(());
        }
        loop {
            let (entry, mut bitmap) = self.port_bitmap().await?;
            let before = bitmap.ports.len();
            bitmap.ports.retain(|port| !ports.contains(port));
            if bitmap.ports.len() == before || self.write_ports(entry.as_ref(), &bitmap).await? {
                return Ok(());
            }
        }
    }

    pub(super) fn port_range(&self) -> RangeInclusive<i64> {
        i64::from(*self.node_ports.start())..=i64::from(*self.node_ports.end())
    }

    /// The range object and what it says; none is an empty one.
    pub(super) async fn port_bitmap(&self) -> Result<(Option<Entry>, Bitmap), Status> {
        let entry = self.entry(NODE_PORTS_KEY).await?;
        let range = self.port_range();
        let bitmap = entry.as_ref().map(|entry| Bitmap::read(range.clone(), &entry.value)).transpose();
        let bitmap = bitmap
            .map_err(|error| status_errors::internal(format!("{NODE_PORTS_KEY} cannot be read: {error}")))?
            .unwrap_or_else(|| Bitmap::of(range, []));
        Ok((entry, bitmap))
    }

    /// Writes the range object over the one that was read; false if another writer was faster.
    pub(super) async fn write_ports(&self, over: Option<&Entry>, bitmap: &Bitmap) -> Result<bool, Status> {
        let written = match over {
            Some(entry) => self.store.update(NODE_PORTS_KEY, bitmap.write(), entry.mod_revision).await,
            None => self.store.create(NODE_PORTS_KEY, bitmap.write()).await,
        };
        match written {
            Ok(_) => Ok(true),
            Err(WriteError::Conflict { .. }) => Ok(false),
            Err(error) => Err(status_errors::write(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: RangeInclusive<i64> = 30000..=32767;

    #[test]
    fn a_bitmap_is_a_big_integer_whose_lowest_bit_is_the_lowest_port() {
        let data = |ports: &[i64]| {
            let written = Bitmap::of(RANGE, ports.iter().copied()).write();
            let object: Value = serde_json::from_slice(&written).unwrap();
            BASE64.decode(object["data"].as_str().unwrap()).unwrap()
        };
        assert_eq!(data(&[]), b"");
        assert_eq!(data(&[30000]), [1]);
        assert_eq!(data(&[30000, 30009]), [2, 1]);
        // As kube-apiserver v1.36 stored it.
        assert_eq!(data(&[30050, 30009]), [4, 0, 0, 0, 0, 2, 0]);
        assert_eq!((data(&[32767]).len(), data(&[32767])[0]), (346, 0x80));
        for ports in [&[][..], &[30000], &[30007, 30008, 31999], &[32767]] {
            let bitmap = Bitmap::of(RANGE, ports.iter().copied());
            assert_eq!(Bitmap::read(RANGE, &bitmap.write()).unwrap(), bitmap);
        }
        let other = json!({"range": "20000-20100", "data": ""}).to_string();
        assert!(Bitmap::read(RANGE, other.as_bytes()).unwrap_err().contains("20000-20100"));
    }
}
