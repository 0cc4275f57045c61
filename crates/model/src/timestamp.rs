//! The two ways Kubernetes writes a time: `metav1.Time` in seconds, `metav1.MicroTime` in microseconds.

use jiff::Timestamp;

/// `metav1.Time`: `2026-01-02T03:04:05Z`.
pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metav1.MicroTime`: `2026-01-02T03:04:05.000000Z`, always with six digits.
pub fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_cut_what_they_cannot_say() {
        let at: Timestamp = "2026-01-02T03:04:05.678901234Z".parse().unwrap();
        assert_eq!(seconds(at), "2026-01-02T03:04:05Z");
        assert_eq!(micros(at), "2026-01-02T03:04:05.678901Z");
        assert_eq!(micros(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}
