//! `PodLogOptions`: which part of a log is asked for, and in which form.

use bayplan_model::status::Status;
use jiff::Timestamp;

use crate::request::Query;
use crate::status_errors::{self, FieldError, bad_request};

/// The options of a request for a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LogOptions {
    /// Empty for the only container.
    pub(super) container: String,
    pub(super) follow: bool,
    pub(super) previous: bool,
    pub(super) timestamps: bool,
    pub(super) since: Since,
    /// The last lines of those.
    pub(super) tail: Option<usize>,
    /// The first bytes of those.
    pub(super) bytes: Option<usize>,
}

/// From when on lines are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Since {
    #[default]
    Start,
    /// This many seconds ago.
    Seconds(i64),
    Time(Timestamp),
}

impl LogOptions {
    /// Reads and checks the options in a query; upstream's `ValidatePodLogOptions`.
    pub(super) fn parse(query: &Query, pod: &str) -> Result<LogOptions, Status> {
        let (tail, bytes) = (query.int("tailLines")?, query.int("limitBytes")?);
        let (seconds, time) = (query.int("sinceSeconds")?, time(query)?);
        let mut errors = Vec::new();
        if let Some(tail) = tail.filter(|tail| *tail < 0) {
            errors.push(FieldError::invalid("tailLines", tail, "must be greater than or equal to 0"));
        }
        if let Some(bytes) = bytes.filter(|bytes| *bytes < 1) {
            errors.push(FieldError::invalid("limitBytes", bytes, "must be greater than 0"));
        }
        let since = match (seconds, time) {
            (Some(_), Some(_)) => {
                let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                errors.push(FieldError::forbidden("", why));
                Since::Start
            }
            (Some(seconds), None) => {
                if seconds < 1 {
                    errors.push(FieldError::invalid("sinceSeconds", seconds, "must be greater than 0"));
                }
                Since::Seconds(seconds)
            }
            (None, Some(time)) => Since::Time(time),
            (None, None) => Since::Start,
        };
        if query.get("stream").is_some() {
            errors.push(FieldError::forbidden("stream", "may not be specified"));
        }
        if !errors.is_empty() {
            return Err(status_errors::invalid("", "PodLogOptions", pod, &errors));
        }
        let size = |given: i64| usize::try_from(given).unwrap_or(usize::MAX);
        Ok(LogOptions {
            container: query.get("container").unwrap_or_default().to_owned(),
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            since,
            tail: tail.map(size),
            bytes: bytes.map(size),
        })
    }
}

fn time(query: &Query) -> Result<Option<Timestamp>, Status> {
    match query.get("sinceTime") {
        None | Some("" | "null") => Ok(None),
        Some(text) => match text.parse() {
            Ok(time) => Ok(Some(time)),
            Err(_) => Err(bad_request(format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked_in_upstreams_words() {
        let prefix = "PodLogOptions \"p\" is invalid: ";
        for (query, code, message) in [
            ("tailLines=-1", 422, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
            ("limitBytes=0", 422, "limitBytes: Invalid value: 0: must be greater than 0"),
            ("sinceSeconds=0", 422, "sinceSeconds: Invalid value: 0: must be greater than 0"),
            (
                "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
                422,
                ": Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
            ),
            ("stream=All", 422, "stream: Forbidden: may not be specified"),
            ("tailLines=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
            (
                "sinceTime=soon",
                400,
                "parsing time \"soon\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"soon\" as \"2006\"",
            ),
        ] {
            let status = LogOptions::parse(&Query::parse(query), "p").unwrap_err();
            let expected = if code == 422 { format!("{prefix}{message}") } else { message.to_owned() };
            assert_eq!((status.code, status.message), (code, expected), "{query}");
        }
        let read = LogOptions::parse(&Query::parse("follow=true&tailLines=0&container=c&previous=false"), "p").unwrap();
        let expected = LogOptions { container: "c".to_owned(), follow: true, tail: Some(0), ..LogOptions::default() };
        assert_eq!(read, expected);
    }
}
