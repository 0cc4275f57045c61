//! Kubeconfig files: the address of the server and the credentials of a user, with the certificates inline.

use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::folder::write_private;
use super::{Error, Identity};

/// The name of cluster, user and context in these files.
const CONTEXT: &str = "bayplan";

/// The text of a kubeconfig for `server` (an `https://` URL) and the user `identity`.
pub fn render(server: &str, authority_certificate: &str, identity: &Identity) -> String {
    let data = |pem: &str| STANDARD.encode(pem);
    let mut text = String::from("apiVersion: v1\nkind: Config\nclusters:\n");
    // A JSON string is also a YAML string, and serde_json quotes it.
    let server = serde_json::Value::from(server);
    let _ = write!(
        text,
        "- name: {CONTEXT}\n  cluster:\n    server: {server}\n    certificate-authority-data: {}\n\
         users:\n- name: {CONTEXT}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n\
         contexts:\n- name: {CONTEXT}\n  context:\n    cluster: {CONTEXT}\n    user: {CONTEXT}\n\
         current-context: {CONTEXT}\n",
        data(authority_certificate),
        data(&identity.certificate),
        data(&identity.key),
    );
    text
}

/// Writes a kubeconfig that only its owner may read, atomically.
pub fn write(path: &Path, server: &str, authority_certificate: &str, identity: &Identity) -> Result<(), Error> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|source| Error::Io {
            action: "create",
            path: folder.to_owned(),
            source,
        })?;
    }
    write_private(path, &render(server, authority_certificate, identity))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_kubeconfig_holds_its_certificates_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/config");
        let identity = Identity { certificate: "CERT".into(), key: "KEY".into() };
        write(&path, "https://127.0.0.1:6443", "CA", &identity).unwrap();
        let config: serde_json::Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(config["current-context"], "bayplan");
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:6443");
        assert_eq!(config["users"][0]["user"]["client-key-data"], "S0VZ");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
