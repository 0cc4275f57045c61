//! What a request warns its client of: `Warning` headers, on failures too. Upstream's `warning` package.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use http::header::{HeaderValue, WARNING};

/// The most characters of all warnings together; beyond it each is cut.
const CHARS_MAX: usize = 4 * 1024;

/// The most characters of a warning that is cut.
const CUT_CHARS: usize = 256;

/// The most warnings that are kept: cut, these are more than the headers may hold.
const KEPT_MAX: usize = 1024;

/// The warnings of one request, in the order they were found, each once.
#[derive(Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// Adds warnings; those that are there already are not repeated.
    pub(crate) fn extend(&self, texts: impl IntoIterator<Item = String>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for text in texts {
            if !text.is_empty() && kept.len() < KEPT_MAX && !kept.contains(&text) {
                kept.push(text);
            }
        }
    }

    /// True if there is nothing to warn of.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Writes the headers.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_long = kept.iter().map(|text| text.chars().count()).sum::<usize>() > CHARS_MAX;
        let mut written = 0;
        for text in kept.iter() {
            if written >= CHARS_MAX {
                break;
            }
            let text: String = text.chars().take(if is_long { CUT_CHARS } else { usize::MAX }).collect();
            written += text.chars().count();
            if let Some(value) = header(&text) {
                headers.append(WARNING, value);
            }
        }
    }
}

impl fmt::Debug for Warnings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Warnings")
    }
}

/// `299 - "<text>"`, without control characters.
fn header(text: &str) -> Option<HeaderValue> {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("299 - \"{quoted}\"")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(texts: &[String]) -> Vec<String> {
        let warnings = Warnings::default();
        warnings.extend(texts.iter().cloned());
        let mut headers = HeaderMap::new();
        warnings.write(&mut headers);
        headers.get_all(WARNING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn warnings_are_written_once_and_quoted() {
        let texts = ["a \"b\"\n", "a \"b\"\n", ""].map(str::to_owned);
        assert_eq!(written(&texts), [r#"299 - "a \"b\" ""#]);
    }

    #[test]
    fn too_many_characters_cut_every_warning() {
        let texts: Vec<String> = (0..100).map(|n| format!("{n}{}", "x".repeat(1000))).collect();
        let headers = written(&texts);
        assert_eq!(headers.len(), CHARS_MAX / CUT_CHARS);
        assert!(headers.iter().all(|header| header.len() == CUT_CHARS + "299 - \"\"".len()));
    }
}
