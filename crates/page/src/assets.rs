//! The files of the page, which are part of the binary.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A file of the page.
pub(crate) struct Asset {
    /// Its path in the URL.
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) text: &'static str,
}

impl Asset {
    const fn script(path: &'static str, text: &'static str) -> Self {
        Asset { path, content_type: "text/javascript; charset=utf-8", text }
    }
}

/// The document.
pub(crate) const INDEX: Asset =
    Asset { path: "/", content_type: "text/html; charset=utf-8", text: include_str!("../assets/index.html") };

/// The style sheet.
pub(crate) const STYLE: Asset =
    Asset { path: "/style.css", content_type: "text/css; charset=utf-8", text: include_str!("../assets/style.css") };

/// The icon.
pub(crate) const ICON: Asset =
    Asset { path: "/icon.svg", content_type: "image/svg+xml", text: include_str!("../assets/icon.svg") };

/// The scripts, each after those that it imports.
pub(crate) const SCRIPTS: &[Asset] = &[
    Asset::script("/dom.js", include_str!("../assets/dom.js")),
    Asset::script("/format.js", include_str!("../assets/format.js")),
    Asset::script("/colours.js", include_str!("../assets/colours.js")),
    Asset::script("/layout.js", include_str!("../assets/layout.js")),
    Asset::script("/map.js", include_str!("../assets/map.js")),
    Asset::script("/server.js", include_str!("../assets/server.js")),
    Asset::script("/pending.js", include_str!("../assets/pending.js")),
    Asset::script("/node.js", include_str!("../assets/node.js")),
    Asset::script("/detail.js", include_str!("../assets/detail.js")),
    Asset::script("/timeline.js", include_str!("../assets/timeline.js")),
    Asset::script("/main.js", include_str!("../assets/main.js")),
];

/// A file and the tag of its content.
pub(crate) struct Tagged {
    pub(crate) asset: &'static Asset,
    /// The value of the `ETag` header.
    pub(crate) tag: String,
}

static TAGGED: LazyLock<Vec<Tagged>> = LazyLock::new(|| {
    let all = [&INDEX, &STYLE, &ICON].into_iter().chain(SCRIPTS);
    all.map(|asset| Tagged { asset, tag: format!("\"{}\"", hash(asset.text)) }).collect()
});

/// The file at a path.
pub(crate) fn find(path: &str) -> Option<&'static Tagged> {
    TAGGED.iter().find(|tagged| tagged.asset.path == path)
}

/// The SHA-256 of a text, as content security policies and entity tags write it.
pub(crate) fn hash(text: &str) -> String {
    STANDARD.encode(digest(&SHA256, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_names_is_there_and_nothing_else_is() {
        for asset in [&INDEX].into_iter().chain(SCRIPTS) {
            let quoted = asset.text.split(['"', '\'']).filter(|part| {
                let ends = [".js", ".css", ".svg"].iter().any(|end| part.ends_with(end));
                ends && !part.contains(' ')
            });
            for named in quoted {
                let path = format!("/{}", named.trim_start_matches("./").trim_start_matches('/'));
                assert!(find(&path).is_some(), "{} names {named}", asset.path);
            }
        }
        assert!(find("/../Cargo.toml").is_none());
    }

    #[test]
    fn no_file_asks_anything_of_another_host_or_needs_what_the_policy_forbids() {
        for asset in [&INDEX, &STYLE].into_iter().chain(SCRIPTS) {
            for forbidden in
                ["http://", "https://", "//cdn", "innerHTML", "eval(", "new Function", " style=\"", "@import"]
            {
                let stripped = asset.text.replace("http://www.w3.org/2000/svg", "");
                assert!(!stripped.contains(forbidden), "{} has {forbidden}", asset.path);
            }
        }
    }

    #[test]
    fn a_script_stands_after_those_that_it_imports() {
        for (at, script) in SCRIPTS.iter().enumerate() {
            for line in script.text.lines().filter(|line| line.starts_with("import ")) {
                let named = line.split('\'').nth(1).and_then(|path| path.strip_prefix('.')).unwrap();
                let place = SCRIPTS.iter().position(|other| other.path == named).unwrap();
                assert!(place < at, "{} imports {named}", script.path);
            }
        }
    }
}
