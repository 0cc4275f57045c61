//! Content negotiation: the form of the answer that the client accepts.

mod compression;
mod pieces;
mod protobuf;
mod render;

use bayplan_model::status::{Details, Status, reason};
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, HeaderValue};

use crate::request::{IncludeObject, Query};
use crate::status_errors;

pub(crate) use compression::compressed;
pub(crate) use pieces::Content;
pub(crate) use protobuf::versioned_metadata;
pub(crate) use render::{TableMeta, render, status, table, table_of_value, weight, work};

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) media: Media,
    /// Indent the JSON.
    pub(crate) pretty: bool,
    pub(crate) transform: Transform,
}

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Media {
    /// The content type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Media::Json => "application/json",
            Media::Yaml => "application/yaml",
            Media::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// What the objects of an answer are converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transform {
    /// The objects themselves.
    Object,
    /// `PartialObjectMetadata`.
    Partial,
    /// A `Table`.
    Table(IncludeObject),
}

/// The media types that objects have.
const SERVED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

impl Format {
    /// Plain JSON.
    pub(crate) const JSON: Format = Format { media: Media::Json, pretty: false, transform: Transform::Object };

    /// Chooses the form of an answer by `Accept` and the query.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &Query) -> Result<Format, Status> {
        let pretty = wants_pretty(headers, query);
        let accept = headers.get_all(ACCEPT).iter().map(header_text).collect::<Vec<_>>().join(",");
        if accept.trim().is_empty() {
            return Ok(Format { pretty, ..Format::JSON });
        }
        let clauses = clauses(&accept);
        let mut known = false;
        for clause in &clauses {
            let Some(media) = clause.media() else { continue };
            known = true;
            if let Some(transform) = clause.transform(media, query)? {
                return Ok(Format { media, pretty, transform });
            }
        }
        if known {
            return Err(status_errors::not_acceptable(SERVED));
        }
        Err(unavailable(SERVED))
    }

    /// Chooses the form of the answers that have no protobuf form.
    pub(crate) fn negotiate_text(headers: &HeaderMap, query: &Query) -> Result<Format, Status> {
        let format = Format::negotiate(headers, query)?;
        Ok(if format.media == Media::Protobuf { Format { media: Media::Json, ..format } } else { format })
    }

    /// Chooses the form of a failure, which is never converted and never refused.
    pub(crate) fn for_status(headers: &HeaderMap, query: &Query) -> Format {
        let plain = Format { pretty: wants_pretty(headers, query), ..Format::JSON };
        let accept = headers.get(ACCEPT).map(header_text).unwrap_or_default();
        let clauses = clauses(accept);
        let mut unconverted = clauses.iter().filter(|clause| !clause.converts());
        let media = unconverted.find_map(Clause::media).unwrap_or(Media::Json);
        Format { media, ..plain }
    }

    /// Refuses the forms that no watch has.
    pub(crate) fn check_stream(self) -> Result<(), Status> {
        if self.media == Media::Yaml {
            return Err(status_errors::not_acceptable(
                "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
            ));
        }
        Ok(())
    }
}

/// The text of a header. One that is no text becomes what no media type is: it must not count as missing.
pub(crate) fn header_text(value: &HeaderValue) -> &str {
    std::str::from_utf8(value.as_bytes()).unwrap_or("unreadable")
}

/// The 406 of upstream's router, which refuses before any handler sees the request.
pub(crate) fn unavailable(representations: &str) -> Status {
    Status::failure(
        406,
        reason::NOT_ACCEPTABLE,
        format!("406: Not Acceptable\n\nAvailable representations: {representations}"),
    )
    .with_details(Details::default())
}

fn wants_pretty(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(pretty) = query.get("pretty") {
        return !matches!(pretty, "false" | "0");
    }
    // With these agents, people read the answer.
    let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|prefix| agent.starts_with(prefix))
}

#[derive(Debug, Default)]
struct Clause<'a> {
    media_type: &'a str,
    quality: f32,
    kind: Option<&'a str>,
    group: Option<&'a str>,
    version: Option<&'a str>,
    /// `stream`: which events a stream has.
    stream: &'a str,
    /// `sv`: the version of what is not an object of the resource.
    server_version: &'a str,
}

fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept
        .split(',')
        .filter(|text| !text.trim().is_empty())
        .map(|text| {
            let mut parts = text.split(';').map(str::trim);
            let mut clause = Clause { media_type: parts.next().unwrap_or_default(), quality: 1.0, ..Clause::default() };
            for part in parts {
                match part.split_once('=') {
                    Some(("q", quality)) => clause.quality = quality.parse().unwrap_or(0.0),
                    Some(("as", kind)) => clause.kind = Some(kind),
                    Some(("g", group)) => clause.group = Some(group),
                    Some(("v", version)) => clause.version = Some(version),
                    Some(("stream", stream)) => clause.stream = stream,
                    Some(("sv", version)) => clause.server_version = version,
                    _ => {}
                }
            }
            clause
        })
        .collect();
    // A stable sort: clauses of equal quality keep the client's order, but those with a wildcard come later.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(a.wildcards().cmp(&b.wildcards())));
    clauses
}

impl Clause<'_> {
    /// The encoding of the clause, if it is served.
    fn media(&self) -> Option<Media> {
        match self.media_type {
            "application/json" | "*/*" | "application/*" => Some(Media::Json),
            "application/yaml" => Some(Media::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Media::Protobuf),
            _ => None,
        }
    }

    /// How little the clause says: 2 for any type, 1 for any of a family.
    fn wildcards(&self) -> usize {
        self.media_type.split('/').filter(|part| *part == "*").count()
    }

    fn converts(&self) -> bool {
        self.kind.is_some() || self.group.is_some() || self.version.is_some()
    }

    /// The conversion of the clause; `None` if it is not served.
    fn transform(&self, media: Media, query: &Query) -> Result<Option<Transform>, Status> {
        if !matches!(self.stream, "" | "watch") || !matches!(self.server_version, "" | "v1") {
            return Ok(None);
        }
        if !self.converts() {
            return Ok(Some(Transform::Object));
        }
        let kind = self.kind.unwrap_or_default();
        if self.group != Some("meta.k8s.io") || !matches!(self.version, Some("v1" | "v1beta1")) {
            return Ok(None);
        }
        Ok(match kind {
            // A cell may be anything, which protobuf has no form for.
            "Table" if media == Media::Protobuf => None,
            "Table" => Some(Transform::Table(IncludeObject::parse(query)?)),
            "PartialObjectMetadata" | "PartialObjectMetadataList" => Some(Transform::Partial),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_clause_that_is_served_wins() {
        let table = [
            ("", Ok((Media::Json, Transform::Object))),
            ("*/*", Ok((Media::Json, Transform::Object))),
            ("application/vnd.kubernetes.protobuf, */*", Ok((Media::Protobuf, Transform::Object))),
            ("*/*, application/vnd.kubernetes.protobuf", Ok((Media::Protobuf, Transform::Object))),
            ("application/json, application/vnd.kubernetes.protobuf", Ok((Media::Json, Transform::Object))),
            ("application/vnd.kubernetes.protobuf;stream=watch", Ok((Media::Protobuf, Transform::Object))),
            ("application/json;stream=other, application/yaml", Ok((Media::Yaml, Transform::Object))),
            ("application/json;g=apps", Err(406)),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", Err(406)),
            ("application/yaml", Ok((Media::Yaml, Transform::Object))),
            ("application/json;q=0.1,application/yaml;q=0.9", Ok((Media::Yaml, Transform::Object))),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Ok((Media::Json, Transform::Table(IncludeObject::Metadata))),
            ),
            ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", Ok((Media::Json, Transform::Object))),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                 application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
                Ok((Media::Protobuf, Transform::Partial)),
            ),
            ("application/json;as=Table;v=v2;g=meta.k8s.io", Err(406)),
            ("application/xml", Err(406)),
            ("application/jsön", Err(406)),
            ("application/jsön, application/yaml", Ok((Media::Yaml, Transform::Object))),
        ];
        for (accept, expected) in table {
            let mut headers = HeaderMap::new();
            if !accept.is_empty() {
                headers.insert(ACCEPT, accept.parse().unwrap());
            }
            let got = Format::negotiate(&headers, &Query::default());
            assert_eq!(got.map(|f| (f.media, f.transform)).map_err(|s| s.code), expected, "{accept}");
        }
    }

    #[test]
    fn a_failure_is_never_converted_and_has_the_first_form_that_is_served() {
        for (accept, expected) in [
            ("application/vnd.kubernetes.protobuf, */*", Media::Protobuf),
            ("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Media::Json),
            ("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/yaml", Media::Yaml),
            ("application/xml", Media::Json),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(Format::for_status(&headers, &Query::default()).media, expected, "{accept}");
        }
    }
}
