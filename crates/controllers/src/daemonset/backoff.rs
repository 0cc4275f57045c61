//! How often the failed pods of a node are replaced: a kubelet may reject each new one at once.

use std::time::Duration;

use bayplan_model::keyed::KeyedMap;
use jiff::{SignedDuration, Timestamp};

/// The first pause.
const FIRST: SignedDuration = SignedDuration::from_secs(1);
/// Pauses double up to this.
const LONGEST: SignedDuration = SignedDuration::from_mins(15);
/// After this long without a failure, counting begins anew.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_mins(30);
/// How often forgotten entries are looked for.
const SWEEP_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// The pauses of all nodes of all DaemonSets; upstream's `flowcontrol.Backoff`.
#[derive(Debug, Default)]
pub struct FailedPodBackoff {
    by_key: KeyedMap<String, Pause>,
    swept: Option<Timestamp>,
}

#[derive(Debug)]
struct Pause {
    length: SignedDuration,
    since: Timestamp,
}

impl Pause {
    fn is_forgotten(&self, now: Timestamp) -> bool {
        now.duration_since(self.since) > FORGOTTEN_AFTER
    }
}

impl FailedPodBackoff {
    /// Nothing while a failed pod may be replaced; the pause's length while it may not.
    pub(super) fn pause(&self, key: &str, now: Timestamp) -> Option<Duration> {
        let pause = self.by_key.get(key).filter(|pause| !pause.is_forgotten(now))?;
        (now.duration_since(pause.since) < pause.length).then(|| pause.length.unsigned_abs())
    }

    /// A failed pod is replaced: the next pause begins, twice as long as the last one.
    pub(super) fn next(&mut self, key: String, now: Timestamp) {
        if self.swept.is_none_or(|at| now.duration_since(at) > SWEEP_EVERY) {
            self.by_key.retain(|_, pause| !pause.is_forgotten(now));
            self.swept = Some(now);
        }
        let last = self.by_key.get(&key).filter(|pause| !pause.is_forgotten(now));
        let length = last.map_or(FIRST, |pause| (pause.length * 2).min(LONGEST));
        self.by_key.insert(key, Pause { length, since: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_quarter_of_an_hour_and_are_forgotten() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut backoff = FailedPodBackoff::default();
        let (mut now, mut lengths) = (0, Vec::new());
        for _ in 0..12 {
            assert_eq!(backoff.pause("a", at(now)), None);
            backoff.next("a".into(), at(now));
            let length = backoff.pause("a", at(now)).unwrap().as_secs();
            lengths.push(length);
            now += i64::try_from(length).unwrap();
        }
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        assert_eq!(backoff.pause("b", at(now)), None);
        backoff.next("b".into(), at(now + 3600));
        backoff.next("a".into(), at(now + 3600));
        assert_eq!(backoff.pause("a", at(now + 3600)), Some(Duration::from_secs(1)));
    }
}
