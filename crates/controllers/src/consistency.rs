//! Read-your-writes: a reconcile waits until the caches have what the controller itself wrote.

use bayplan_model::keyed::KeyedMap;

/// The highest versions written on behalf of each key.
#[derive(Debug, Default)]
pub(crate) struct Consistency {
    by_key: KeyedMap<String, Written>,
}

#[derive(Debug, Default)]
struct Written {
    uid: String,
    pods: String,
    owner: String,
    claims: String,
}

impl Consistency {
    /// A pod was written.
    pub(crate) fn wrote_pod(&mut self, key: &str, uid: &str, version: &str) {
        raise(&mut self.entry(key, uid).pods, version);
    }

    /// A volume claim of one of the pods was written.
    pub(crate) fn wrote_claim(&mut self, key: &str, uid: &str, version: &str) {
        raise(&mut self.entry(key, uid).claims, version);
    }

    /// The owner itself was written.
    pub(crate) fn wrote_owner(&mut self, key: &str, uid: &str, version: &str) {
        raise(&mut self.entry(key, uid).owner, version);
    }

    fn entry(&mut self, key: &str, uid: &str) -> &mut Written {
        let written = self.by_key.entry(key.into()).or_default();
        if written.uid != uid {
            *written = Written { uid: uid.into(), ..Written::default() };
        }
        written
    }

    /// The owner was deleted; the record of another object of the same name stays.
    pub(crate) fn forget(&mut self, key: &str, uid: Option<&str>) {
        if self.by_key.get(key).is_some_and(|written| uid.is_none_or(|uid| uid == written.uid)) {
            self.by_key.remove(key);
        }
    }

    /// Whether the cache of volume claims is as new as the writes; if not, `(read, written)`. Asked before
    /// [`Consistency::check`], which drops the record.
    pub(crate) fn check_claims(&self, key: &str, claims: &str) -> Result<(), (String, String)> {
        let Some(written) = self.by_key.get(key) else { return Ok(()) };
        if is_older(claims, &written.claims) { Err((claims.into(), written.claims.clone())) } else { Ok(()) }
    }

    /// Whether both caches are as new as the writes; if not, which version is missing: `(read, written, is_pod)`.
    pub(crate) fn check(&mut self, key: &str, pods: &str, owner: &str) -> Result<(), (String, String, bool)> {
        let Some(written) = self.by_key.get(key) else { return Ok(()) };
        if is_older(pods, &written.pods) {
            return Err((pods.into(), written.pods.clone(), true));
        }
        if is_older(owner, &written.owner) {
            return Err((owner.into(), written.owner.clone(), false));
        }
        self.by_key.remove(key);
        Ok(())
    }
}

fn raise(highest: &mut String, version: &str) {
    if highest.is_empty() || is_older(highest, version) {
        version.clone_into(highest);
    }
}

/// Versions are compared as decimal numbers of any length; what is not one cannot be compared, and is never older.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    let comparable = |v: &str| !v.starts_with('0') && !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit());
    comparable(version) && comparable(than) && (version.len(), version) < (than.len(), than)
}

/// Whether a cache is older than a version that was written; one that has seen nothing is.
pub(crate) fn is_behind(cache: &str, written: &str) -> bool {
    matches!(cache, "" | "0") || is_older(cache, written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reconcile_waits_for_its_own_writes() {
        let mut consistency = Consistency::default();
        consistency.wrote_pod("a/b", "u", "9");
        consistency.wrote_pod("a/b", "u", "10");
        consistency.wrote_owner("a/b", "u", "12");
        assert_eq!(consistency.check("a/b", "9", "12"), Err(("9".into(), "10".into(), true)));
        assert_eq!(consistency.check("a/b", "10", "11"), Err(("11".into(), "12".into(), false)));
        assert_eq!(consistency.check("a/b", "100", "12"), Ok(()));
        assert_eq!(consistency.check("a/b", "1", "1"), Ok(()), "the record is dropped once caught up");
    }

    #[test]
    fn versions_that_are_no_numbers_are_not_compared() {
        for (read, written) in [("", "5"), ("0", "5"), ("abc", "5"), ("4", "x"), ("4", "05")] {
            assert!(!is_older(read, written), "{read} {written}");
        }
    }
}
